"""Mistakes in credit and in batches: which turn gets which advantage, and which token."""

from __future__ import annotations

from tests.mutants.mutant import mutants

CREDIT = "tests/train/test_credit.py"
METHODS = "tests/train/test_credit_methods.py"
BATCH = "tests/train/test_batch.py"
POLICY = "tests/train/test_policy.py"

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
            "credit.gamma does nothing",
            METHODS,
        ),
        (
            "return-to-go-backwards",
            "for turn in reversed(trajectory.turns):",
            "for turn in trajectory.turns:",
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
            "spread-without-root",
            "for value in values]) ** 0.5",
            "for value in values])",
            "the variance is taken for the deviation",
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
        (
            "rae-never-folds",
            "        if fold:\n            self.baselines.fold(seen)",
            "        pass",
            "the baseline stays at 0",
        ),
    ),
    *mutants(
        "legos_train/credit/group.py",
        CREDIT,
        ("grpo-without-mean", "return total - mean(every)", "return total", "no peers are subtracted"),
        (
            "grpo-std-multiplied",
            "(total - centre) / spread",
            "(total - centre) * spread",
            "large spreads make larger advantages",
            METHODS,
        ),
        (
            "grpo-mixes-roles",
            "role if self.per_role else None",
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
        (
            "maxrl-without-quotient",
            "(total - centre) / centre if",
            "(total - centre) if",
            "rare successes weigh no more than with grpo",
        ),
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
        "legos_train/loss/batch/packing.py",
        "tests/train/test_batch_options.py",
        (
            "zero-advantages-kept",
            "if reason is None and skip_zero and value == 0.0:",
            "if False:",
            "turns without an advantage cost what they cost",
        ),
        (
            "zero-advantages-leave-nothing",
            "    skip_zero = skip_zero and any(",
            "    skip_zero = skip_zero or any(",
            "turns without an advantage leave every batch, or a step of them is empty",
        ),
    ),
    *mutants(
        "legos_train/loss/batch/packing.py",
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
        "legos_train/loss/batch/arrays.py",
        BATCH,
        (
            "sequence-mean-is-token-mean",
            "(1.0 / (self.sequence_length * float(self.total_sequences or 1))).astype(np.float32)",
            "np.float32(1.0 / (self.total_tokens or 1))",
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
            "tests/train/test_policy.py::test_numbers_do_not_depend_on_the_parts",
        ),
    ),
]
