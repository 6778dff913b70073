"""Mistakes in what a learner shares between rows, computes again, and computes a part at a time."""

from __future__ import annotations

from tests.mutants.mutant import mutants

MUTANTS = [
    *mutants(
        "inference/recurrence/decay.py",
        "tests/inference/test_recurrence.py::test_nearly_closed_gates_make_no_subnormal_numbers",
        (
            "subnormal-decays",
            "mx.where(mx.abs(x) < fastmath.NEGLIGIBLE, 0.0, x)",
            "x",
            "a CPU trains hybrids with closed gates half as fast",
        ),
    ),
    *mutants(
        "inference/recurrence/decay.py",
        "tests/inference/test_recurrence.py::test_a_closed_gate_lets_nothing_earlier_through",
        ("closed-gates-leak", "_CLOSED = 1e-12", "_CLOSED = 1e-6", "a closed gate keeps a millionth of the state"),
    ),
    *mutants(
        "legos_train/loss/batch/splitting.py",
        "tests/train/test_batch.py::test_a_long_shared_beginning_is_not_counted",
        (
            "beginning-counted",
            "(len(chunks[-1]) + 1) * width > max_tokens",
            "prefix + (len(chunks[-1]) + 1) * width > max_tokens",
            "rows with a long prompt in common are parts of their own, and each computes the prompt",
        ),
    ),
    *mutants(
        "legos_train/rollout/rollouts.py",
        "tests/train/test_rollout.py::test_a_conversation_is_not_read_again_at_every_turn",
        (
            "conversations-read-again",
            "session=session, park=goes_on",
            "session=session",
            "every turn of a conversation computes all of it again",
        ),
    ),
    *mutants(
        "legos_train/loss/batch/arrays.py",
        "tests/train/test_batch.py",
        (
            "digest-goes-on-in-the-next-row",
            "last, read, digest = row_, 0, blake2b(digest_size=16)",
            "last, read = row_, 0",
            "equal contexts have different keys in different batches",
        ),
    ),
    *mutants(
        "legos_train/run/extrapolation.py",
        "tests/train/test_preflight.py::test_what_rows_begin_with_comes_on_top_of_the_largest_part",
        (
            "ceiling-without-beginning",
            "(largest + highest.shared) / max",
            "largest / max",
            "a dry run promises less memory than a step with long prompts takes",
        ),
    ),
    *mutants(
        "legos_train/run/preflight/memory.py",
        "tests/train/test_sizes.py::test_what_a_backward_pass_keeps_is_measured",
        (
            "rule-not-weighed",
            "RULE, RULE_INPUTS = 3.0,",
            "RULE, RULE_INPUTS = 1.0,",
            "the estimate of a hybrid's memory is half of what it takes",
        ),
        ("kept-too-little", "KEPT, WORKED = 2.5, 6.0", "KEPT, WORKED = 1.0, 3.0", "estimates are too low"),
    ),
    *mutants(
        "inference/forward/host_delta.py",
        "tests/inference/test_recurrence.py::test_nearly_closed_gates_make_no_subnormal_numbers",
        (
            "subnormal-corrections",
            "np.where(np.abs(corner) < NEGLIGIBLE, np.float32(0.0), -corner)",
            "-corner",
            "a CPU reads prompts for hybrids with closed gates half as fast",
        ),
    ),
    *mutants(
        "inference/recurrence/segments.py",
        "tests/inference/test_recurrence.py::test_memory_is_that_of_a_few_chunks",
        (
            "nothing-computed-again",
            "mx.checkpoint(chunks) if recompute else chunks",
            "chunks",
            "gates per channel take three times the memory",
        ),
    ),
    *mutants(
        "legos_train/model/site_logits.py",
        "tests/inference/test_zoo_training.py::test_two_positions_follow_a_shared_beginning",
        (
            "one-position-after-a-state",
            "prefix if self._plain else min(prefix, width - 2)",
            "prefix",
            "on Metal the last position of a hybrid has no gradient",
        ),
        (
            "nothing-shared-after-a-state",
            "prefix if self._plain else min(prefix, width - 2)",
            "prefix if self._plain else 0",
            "hybrids compute every prompt once per row",
        ),
    ),
    *mutants(
        "legos_train/model/shared_prefix.py",
        "tests/inference/test_zoo_training.py::test_a_shared_beginning_is_computed_once",
        (
            "state-of-the-beginning-forgotten",
            "own.cache = [broadcast(array) for array in cache.cache]",
            "own.cache = [None for array in cache.cache]",
            "a hybrid's answers are trained without their prompt's state",
        ),
        (
            "window-forgets-where-it-is",
            "    own = copy.copy(cache)\n",
            "    own = copy.copy(cache)\n    own.offset = 0\n",
            "after a shared beginning sliding windows rotate from position 0",
        ),
    ),
    *mutants(
        "legos_train/model/recomputed_layers.py",
        "tests/inference/test_zoo_training.py::test_a_shared_beginning_is_computed_once",
        (
            "recomputed-caches-cut-the-gradient",
            "    if isinstance(value, mlx_lm_cache._BaseCache | PrefixKV):\n",
            "    if isinstance(value, mlx_lm_cache._BaseCache | PrefixKV) and not isinstance(value, PrefixKV):\n",
            "with checkpoint_layers no gradient reaches a shared prompt through keys and values",
        ),
    ),
    *mutants(
        "legos_train/model/recomputed_layers.py",
        "tests/train/test_policy_gradients.py::test_recomputing_keeps_less",
        (
            "recomputed-without-forgetting",
            "outputs = mx.checkpoint(run)(*inputs)",
            "outputs = run(*inputs)",
            "checkpoint_layers saves no memory",
        ),
    ),
    *mutants(
        "legos_train/model/recomputed_layers.py",
        "tests/train/test_policy_gradients.py::test_layers_that_share_more_than_their_arguments_are_not_recomputed",
        (
            "recomputed-whatever-it-gives",
            'why = "" if off <= tolerance * norm else',
            'why = "" if off >= 0 else',
            "layers that share arrays in secret are trained on a wrong gradient",
        ),
    ),
    *mutants(
        "legos_train/loss/batch_loss.py",
        "tests/train/test_site_states.py::test_some_sites_at_a_time",
        (
            "tokens-in-the-order-of-their-sites",
            "new = new[mx.array(np.argsort(np.concatenate([tokens for tokens, _ in chunks])))]",
            "new = new + 0",
            "with a large vocabulary tokens are trained with the log-probabilities of others",
        ),
    ),
    *mutants(
        "legos_train/loss/site_states.py",
        "tests/train/test_site_states.py::test_a_large_vocabulary_takes_less_memory",
        (
            "all-logits-at-once",
            "return mx.depends(array, others) if others else array",
            "return array",
            "logits computed some at a time all exist at once",
        ),
    ),
    *mutants(
        "legos_train/model/lora.py",
        "tests/train/test_policy.py::test_only_some_layers_get_an_adapter",
        (
            "first-blocks-instead-of-last",
            "in model.layers[-settings.layers :]",
            "in model.layers[: settings.layers or None]",
            "lora.layers trains the first blocks, and mlx-lm loads them into the last",
        ),
    ),
    *mutants(
        "legos_train/model/policy.py",
        "tests/train/test_policy.py::test_only_some_layers_get_an_adapter",
        (
            "saved-as-if-all-blocks",
            '"num_layers": self.lora.layers or len(self.model.layers)',
            '"num_layers": len(self.model.layers)',
            "an adapter of the last blocks claims to be of all",
        ),
    ),
    *mutants(
        "legos_train/model/site_logits.py",
        "tests/train/test_policy.py::test_beyond_a_window_rows_share_only_what_the_model_masks",
        (
            "windows-are-believed",
            "if (off := _distance(shared, whole[:, start:])) <= 1.0:",
            "if (off := _distance(shared, whole[:, start:])) >= 0:",
            "a model that masks one position more than it keeps is trained on other logits",
        ),
    ),
]
