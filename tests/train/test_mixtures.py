"""What the model `small` reads, and the parts of its recipe: mixtures of scripted players, readers, resuming."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import legos_envs
from legos_envs.games.traders import covers, read_position
from legos_envs.games.trading import read_action
from legos_train.bootstrap import RECIPES, bootstrap, mixtures, pretrain, pretraining_loss, recipe, text_shares, texts
from legos_train.bootstrap import training_rows as rows
from legos_train.bootstrap.recipe import TextStage
from legos_train.bootstrap.texts import Dialogue, Exchange
from legos_train.bootstrap.tokenizer import ChatEncoder, train_tokenizer

SHAPE = pretrain.Shape(32, 1, 2, 1, 16, 32)


@pytest.fixture(scope="module", autouse=True)
def few_are_held() -> Iterator[None]:
    """Filling the buffers of all sources would take most of the time of a short stream, and so would their blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixtures, "HELD", 4)
        patch.setattr(mixtures, "BLOCK", 2)
        yield


@pytest.fixture(scope="module")
def dialogues(few_are_held: None) -> list[Dialogue]:
    return list(islice(mixtures.stream(3), 600))


@pytest.fixture(scope="module")
def encoder(dialogues: list[Dialogue]) -> ChatEncoder:
    return ChatEncoder(train_tokenizer((text for d in dialogues for text in d.texts()), 600))


def test_the_stream_is_a_function_of_its_seed_and_reads_every_registered_env(dialogues: list[Dialogue]) -> None:
    assert dialogues[:24] == list(islice(mixtures.stream(3), 24))
    assert dialogues[:12] != list(islice(mixtures.stream("3.200"), 12))
    assert set(legos_envs.registered()) <= {dialogue.source for dialogue in dialogues}
    for block in range(0, 200, mixtures.BLOCK):
        assert len({d.source for d in dialogues[block : block + mixtures.BLOCK]}) == 1


def test_every_env_has_a_seating_or_is_a_game() -> None:
    own = {i for i in legos_envs.registered() if str(legos_envs.spec(i).entry_point).startswith("legos_envs.")}
    assert own == set(mixtures.GAMES) | set(mixtures.SEATINGS)
    for env_id, seating in mixtures.SEATINGS.items():
        players = legos_envs.make(env_id).unwrapped.scripted_players
        missing = {name for names in seating.values() for name in names} - set(players)
        assert not missing, f"{env_id} has no scripted players {missing}"


def test_in_games_there_are_no_expert_moves(dialogues: list[Dialogue]) -> None:
    for dialogue in dialogues:
        if dialogue.source in mixtures.GAMES:
            assert all(one.best is None and one.share == 0 and one.legal is not None for one in dialogue.exchanges)


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "share"), [("GSM8K-v0", 0.2), ("PlanExecute-v0", 0.5)])
def test_the_best_player_is_said_with_its_share_and_can_be_read_everywhere(env_id: str, share: float) -> None:
    """The replies of the best player carry this share of the weight, however often they are read."""
    rng = Random(0)
    said: list[Exchange] = []
    while len(said) < 1500:
        said += [one for dialogue in mixtures.play(env_id, rng) for one in dialogue.exchanges if one.legal is None]
    best = [one for one in said if one.reply == one.best]
    weight = sum(one.share for one in best) / sum(one.share for one in said)
    assert share - 0.04 < weight < share + 0.1  # a weak player also finds it now and then
    assert mixtures.READ_SHARE - 0.04 < len(best) / len(said) < mixtures.READ_SHARE + 0.1  # likewise
    assert all(one.best is not None for one in said)


def test_a_reply_beyond_single_precision_gives_a_finite_loss() -> None:
    """Its probability is 0 as a float, but not its logarithm."""
    model = pretrain.new_model(pretrain.model_config(64, SHAPE), 0)
    model.model.embed_tokens.weight *= 100.0
    part = rows.RowGroup(np.array([[1, 2, 3]], np.int32), 0, np.array([0, 0], np.int32), np.array([1, 2], np.int32))
    ones = np.ones((2, 1), np.float32)
    kinds, readers = np.array([rows.REPLY, rows.SAID], np.int32), np.full(2, -1, np.int32)
    batch = rows.PretrainingBatch([part], np.array([[5], [6]], np.int32), ones, ones[:, 0], kinds, readers)
    loss, divergence = pretraining_loss.batch_loss(model, batch)
    assert float(divergence.max()) > 110.0 and np.isfinite(float(loss))


