"""Mistakes in what is learned: credit, batches, losses, gradients, weights."""

from __future__ import annotations

from tests.mutants.mutant import mutants

CREDIT = "tests/train/test_credit.py"
METHODS = "tests/train/test_credit_methods.py"
BATCH = "tests/train/test_batch.py"
LOSS = "tests/train/test_loss.py"
CORRECTIONS = "tests/train/test_loss_corrections.py"
POLICY = "tests/train/test_policy.py"
TRAIN = "tests/train/test_train.py"

MUTANTS = [
    *mutants(
        "legos_train/credit/assigner.py",
        CREDIT,
        (
            "discount-forwards",
            "np.arange(turns - 1, -1, -1, dtype=np.float64)",
            "np.arange(turns, dtype=np.float64)",
            "early turns weigh more than late ones",
        ),
        (
            "return-to-go-without-gamma",
            "reward + gamma * following",
            "reward + following",
            "gamma does nothing",
            METHODS,
        ),
        (
            "return-to-go-backwards",
            "range(len(out) - 1, -1, -1)",
            "range(len(out))",
            "what came before is credited instead of what comes after",
            METHODS,
        ),
        (
            "untrained-get-credit",
            "if not trajectory.trainable or not",
            "if not",
            "seats that are not trained are scored",
        ),
        (
            "spread-of-a-sample",
            "for value in values]) ** 0.5",
            "for value in values])",
            "variance for deviation",
            METHODS,
        ),
    ),
    *mutants(
        "legos_train/credit/rae.py",
        CREDIT,
        (
            "rae-without-baseline",
            "centred = total - self.baselines(episode.env_id, trajectory.role)",
            "centred = total",
            "nothing is subtracted",
        ),
        ("rae-adds-baseline", "centred = total - self", "centred = total + self", "the baseline has the wrong sign"),
        (
            "rae-without-correction",
            "ema / (1.0 - self.decay**count) if self.bias_correction else ema",
            "ema",
            "early baselines are drawn towards 0",
        ),
        (
            "rae-one-step-a-batch",
            "keep = self.decay ** len(batch)",
            "keep = self.decay",
            "a batch counts like one return",
        ),
        ("rae-count-lost", "self._count.get(key, 0) + len(batch)", "len(batch)", "the correction begins anew"),
        ("rae-never-folds", "        if fold:\n            self.baselines.fold(seen)", "        pass", "it stays at 0"),
    ),
    *mutants(
        "legos_train/credit/group.py",
        CREDIT,
        ("grpo-without-mean", "return total - mean(every)", "return total", "no peers are subtracted"),
        ("grpo-std-multiplied", "(total - centre) / spread", "(total - centre) * spread", "std multiplies", METHODS),
        (
            "grpo-mixes-roles",
            "trajectory.role if self.per_role else None",
            "None",
            "roles of a group are compared with one another",
        ),
        (
            "siblings-of-all-episodes",
            'return ("episode", index, depth, table, trajectory.role)',
            'return ("episode", depth, table, trajectory.role)',
            "siblings are looked for in other episodes",
        ),
    ),
    *mutants(
        "legos_train/credit/rloo.py",
        METHODS,
        ("rloo-keeps-itself", "others = len(every) - len(own)", "others = len(every)", "the mean is over too many"),
    ),
    *mutants(
        "legos_train/credit/maxrl.py",
        METHODS,
        ("maxrl-without-quotient", "(reward - means[key]) / means[key] if", "(reward - means[key]) if", "it is GRPO"),
    ),
    *mutants(
        "legos_train/credit/gigpo.py",
        METHODS,
        (
            "gigpo-replaces",
            "advantages[agent][number] += self.step_weight * step",
            "advantages[agent][number] = self.step_weight * step",
            "the episode's part is lost",
        ),
    ),
    *mutants(
        "legos_train/credit/same_prompt.py",
        CREDIT,
        (
            "same-prompt-counts-itself",
            "(total - math.fsum(own) + self.pseudo_count * prior)",
            "(total + self.pseudo_count * prior)",
            "an answer is compared with itself",
        ),
    ),
    *mutants(
        "legos_train/credit/role_norm.py",
        METHODS,
        (
            "role-norm-mixes-envs",
            "centre, spread = scales[episode.env_id, trajectory.role]",
            "centre, spread = next(iter(scales.values()))",
            "all roles are normalised by the first",
        ),
    ),
    *mutants(
        "legos_train/batch/packing.py",
        BATCH,
        (
            "untrained-packed",
            "            if not trajectory.trainable:\n",
            "            if False:\n",
            "guests are learned from",
        ),
        (
            "stale-limit-off-by-one",
            "version - turn.policy_version > staleness",
            "version - turn.policy_version >= staleness",
            "turns are dropped a step too early",
        ),
        (
            "long-turns-kept",
            "if limit is not None and size > limit:",
            "if False:",
            "turns beyond the context are packed",
        ),
        (
            "sites-one-late",
            "per_token(len(new.prompt) - 1 for new in sampled) + within",
            "per_token(len(new.prompt) for new in sampled) + within",
            "every token is predicted from itself",
        ),
        (
            "rows-joined-without-looking",
            "return self.prompt[:size] == earlier.prompt and self.prompt[size:end] == earlier.action",
            "return self.prompt[:size] == earlier.prompt",
            "a turn is put behind an action that it does not continue",
        ),
    ),
    *mutants(
        "legos_train/batch/arrays.py",
        BATCH,
        (
            "sequence-mean-is-token-mean",
            "return (1.0 / (self.sequence_length * float(self.total_sequences or 1))).astype(np.float32)",
            "return np.full(len(self), 1.0 / (self.total_tokens or 1), dtype=np.float32)",
            "long turns weigh more",
        ),
        (
            "constant-ignored",
            "1.0 / (constant * (self.total_sequences or 1))",
            "1.0 / (self.total_sequences or 1)",
            "loss.constant does nothing",
        ),
        (
            "parts-with-own-totals",
            "            total_tokens=self.total_tokens,\n            total_sequences=self.total_sequences,\n",
            "",
            "a batch in parts has a larger gradient than in one",
            POLICY,
        ),
    ),
    *mutants(
        "legos_train/loss/tokens.py",
        LOSS,
        (
            "is-wrong-sign",
            "return -fastmath.exp(new - old) * advantages",
            "return fastmath.exp(new - old) * advantages",
            "good actions become rarer",
        ),
        ("is-inverse-ratio", "return -fastmath.exp(new - old) * adv", "return -fastmath.exp(old - new) * adv", "1 / r"),
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
            "l",
        ),
        (
            "gspo-sum-for-mean",
            "(sums / mx.array(sizes).astype(new.dtype))[turn]",
            "sums[turn]",
            "the product of ratios for their geometric mean",
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
        ("entropy-wrong-sign", "return -mx.sum(probs * logprobs", "return mx.sum(probs * logprobs", "it is negative"),
    ),
    *mutants(
        "legos_train/loss/batch_loss.py",
        LOSS,
        (
            "kl-not-in-the-loss",
            "loss = loss + settings.kl * mx.sum(site_weights * per_site)",
            "loss = loss + 0.0 * mx.sum(site_weights * per_site)",
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
            "        loss = loss - settings.entropy * mx.sum(site_weights * per_site)",
            "        loss = loss + settings.entropy * mx.sum(site_weights * per_site)",
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
        f"{POLICY}::test_clip_grads",
        ("clip-never", "norm <= max_norm:", "True:", "optim.grad_clip does nothing"),
        ("clip-to-norm-squared", "grad * (max_norm / norm)", "grad * (max_norm / norm**2)", "clipped too far"),
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
            "weights that the loss does not reach are no error",
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
            "if every and step % every == 0:",
            "if False:",
            "loss.magnet_every does nothing",
            "tests/train/test_backend.py tests/train/test_whole_state.py",
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
            "no decay",
            "tests/train/test_wiring.py::test_settings_reach_the_optimiser",
        ),
        (
            "betas-swapped",
            "betas=[o.beta1, o.beta2]",
            "betas=[o.beta2, o.beta1]",
            "swapped",
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
            'self.optimizer.state = _nested(groups["optimizer"])',
            "pass",
            "a resumed run has lost Adam's moments",
            "tests/train/test_whole_state.py",
        ),
        (
            "average-not-restored",
            'self._average.weights, self._average.total = dict(groups["average"]), state.numbers["average_weight"]',
            "pass",
            "a resumed run averages anew",
            "tests/train/test_whole_state.py",
        ),
        (
            "moments-survive-other-weights",
            "        self.policy.load(snapshot.content)\n        self._new_optimizer()\n",
            "        self.policy.load(snapshot.content)\n",
            "after a rollback Adam goes on with the moments of the weights given up",
            "tests/train/test_backend.py tests/train/test_whole_state.py",
        ),
    ),
    *mutants(
        "legos_train/model/lora.py",
        POLICY,
        (
            "lora-without-scale",
            "((self.scale * (x @ self.lora_a)) @ self.lora_b)",
            "((x @ self.lora_a) @ self.lora_b)",
            "the trainer computes with another scale than the engine",
        ),
        ("lora-b-not-zero", "self.lora_b = mx.zeros(", "self.lora_b = mx.ones(", "a fresh policy is not the base"),
    ),
]
