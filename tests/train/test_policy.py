"""The policy: shared arrays, every forward path against the model's own, the reference, files."""

from __future__ import annotations

import json

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import KVCache, RotatingKVCache

from legos_envs.records import Episode, Trajectory, Turn
from legos_train.config.sections import LoRASettings
from legos_train.errors import ConfigError
from legos_train.loss.batch import pack
from legos_train.model import logprob_cache
from legos_train.model import policy as policy_module
from legos_train.model.gradients import loss_and_grad
from legos_train.model.last_feed_forward import at_sites
from legos_train.model.lora import grad_norm
from legos_train.model.policy import LoRAPolicy
from tests.lora_of_mlx import linear_to_lora_layers, load_adapters
from tests.train.helpers import plain_loss
from tests.train.policies import PREFIX, VOCABULARY, close, make_batch, make_model, make_policy, naive_logits


def test_the_base_is_shared_and_untouched():
    model = make_model()
    before = dict(tree_flatten(model.parameters()))
    trainable = sorted(name for name, _ in tree_flatten(model.trainable_parameters()))
    rng_state = np.array(mx.random.state[0])
    policy = make_policy(model)
    loss_and_grad(policy, make_batch(), plain_loss(kl=0.1))
    assert np.array_equal(np.array(mx.random.state[0]), rng_state)
    after = dict(tree_flatten(model.parameters()))
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)
    assert sorted(name for name, _ in tree_flatten(model.trainable_parameters())) == trainable
    inside = dict(tree_flatten(policy.model.parameters()))
    for name, array in before.items():
        moved = name if name in inside else name.replace(".weight", ".linear.weight")
        assert inside[moved] is array, name
    assert not any(type(m).__name__ == "LoRALinear" for m in model.modules())


def test_names_shapes_and_seed():
    policy = LoRAPolicy(make_model(), LoRASettings(rank=3), seed=1)
    weights = policy.trainable()
    assert len(weights) == 2 * 2 * 7
    assert weights["model.layers.0.self_attn.q_proj.lora_a"].shape == (32, 3)
    assert weights["model.layers.1.mlp.down_proj.lora_b"].shape == (3, 32)
    assert all((w == 0).all().item() == name.endswith("lora_b") for name, w in weights.items())
    again, other = (LoRAPolicy(make_model(), LoRASettings(rank=3), seed=s).trainable() for s in (1, 2))
    assert all(mx.array_equal(w, again[name]) for name, w in weights.items())
    name = "model.layers.0.mlp.up_proj.lora_a"
    assert not mx.array_equal(weights[name], other[name])
    assert not mx.array_equal(weights[name], weights["model.layers.1.mlp.up_proj.lora_a"])


def test_a_fresh_policy_is_the_base():
    model, batch = make_model(), make_batch()
    policy = LoRAPolicy(model, seed=3)
    assert close(policy.forward(batch)[mx.array(batch.position)], naive_logits(model, batch))


MODELS = {
    "qwen3": {},
    "untied": {"tie_word_embeddings": False},
    "one layer": {"num_hidden_layers": 1},
    "llama": {"kind": "llama"},
    "llama with biases": {"kind": "llama", "attention_bias": True, "mlp_bias": True},
}


@pytest.mark.quick
@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("prefix", [PREFIX, [5]], ids=["shared prefix", "short prefix"])
def test_every_path_gives_the_models_own_logits(options, prefix):
    policy, batch = make_policy(make_model(**options)), make_batch(prefix=prefix)
    assert policy.logits.path == "sites" and not policy.notes
    expected = naive_logits(policy.model, batch)
    for path in ("sites", "prefix", "body", "plain"):
        for policy.logits.trims in (False, True):
            policy.logits.path = path
            assert close(policy.forward(batch)[mx.array(batch.position)], expected), (path, policy.logits.trims)