@pytest.mark.parametrize("env_id", list(mixtures.DRAWN))
def test_replies_drawn_from_the_mixture_are_legal_and_as_frequent_as_it_says_them(env_id: str) -> None:
    rng = Random(4)
    said = [one for _ in range(3) for d in mixtures.play(env_id, rng, chat=0.0) for one in d.exchanges]
    drawn = [one for one in said if one.legal]
    assert drawn and all(not one.legal for one in said if one.share)
    for one in drawn:
        assert one.legal is not None and one.reply == one.legal[0]
        assert len(one.legal) == mixtures.DRAWN[env_id] + 1
        position = read_position([{"role": "user", "content": one.prompt}])
        for reply in dict.fromkeys(one.legal):
            action = re.search(r"(?:\[|boxed\{)(Offer.*?)[\]}]", reply)
            offer = action and read_action(action[1], position.kinds).offer
            assert not offer or covers(position.stock, offer.give), (one.prompt, reply)
            assert position.acceptable() or "Accept" not in reply
        shares = Counter(one.legal[1:])
        assert one.best is not None and shares[one.best] >= mixtures.BEST_SHARE * mixtures.DRAWN[env_id]
    often = sum(Counter(one.legal)[one.best or ""] / len(one.legal or "") for one in drawn) / len(drawn)
    assert mixtures.BEST_SHARE <= often < mixtures.BEST_SHARE + 0.25  # weak players also say it now and then


def test_a_reply_listed_more_often_is_learned_more_often(encoder: ChatEncoder) -> None:
    told = Dialogue("x", (Exchange("Go", "[2]", ("[2]", "[3]", "[3]", "[3]")),))
    sites = [site for site in rows.make_row(told, encoder, Random(0)).sites if site.kind == rows.REPLY]
    two, three = (encoder.reply(f"[{number}]")[1] for number in (2, 3))
    assert sites[1].target == {two: 0.25, three: 0.75}
    assert [len(site.target) for site in sites] == [1, 2, 1, 1]
    assert [site.weight for site in sites] == [rows.AGREED, 1.0, rows.AGREED, rows.AGREED]
    once = told._replace(exchanges=(Exchange("Go", "[2]", ("[2]", "[3]")),))
    assert {site.weight for site in rows.make_row(once, encoder, Random(0)).sites if site.kind == rows.REPLY} == {1.0}


def test_the_test_split_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, Any]] = []
    make = legos_envs.make

    def watched(env_id: str, **kwargs: Any) -> Any:
        made.append((env_id, kwargs.get("split")))
        return make(env_id, **kwargs)

    monkeypatch.setattr(legos_envs, "make", watched)
    for env_id in ("CodeGen-v0", "SPICE-v0", "Debate-v0", "GSM8K-v0", "ProofVerification-v0"):
        made.clear()
        mixtures.play(env_id, Random(1))
        assert made[-1] == (env_id, "train")


def test_garbage_is_context_and_no_target(dialogues: list[Dialogue]) -> None:
    replies = [one for d in dialogues for one in d.exchanges if one.legal is not None]
    assert any(one.legal == () for one in replies)
    assert all(one.reply in one.legal for one in replies if one.legal)


def test_the_best_reply_is_read_as_far_as_the_reply_agrees_and_one_token_further(encoder: ChatEncoder) -> None:
    told = Dialogue("x", (Exchange("Go", "Answer: 13", share=1.6, best="Answer: 15"),))
    row = rows.make_row(told, encoder, Random(0))
    said, best = encoder.reply("Answer: 13"), encoder.reply("Answer: 15")
    same = next(i for i, (a, b) in enumerate(zip(said, best)) if a != b)
    sites = sorted(site for site in row.sites if site.kind == rows.BEST)
    assert [site.target for site in sites] == [{token: 1.0} for token in best[: same + 1]]
    assert [row.tokens[site.at + 1] for site in sites[:-1]] == best[:same]
    assert all(site.reader == rows.READ_BEST for site in sites)
    assert sum(site.weight**2 for site in sites) == pytest.approx(1.0)
    spoken = [site for site in row.sites if site.kind == rows.SAID]
    assert [row.tokens[site.at + 1] for site in spoken] == said
    assert sum(site.weight**2 for site in spoken) == pytest.approx(1.6**2)


