"""Mistakes in losses, gradients, the optimiser and LoRA."""

from __future__ import annotations

from tests.mutants.mutant import mutants

LOSS = "tests/train/test_loss.py"
CORRECTIONS = "tests/train/test_loss_corrections.py"
POLICY = "tests/train/test_policy.py"
TRAIN = "tests/train/test_train.py"

MUTANTS = [
    *mutants(
        "legos_train/loss/tokens.py",
        LOSS,
        (
            "is-wrong-sign",
            "return -fastmath.exp(new - old) * advantages",
            "return fastmath.exp(new - old) * advantages",
            "good actions become rarer",
        ),
        (
            "is-inverse-ratio",
            "return -fastmath.exp(new - old) * adv",
            "return -fastmath.exp(old - new) * adv",
            "the ratio is that of the sampler to the policy",
        ),
        (
            "cispo-gradient-of-ratio",
            "-mx.stop_gradient(ratio) * advantages * new",
            "-ratio * advantages * new",
            "the ratio is differentiated, too",
        ),
        (
            "cispo-clip-low",
            "1.0 - clip_low, 1.0 + clip_high)\n    return -mx",
            "1.0, 1.0 + clip_high)\n    return -mx",
            "clip_low does nothing",
        ),
        (
            "gspo-sum-for-mean",
            "(sums / mx.array(sizes).astype(new.dtype))[turn]",
            "sums[turn]",
            "the product of ratios for their geometric mean",
        ),
        (
            "mirror-step-twice",
            "* new / mirror_step",
            "* new",
            "a short step is a small one",
            "tests/train/test_expected.py::test_the_target_of_mirror_descent_by_hand",
        ),
        ("sft-wrong-sign", "    return -new\n", "    return new\n", "what was said becomes less likely", CORRECTIONS),
    ),
    *mutants(
        "legos_train/loss/penalties.py",
        LOSS,
        ("k3-reversed", "    gap = reference - new\n", "    gap = new - reference\n", "the KL of the other direction"),
        (
            "kl-reversed",
            "mx.sum(probs * (logprobs - reference), axis=-1)",
            "mx.sum(probs * (reference - logprobs), axis=-1)",
            "the policy is paid for moving away",
        ),
        (
            "entropy-wrong-sign",
            "return -mx.sum(probs * logprobs",
            "return mx.sum(probs * logprobs",
            "the entropy is negative",
        ),
        (
            "legality-pays-for-illegal",
            "return distribution(within)[0][:, 0] - within[:, 0]",
            "return within[:, 0] - distribution(within)[0][:, 0]",
            "mass moves to answers that are not actions",
            CORRECTIONS,
        ),
        (
            "legality-after-an-illegal-beginning",
            "np.array([bool(chosen) for chosen in sets] + [False])[legal]",
            "np.array([True for chosen in sets] + [False])[legal]",
            "tokens after an illegal one are pushed to whatever stands first in the vocabulary",
            CORRECTIONS,
        ),
    ),
    *mutants(
        "legos_train/loss/batch_loss.py",
        LOSS,
        (
            "kl-not-in-the-loss",
            "loss = loss + settings.kl * mx.sum(site_weights * kl)",
            "loss = loss + 0.0 * mx.sum(site_weights * kl)",
            "the exact KL is logged and not paid",
        ),
        (
            "k3-not-in-the-loss",
            "loss = loss + settings.kl * mx.sum(mx.array(weights) * per_token)",
            "loss = loss + 0.0 * mx.sum(mx.array(weights) * per_token)",
            "the k3 KL is logged and not paid",
        ),
        (
            "entropy-punished",
            "        loss = loss - settings.entropy * mx.sum(site_weights * spread)",
            "        loss = loss + settings.entropy * mx.sum(site_weights * spread)",
            "undecided policies are punished",
        ),
        (
            "start-gap-reversed",
            "return start.astype(np.float64) - batch.old_logprobs",
            "return batch.old_logprobs - start.astype(np.float64)",
            "stale samples are weighed the wrong way",
            CORRECTIONS,
        ),
        (
            "mask-ratio-ignored",
            "*settings.mask_ratio).astype(np.float32)",
            "0.0, np.inf).astype(np.float32)",
            "loss.mask_ratio leaves nothing out",
            CORRECTIONS,
        ),
    ),
    *mutants(
        "legos_train/loss/loss_metrics.py",
        LOSS,
        (
            "mismatch-mean-for-max",
            "np.abs(gap[current]).max()",
            "np.abs(gap[current]).mean()",
            "a single wrong token hides",
        ),
        ("staleness-min-for-max", "float(ages.max())", "float(ages.min())", "one fresh token hides all stale ones"),
        ("held-low-only", "((advantages > 0) & above) |", "((advantages > 0) & below) |", "clip_fraction is of others"),
    ),
    *mutants(
        "legos_train/model/gradients.py",
        "tests/train/test_policy_gradients.py::test_clip_grads",
        ("clip-never", "norm <= max_norm:", "True:", "optim.grad_clip does nothing"),
        (
            "clip-to-norm-squared",
            "grad * (max_norm / norm)",
            "grad * (max_norm / norm**2)",
            "large gradients are clipped too far",
        ),
        (
            "magnet-base-not-read",
            "base=settings.magnet_base)",
            "base=0.0)",
            "loss.magnet_base does nothing",
            "tests/train/test_policy.py::test_a_reference_that_moved_keeps_a_share_of_the_base",
        ),
        (
            "parts-not-added",
            "grads = {name: grads[name] + value for name, value in flat.items()} if grads else flat",
            "grads = flat",
            "only the last part of a batch is learned from",
            f"{POLICY}::test_numbers_do_not_depend_on_the_parts",
        ),
    ),
    *mutants(
        "legos_train/model/learner.py",
        TRAIN,
        (
            "zero-gradient-let-through",
            'if open_ and seen["live_share"] > 0:',
            "if False:",
            "weights that the loss does not reach are not an error",
            f"{TRAIN}::test_weights_that_the_loss_does_not_reach_are_an_error",
        ),
        (
            "not-finite-is-trained-on",
            'if not seen["finite"]:',
            "if False:",
            "NaN reaches the weights",
            f"{TRAIN}::test_steps_that_are_not_finite_are_skipped_counted_and_then_stop_the_run",
        ),
        (
            "skips-never-end",
            "if self.skipped > self.config.optim.max_skipped:",
            "if False:",
            "a run of nothing but skipped updates goes on",
            f"{TRAIN}::test_steps_that_are_not_finite_are_skipped_counted_and_then_stop_the_run",
        ),
        (
            "magnet-never-moves",
            "if loss.magnet_every and step % loss.magnet_every == 0:",
            "if False:",
            "loss.magnet_every does nothing",
            "tests/train/test_whole_state.py::test_a_run_with_everything_on_resumes_bit_for_bit",
        ),
    ),
    *mutants(
        "legos_train/model/policy.py",
        "tests/train/test_policy.py::test_a_reference_that_moved_keeps_a_share_of_the_base",
        (
            "magnet-base-added-whole",
            "logprobs + math.log1p(-base)",
            "logprobs",
            "the reference with a share of the base is no distribution",
        ),
    ),
    *mutants(
        "legos_train/model/mlx_backend.py",
        "tests/train/test_wiring.py::test_a_learning_rate_without_warmup_and_decay_stays",
        (
            "optimiser-keeps-its-rate",
            "        self.optimizer.learning_rate = lr\n",
            "",
            "the schedule does not reach the optimiser",
            "tests/train/test_wiring.py::test_the_learning_rate_is_warmed_up_and_decays",
        ),
        (
            "grad-clip-constant",
            "self.config.optim.grad_clip)",
            "1e9)",
            "optim.grad_clip does nothing",
            "tests/train/test_wiring.py::test_settings_reach_the_optimiser",
        ),
        (
            "weight-decay-lost",
            "weight_decay=o.weight_decay",
            "weight_decay=0.0",
            "optim.weight_decay does nothing",
            "tests/train/test_wiring.py::test_settings_reach_the_optimiser",
        ),
        (
            "betas-swapped",
            "betas=[o.beta1, o.beta2]",
            "betas=[o.beta2, o.beta1]",
            "Adam's moments decay at each other's rates",
            "tests/train/test_wiring.py::test_settings_reach_the_optimiser",
        ),
        (
            "eps-lost",
            "            eps=o.eps,\n",
            "",
            "optim.eps does nothing",
            "tests/train/test_wiring.py::test_settings_reach_the_optimiser",
        ),
        (
            "moments-not-restored",
            "self.optimizer.state = _nested(optimizer)",
            "pass",
            "a resumed run has lost Adam's moments",
            "tests/train/test_whole_state.py::test_a_run_with_everything_on_resumes_bit_for_bit",
        ),
        (
            "average-not-restored",
            'self._average.weights, self._average.total = tensors.from_bytes(groups["average"]), numbers["average_weight"]',
            "pass",
            "a resumed run averages anew",
            "tests/train/test_whole_state.py::test_a_run_with_everything_on_resumes_bit_for_bit",
        ),
        (
            "moments-survive-other-weights",
            "            self.policy.anchor(snapshot.content)\n        self._begin_anew()\n",
            "            self.policy.anchor(snapshot.content)\n",
            "after a rollback Adam goes on with the moments of the weights given up, and so does the average",
            "tests/train/test_whole_state.py::test_a_rollback_brings_back_the_best_weights_and_forgets_all_others",
        ),
        (
            "magnet-survives-other-weights",
            "            self.policy.anchor(snapshot.content)\n        self._begin_anew()\n",
            "            pass\n        self._begin_anew()\n",
            "after a rollback the KL pulls towards the policy that collapsed",
            "tests/train/test_whole_state.py::test_a_rollback_brings_back_the_best_weights_and_forgets_all_others",
        ),
    ),
    *mutants(
        "legos_train/model/lora.py",
        POLICY,
        (
            "lora-without-scale",
            "low = self.scale * (x @ self.lora_a)",
            "low = x @ self.lora_a",
            "the trainer computes with another scale than the engine",
            "tests/train/test_policy.py::test_saved_adapters_load_in_mlx_lm",
        ),
        (
            "lora-b-not-zero",
            "self.lora_b = mx.zeros(",
            "self.lora_b = mx.ones(",
            "a fresh policy is not the base",
            "tests/train/test_policy.py::test_a_fresh_policy_is_the_base",
        ),
    ),
    *mutants(
        "legos_train/model/last_feed_forward.py",
        "tests/train/test_policy.py::test_every_path_gives_the_models_own_logits",
        (
            "last-part-elsewhere",
            "out.at[self._rows, self._columns].add(y)",
            "out.at[self._rows, self._columns - 1].add(y)",
            "the last feed-forward part is added one position too early",
        ),
    ),
    *mutants(
        "legos_train/model/site_logits.py",
        "tests/train/test_policy.py::test_a_feed_forward_part_that_mixes_positions_is_computed_whole",
        (
            "trimmed-whatever-it-computes",
            "if off <= 1.0:",
            "if off <= 1.0 or self.trims:",
            "a model whose last part mixes positions is trained on other logits",
        ),
    ),
]