def test_models_built_otherwise_share_their_prefix_too():
    options = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 8.0}
    windowed = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
    for kind, more in (("gemma2", options), ("llama", windowed)):
        policy, batch = make_policy(make_model(kind, **more)), make_batch()
        assert policy.logits.path == "prefix" and policy.logits.trims
        assert ("'sites' changes the logits" in str(policy.notes)) == (kind == "gemma2")
        assert close(policy.forward(batch)[mx.array(batch.position)], naive_logits(policy.model, batch))


def test_a_model_that_keeps_something_unknown_computes_every_row():
    class Own(KVCache):
        pass

    model, batch = make_model(), make_batch()
    object.__setattr__(model, "make_cache", lambda: [Own(), Own()])
    policy = make_policy(model)
    assert policy.logits.path == "body" and policy.logits.trims and "rows cannot share a Own" in policy.notes[0]
    assert close(policy.forward(batch)[mx.array(batch.position)], naive_logits(policy.model, batch))


@pytest.mark.parametrize("kept", [12, 11], ids=["as masked", "one less"])
def test_beyond_a_window_rows_share_only_what_the_model_masks(kept):
    """Too far for what a policy tries when it is made."""
    model = make_model("llama", layer_types=["sliding_attention", "full_attention"], sliding_window=12)
    object.__setattr__(model, "make_cache", lambda: [RotatingKVCache(max_size=kept), KVCache()])
    policy, prefix = make_policy(model), [5] * 11
    for length in (9, 11, 24):
        batch = make_batch(prefix=(prefix * 3)[:length])
        assert close(policy.forward(batch)[mx.array(batch.position)], naive_logits(policy.model, batch)), length
    assert policy.logits.path == ("prefix" if kept == 12 else "body")
    assert ("changes what comes after a window" in str(policy.notes)) == (kept == 11)


def test_a_block_of_another_shape_still_shares_its_prefix():
    class Doubled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __call__(self, x):
            return 2.0 * self.inner(x)

    model, batch = make_model(), make_batch()
    for block in model.layers:
        block.mlp = Doubled(block.mlp)
    policy = make_policy(model)
    assert policy.logits.path == "prefix" and policy.logits.trims and "'sites' does not fit" in policy.notes[0]
    assert close(policy.forward(batch)[mx.array(batch.position)], naive_logits(policy.model, batch))
    assert len(policy.notes) == 1