def test_the_reader_of_the_best_reply_is_the_last_matrix(encoder: ChatEncoder, dialogues: list[Dialogue]) -> None:
    some = [rows.make_row(d, encoder, Random(0)) for d in dialogues[:12]]
    batch = rows.collate(some)
    assert (batch.readers == rows.READ_BEST).any()
    model = pretrain.new_model(pretrain.model_config(600, SHAPE), 0)
    readers = pretraining_loss.Readers(model, 16, 0)
    _, divergence = pretraining_loss.batch_loss(readers, batch)
    got = float(np.array(divergence)[batch.kinds == rows.BEST].sum())
    wanted = 0.0
    for row in some:
        hidden = model.model(mx.array([row.tokens]))[0]
        for site in row.sites:
            if site.kind == rows.BEST:
                logits = np.array(model.model.embed_tokens.as_linear(hidden[site.at] @ readers.readers[15]), np.float64)
                wanted -= sum(logits[token] - np.log(np.exp(logits).sum()) for token in site.target)
    assert got == pytest.approx(wanted, rel=1e-4)


@pytest.mark.slow
def test_the_drill_reads_sums_with_right_answers() -> None:
    read = list(islice(mixtures.stream(0, text_shares.DRILL), 400))
    asked = [one for dialogue in read if dialogue.source == "sums" for one in dialogue.exchanges]
    assert len(asked) > 400
    for one in asked:
        ((left, sign, right),) = re.findall(r"(\d+) ([-+*/]) (\d+)", one.prompt)
        a, b = int(left), int(right)
        result = {"+": a + b, "-": a - b, "*": a * b, "/": a // b if sign == "/" else 0}[sign]
        assert re.findall(r"-?\d+", one.reply)[-1] == str(result)
        assert sign != "/" or a % b == 0
    assert not any(dialogue.source == "sums" for dialogue in islice(mixtures.stream(0), 400))


def test_spoiled_replies_are_read_and_what_follows_them_is_learned() -> None:
    rng, refused = Random(3), 0
    for _ in range(100):
        for dialogue in mixtures.play("ProposerSolver-v0", rng):
            for one in dialogue.exchanges:
                assert one.legal is None or not one.share
                refused += "Invalid move:" in one.prompt and one.share > 0
    assert refused > 3


def test_the_rate_and_the_readers_begin_anew_with_each_stage() -> None:
    model = pretrain.new_model(pretrain.model_config(300), 0)
    training = pretrain.Pretraining(model, (40, 10), readers=1, seed=0)
    places = []
    for step in (0, 39, 40, 49):
        training.step = step
        places.append(training.place)
    assert places == [(0, 0, 40), (0, 39, 40), (1, 0, 10), (1, 9, 10)] and training.steps == 50
    assert pretrain.learning_rate(39, 40) < 0.1e-3 < pretrain.learning_rate(35, 80)


def test_each_stage_has_its_own_rate_and_length_of_rows(encoder: ChatEncoder) -> None:
    """The rate that an update is made with, and the rows that it is made from; the last stage reads more."""
    talk = Dialogue("x", tuple(Exchange("Go on, please. " * 20, "Fine.", share=1.0) for _ in range(30)))
    stages = (TextStage(lambda seed: iter([talk] * 4), 1), TextStage(lambda seed: iter([talk] * 4), 1, 2e-4, 900))
    made = RECIPES["small"]._replace(stages=stages)
    read = [next(recipe._rows(made, stage, encoder, 0)) for stage in (0, 1)]
    assert [len(row.tokens) for row in read] == [rows.LIMIT, 900]
    model = pretrain.new_model(pretrain.model_config(600, SHAPE), 0)
    training = pretrain.Pretraining(model, (1, 1), readers=1, seed=0, peaks=[stage.peak for stage in stages])
    rates = []
    for row in read:
        training.train(iter([row]), 1, training.step + 1)
        rates.append(training.optimizer.learning_rate.item() / pretrain.learning_rate(0, 1))
    assert rates == pytest.approx([1.0, 2e-4 / pretrain.PEAK])
    assert RECIPES["small"].stages[-1].limit > rows.LIMIT and RECIPES["small"].stages[-1].peak < pretrain.PEAK


@pytest.mark.slow
def test_the_last_stage_plays_more_chats(monkeypatch: pytest.MonkeyPatch) -> None:
    memories: list[str] = []
    make = legos_envs.make

    def watched(env_id: str, **kwargs: Any) -> Any:
        memories.extend([kwargs["memory"]] if "memory" in kwargs else [])
        return make(env_id, **kwargs)

    monkeypatch.setattr(legos_envs, "make", watched)
    monkeypatch.setattr(mixtures, "BLOCK", 1)
    monkeypatch.setattr(mixtures, "HELD", 1)
    shares = {}
    for chat in (0.15, 0.4):
        memories.clear()
        list(islice(mixtures.stream(5, text_shares.LONG_TALKS, chat), 120))
        shares[chat] = memories.count("chat") / len(memories)
    assert shares[0.15] < 0.28 < shares[0.4] < 0.52, shares


class _Stopped(Exception):
    pass


@pytest.mark.slow
def test_an_interrupted_run_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legos_train.bootstrap.recipe.TOKENIZER_DIALOGUES", 300)
    stages = (TextStage(texts.stream, 3), TextStage(partial(mixtures.stream, of=text_shares.DRILL), 2))
    made = RECIPES["tiny"]._replace(part=2, batch_size=4, pool=0, stages=stages, readers=16)

    def stop(step: int, steps: int, losses: dict[str, float]) -> None:
        if step == 3:
            raise _Stopped

    whole = bootstrap(tmp_path / "whole", 5, progress=False, recipe=made)
    with pytest.raises(_Stopped):
        bootstrap(tmp_path / "cut", 5, progress=stop, recipe=made)
    with pytest.raises(ValueError, match=r"interrupted in a run of 5 steps; got steps 6"):
        bootstrap(tmp_path / "cut", 6, progress=False, recipe=made)
    steps: list[int] = []
    cut = bootstrap(tmp_path / "cut", 5, progress=lambda step, *_: steps.append(step), recipe=made)
    assert steps == [3, 4, 5], "it began anew"
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert sorted(p.name for p in cut.iterdir()) == sorted(p.name for p in whole.iterdir())


def test_an_unknown_recipe_is_named_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"recipe must be one of 'tiny', 'small'; got 'smal' \(did you mean 'small'"):
        bootstrap(tmp_path, 1, recipe="smal")