def test_a_feed_forward_part_that_mixes_positions_is_computed_whole():
    class Summed(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __call__(self, x):
            return self.inner(mx.cumsum(x, axis=-2))

    batch = make_batch()
    model = make_model()
    model.layers[-1].mlp = Summed(model.layers[-1].mlp)
    policy = make_policy(model)
    assert policy.logits.path == "body" and not policy.logits.trims
    assert close(policy.forward(batch)[mx.array(batch.position)], naive_logits(policy.model, batch))
    assert isinstance(policy.model.layers[-1].mlp, Summed)


def test_a_last_block_that_also_stands_first_is_computed_whole():
    """Only one of its two passes has the shape of the rest of the rows; MLX checks no indices."""

    class Doubled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __call__(self, x):
            assert 0 not in x.shape
            return 2.0 * self.inner(x)

    model, batch = make_model(), make_batch()
    model.layers[0].mlp = Doubled(model.layers[0].mlp)
    model.model.layers = [model.layers[0]] * 2
    policy = make_policy(model)
    assert policy.logits.path == "prefix" and not policy.logits.trims
    assert close(policy.forward(batch)[mx.array(batch.position)], naive_logits(policy.model, batch))
    with at_sites(policy.model.model, (3, 5), mx.array([2]), mx.array([4])):
        whole = policy.model.layers[-1].mlp(mx.ones((1, 5, 32)))
    assert mx.array_equal(whole, policy.model.layers[-1].mlp(mx.ones((1, 5, 32))))


def test_quantized_base():
    model = make_model()
    nn.quantize(model, group_size=32, bits=4)
    policy, batch = make_policy(model), make_batch()
    assert isinstance(policy.model.layers[0].mlp.up_proj.linear, nn.QuantizedLinear)
    assert policy.trainable()["model.layers.0.mlp.down_proj.lora_a"].shape == (64, 3)
    assert close(policy.forward(batch)[mx.array(batch.position)], naive_logits(policy.model, batch), 1e-4)
    _, grads, numbers = loss_and_grad(policy, batch, plain_loss())
    assert numbers["finite"] and all(mx.abs(g).max().item() > 0 for g in grads.values())


def test_adapters_somebody_else_put_on_are_peeled_off():
    plain, batch = make_model(), make_batch()
    adapted = make_model()
    linear_to_lora_layers(adapted, 2, {"rank": 2, "scale": 1.0, "dropout": 0.0})
    assert LoRAPolicy(adapted).trainable().keys() == LoRAPolicy(plain).trainable().keys()
    assert mx.array_equal(LoRAPolicy(adapted).forward(batch), LoRAPolicy(plain).forward(batch))


def test_numbers_do_not_depend_on_the_parts():
    policy, batch = make_policy(), make_batch()
    settings = plain_loss(kl=0.2)
    _, _, whole = loss_and_grad(policy, batch, settings, policy_version=2)
    _, _, parts = loss_and_grad(policy, batch, settings, max_tokens=40, policy_version=2)
    assert whole.pop("staleness") == parts.pop("staleness") == {"2": len(batch)}
    assert whole == pytest.approx(parts, rel=1e-5, abs=1e-7)
    assert {"kl", "entropy", "clip_fraction", "staleness_mean", "loss"} <= whole.keys() and "mismatch_max" not in whole
    assert whole["kl"] > 0 and 0 < whole["entropy"] < np.log(VOCABULARY)


def test_on_policy_the_ratio_is_one():
    policy, batch = make_policy(), make_batch()
    logits = naive_logits(policy.model, batch)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    batch.old_logprobs[:] = np.array(logprobs[mx.arange(len(batch)), mx.array(batch.target)])
    _, _, numbers = loss_and_grad(policy, batch, plain_loss(), policy_version=0)
    assert numbers["mismatch_max"] < 1e-5 and numbers["clip_fraction"] == 0.0
    assert numbers["ratio_max"] == pytest.approx(1, abs=1e-5)


def test_a_step_down_the_gradient_lowers_the_loss():
    policy, batch = make_policy(), make_batch()
    settings = plain_loss(name="importance_sampling")
    before, grads, _ = loss_and_grad(policy, batch, settings)
    norm = grad_norm(grads)
    policy.load({name: w - 1e-3 / norm * grads[name] for name, w in policy.trainable().items()})
    after, _, _ = loss_and_grad(policy, batch, settings)
    assert after - before == pytest.approx(-1e-3 * norm, rel=0.05)


@pytest.mark.parametrize("vocabulary", [policy_module.FULL_ROW_VOCABULARY, 1], ids=["small", "large"])
def test_reference_is_the_base_and_cached(vocabulary, monkeypatch):
    monkeypatch.setattr(policy_module, "FULL_ROW_VOCABULARY", vocabulary)
    model = make_model()
    policy, batch = make_policy(model), make_batch()
    logits = naive_logits(model, batch)
    expected = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    chosen = expected[mx.arange(len(batch)), mx.array(batch.target)]
    for _ in range(2):
        assert close(policy.reference(batch)[mx.array(batch.position)], expected)
        assert close(policy.reference(batch, full=False), chosen)
    computed = []
    monkeypatch.setattr(policy, "_reference_logprobs", lambda b, **_: computed.append(b) or pytest.fail("not cached"))
    assert close(policy.reference(batch, full=False), chosen)
    for part, _ in batch.parts(40):
        policy.reference(part, full=False)
    policy.clear()
    with pytest.raises(pytest.fail.Exception):
        policy.reference(batch, full=False)


def test_a_full_cache_forgets_but_does_not_lie(monkeypatch):
    policy, batch = make_policy(), make_batch()
    expected = policy.reference(batch)
    monkeypatch.setattr(logprob_cache, "MOST_BYTES", 3000)
    small = LoRAPolicy(make_model())
    for seed in (0, 1, 0):
        small.reference(make_batch(seed=seed))
        assert 0 < small._cache.entries.nbytes <= 3000
    assert close(small.reference(batch), expected)


def test_anchor_moves_the_reference():
    policy, batch = make_policy(), make_batch()
    now = {name: mx.array(w) for name, w in policy.trainable().items()}
    base = policy.reference(batch)
    policy.anchor(now)
    logits = policy.forward(batch)
    assert close(policy.reference(batch), logits - mx.logsumexp(logits, axis=-1, keepdims=True))
    policy.load({name: w * 0 for name, w in now.items()})
    assert not close(policy.reference(batch), base)
    assert all((w == 0).all().item() for w in policy.trainable().values())  # put back after looking
    policy.anchor(None)
    assert close(policy.reference(batch), base)
    with pytest.raises(ValueError, match="missing"):
        policy.anchor({})


def test_a_reference_that_moved_keeps_a_share_of_the_base():
    policy, batch = make_policy(), make_batch()
    base = np.exp(np.array(policy.reference(batch, base=0.25), dtype=np.float64))
    assert close(policy.reference(batch), np.log(base)), "before it has moved it is the base, whatever the share"
    policy.anchor(make_policy(seed=5).trainable())
    moved = np.exp(np.array(policy.reference(batch), dtype=np.float64))
    policy.clear()
    mixed = policy.reference(batch, base=0.25)
    assert close(mixed, np.log(0.75 * moved + 0.25 * base)) and not close(mixed, np.log(moved))
    assert close(
        policy.reference(batch, full=False, base=0.25), mixed[mx.array(batch.position), mx.array(batch.target)]
    )
    policy.clear()
    shared = loss_and_grad(policy, batch, plain_loss(kl=0.3, magnet_every=1, magnet_base=0.25))[2]["kl"]
    policy.clear()
    assert loss_and_grad(policy, batch, plain_loss(kl=0.3))[2]["kl"] != pytest.approx(shared), "the loss reads it"


def test_anchor_weights_are_state_that_comes_back():
    """What a checkpoint keeps of a moving magnet: another policy given it measures the same KL, cached or not."""
    policy, batch, settings = make_policy(), make_batch(), plain_loss(kl=0.3)
    assert policy.anchor_weights() is None
    policy.reference(batch)  # of the base: must not be taken for the magnet's
    policy.anchor(make_policy(seed=5).trainable())
    kept = policy.anchor_weights()
    again = make_policy()
    again.anchor({name: mx.array(np.array(w)) for name, w in kept.items()})
    results = [loss_and_grad(p, batch, settings) for p in (policy, policy, again)]
    base = loss_and_grad(make_policy(), batch, settings)[2]
    assert results[0][0] == results[1][0] == results[2][0] and results[0][2]["kl"] > 0
    assert abs(results[0][2]["kl"] - base["kl"]) > 1e-3
    assert all(mx.array_equal(g, results[2][1][name]) for name, g in results[0][1].items())


def test_logprobs_are_those_of_the_definition():
    policy, batch = make_policy(), make_batch()
    logits = naive_logits(policy.model, batch)
    expected = (logits - mx.logsumexp(logits, axis=-1, keepdims=True))[mx.arange(len(batch)), mx.array(batch.target)]
    for budget in (None, 40):
        assert close(policy.logprobs(batch, max_tokens=budget), expected)


def test_load_refuses_what_does_not_fit():
    policy = make_policy()
    own = policy.trainable()
    name = "model.layers.0.mlp.up_proj.lora_a"
    for bad, message in [
        ({k: v for k, v in own.items() if k != name}, f"1 LoRA weights are missing, such as '{name}'"),
        ({**own, "lm_head.lora_a": own[name]}, "lm_head"),
        ({**own, name: own[name].T}, rf"{name} has shape \(3, 32\), this policy's is \(32, 3\)"),
        ({**own, name: own[name] * float("nan")}, f"not finite, such as '{name}'"),
    ]:
        with pytest.raises(ValueError, match=message):
            policy.load(bad)
    assert all(mx.array_equal(w, own[k]) for k, w in policy.trainable().items())


def test_saved_adapters_load_in_mlx_lm(tmp_path):
    policy, batch = make_policy(), make_batch()
    policy.save(tmp_path / "adapter", {"legos": {"step": 7}})
    policy.save(tmp_path / "adapter", {"legos": {"step": 8}})  # over an existing one
    assert sorted(p.name for p in (tmp_path / "adapter").iterdir()) == ["adapter_config.json", "adapters.safetensors"]
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["fine_tune_type"] == "lora" and config["num_layers"] == 2 and config["legos"] == {"step": 8}
    assert config["lora_parameters"]["rank"] == 3 and config["lora_parameters"]["scale"] == 2.0
    theirs = load_adapters(make_model(), str(tmp_path / "adapter"))
    theirs.eval()
    assert close(naive_logits(theirs, batch), policy.forward(batch)[mx.array(batch.position)])


ATTENTION = [f"1.self_attn.{name}_proj" for name in "kqvo"]
NAMED = [f"{block}.{name}_proj" for block in (0, 1) for name in ("mlp.up", "self_attn.q")]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"layers": 1}, [*ATTENTION, "1.mlp.down_proj", "1.mlp.gate_proj", "1.mlp.up_proj"]),
        ({"targets": ("q_proj", "mlp.up_proj")}, NAMED),
        ({"layers": 1, "targets": ("self_attn",)}, ATTENTION),
    ],
    ids=["last block", "named layers", "both"],
)
def test_only_some_layers_get_an_adapter(settings, expected, tmp_path):
    lora, batch = LoRASettings(rank=3, scale=2.0, **settings), make_batch()
    policy = LoRAPolicy(make_model(), lora, seed=0)
    names = {name.rpartition(".")[0] for name in policy.trainable()}
    assert names == {f"model.layers.{name}" for name in expected}
    policy.load({name: weight + 0.1 for name, weight in policy.trainable().items()})
    _, grads, _ = loss_and_grad(policy, batch, plain_loss())
    whole = make_policy(make_model())
    padded = {name: mx.zeros_like(weight) for name, weight in whole.trainable().items()} | policy.trainable()
    whole.load(padded)
    _, all_grads, _ = loss_and_grad(whole, batch, plain_loss())
    assert grads.keys() == policy.trainable().keys()
    assert all(close(grad, all_grads[name], 1e-6) for name, grad in grads.items())
    policy.save(tmp_path / "adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["num_layers"] == settings.get("layers", 2) and config["lora_parameters"]["keys"] == policy.keys
    theirs = load_adapters(make_model(), str(tmp_path / "adapter"))
    theirs.eval()
    assert close(naive_logits(theirs, batch), policy.forward(batch)[mx.array(batch.position)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": 3}, r"lora\.layers must be at most 2, the model's blocks; got 3"),
        ({"targets": ("self_attn", "k_prj")}, r"'k_prj' is in none of the names mlp\.down_proj.*did you mean 'k_proj'"),
    ],
)
def test_layers_that_a_model_does_not_have_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        LoRAPolicy(make_model(), LoRASettings(**settings))


def test_an_empty_batch_is_an_error():
    long = Episode("G", 0, {}, {"a": Trajectory("a", "r", True, [Turn((), "", 0.0, None, [1] * 9, [2], [-0.1])])})
    batch = pack([long], [{"a": np.ones(1)}], max_tokens=5)
    with pytest.raises(ValueError, match=r"no sampled tokens.*'too_long': 1"):
        loss_and_grad(make_policy(), batch, plain_loss())