def test_scripted_players_say_moves_as_the_env_wants_them() -> None:
    """The best reply of a judge is one of the legal ones, so that it can be read where the verdict is written."""
    rng = Random(0)
    verdicts = [
        one
        for _ in range(6)
        for dialogue in mixtures.play("ProofVerification-v0", rng)
        for one in dialogue.exchanges
        if one.legal
    ]
    assert verdicts and all(one.best in one.legal for one in verdicts if one.legal)


def test_the_model_is_the_mean_of_the_last_stages_and_sharper_even_if_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legos_train.bootstrap.recipe.TOKENIZER_DIALOGUES", 300)
    stages = tuple(TextStage(texts.stream, 2, peak=peak) for peak in (1e-3, 2e-3, 3e-3))
    one = RECIPES["tiny"]._replace(shape=SHAPE, batch_size=4, pool=0, stages=stages, part=2)

    def weights(name: str, made: recipe.Recipe, **options: Any) -> dict[str, np.ndarray]:
        folder = bootstrap(tmp_path / name, **({"progress": False} | options), recipe=made)
        assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}
        assert len(list(folder.glob("*.safetensors"))) == 1
        return {name: np.array(array) for name, array in mx.load(str(folder / "model.safetensors")).items()}

    def interrupt(step: int, *_: Any) -> None:
        if step == 5:
            raise KeyboardInterrupt

    ends = [weights(str(count), one._replace(stages=stages[:count])) for count in (2, 3)]
    made = one._replace(averaged=2, sharpness=1.5)
    with pytest.raises(KeyboardInterrupt):
        weights("both", made, progress=interrupt)
    got = weights("both", made)
    for name, array in got.items():
        mean = (ends[0][name] + ends[1][name]) / 2 * (1.5 if name == "model.norm.weight" else 1.0)
        np.testing.assert_allclose(array, mean, rtol=1e-6, atol=1e-8, err_msg=name)
        assert (ends[0][name] != ends[1][name]).any(), name
    assert weights("few", made, steps=1).keys() == got.keys()


def test_sharpness_multiplies_the_logits() -> None:
    model = pretrain.new_model(pretrain.model_config(600, SHAPE), 0)
    tokens = mx.array([[3, 14, 15, 92]])
    before = np.array(model(tokens))
    recipe._finish(model, [], 1.5)
    np.testing.assert_allclose(np.array(model(tokens)), 1.5 * before, rtol=1e-4, atol=1e-6)
