"""Mistakes in what serves tokens: sampling, scheduling, adapters, caches."""

from __future__ import annotations

from tests.mutants.mutant import mutants

SAMPLING = "tests/inference/test_sampling.py"
ENGINE = "tests/inference/test_engine.py"
OPTIONS = "tests/inference/test_request_options.py"
SLOTS = "tests/inference/test_adapter_slots.py"
SCHEDULER = "tests/inference/test_scheduler.py"
SPECULATION = "tests/inference/test_speculation.py"
AHEAD = "tests/inference/test_lookahead.py"
RESUME = "tests/train/test_whole_state.py::test_a_run_with_everything_on_resumes_bit_for_bit"

MUTANTS = [
    *mutants(
        "inference/engine/sampling.py",
        SAMPLING,
        (
            "temperature-ignored",
            "if any(each[i].temperature != 1.0 for i in mixed):",
            "if False:",
            "every request is drawn at 1",
        ),
        (
            "temperature-multiplied",
            "scaled = scaled / np.array",
            "scaled = scaled * np.array",
            "warm requests are drawn cold",
        ),
        ("greedy-takes-the-least", "greedy).argmax(axis=-1)", "greedy).argmin(axis=-1)", "the least likely token"),
        (
            "position-not-hashed",
            "(positions + np.uint64(1)) * _GOLDEN",
            "np.uint64(1) * _GOLDEN",
            "all tokens of a request share one draw",
        ),
        (
            "nucleus-one-short",
            "return min(int(reached) + 1, len(descending))",
            "return min(int(reached) or 1, len(descending))",
            "top_p drops the token that reaches it",
        ),
        (
            "min-p-dropped",
            "np.flatnonzero(weights >= params.min_p)",
            "np.flatnonzero(weights >= 0)",
            "min_p does nothing",
        ),
        (
            "top-k-one-more",
            "_most_likely(weights, params.top_k)",
            "_most_likely(weights, params.top_k + 1)",
            "top_k keeps one token too many",
        ),
        (
            "bias-on-all",
            "row[token] += np.float32(value)",
            "row += np.float32(value)",
            "logit_bias moves nothing",
            "tests/inference/test_request_options.py::test_bias_moves_what_is_drawn_and_not_what_is_reported",
        ),
        (
            "logprob-without-total",
            "np.log(weights[rows, picks].astype(np.float64)) - np.log(totals)[rows]",
            "np.log(weights[rows, picks].astype(np.float64))",
            "sampled log-probabilities are not normalised",
        ),
    ),
    *mutants(
        "inference/engine/scheduler.py",
        f"{SCHEDULER} {ENGINE}",
        (
            "rows-share-across-adapters",
            "(adapter, prompt) if self.share else (adapter, prompt, request_id)",
            "(None, prompt) if self.share else (adapter, prompt, request_id)",
            "a prompt is computed under another's adapter",
            "tests/inference/test_scheduler.py::test_equal_prompts_share_one_row_and_other_policies_do_not",
        ),
        (
            "kept-tokens-without-version",
            "row.switches = (*row.switches, (len(row.tokens), version))",
            "pass",
            "tokens say the version that came later",
            "tests/inference/test_request_options.py::test_keep_moves_running_requests_and_tags_their_tokens",
        ),
        (
            "prompt-in-the-air-transferred-as-it-is",
            "                        row.restart()\n                        row.cached = 0\n",
            "                        pass\n",
            "keys and values of the old version are parked as the new one's",
            f"{AHEAD}::test_a_prompt_in_the_air_starts_over_under_the_version_that_takes_over",
        ),
        (
            "transfer-forgets-the-waiting",
            "            if waiting.adapter is old:\n                waiting.adapter = new\n",
            "            pass\n",
            "waiting requests run on old weights",
            "tests/inference/test_request_options.py::test_keep_moves_running_requests_and_tags_their_tokens",
        ),
        (
            "blocked-admitted",
            'if getattr(waiting.adapter, "blocked", False):',
            "if False:",
            "mode wait starts new requests before the old ones have finished",
            "tests/inference/test_request_options.py::test_wait_lets_the_old_ones_finish_first",
        ),
    ),
    *mutants(
        "inference/engine/rows.py",
        f"{SCHEDULER} {ENGINE}",
        (
            "stop-tokens-ignored",
            "token in params.stop_ids\n",
            "False\n",
            "completions go on to their limit",
            "tests/inference/test_engine.py::test_stops_limits_and_the_context",
        ),
        (
            "one-token-more",
            "if not stopped and length < params.max_tokens:",
            "if not stopped and length <= params.max_tokens:",
            "max_tokens is exceeded",
            "tests/inference/test_engine.py::test_stops_limits_and_the_context",
        ),
        (
            "logprob-of-the-tempered",
            "float(outcome.logits[token]) - outcome.log_normaliser",
            "float(outcome.logits[token])",
            "log-probabilities are logits",
            "tests/inference/test_engine.py::test_logprobs_equal_a_full_forward_pass",
        ),
    ),
    *mutants(
        "inference/engine/flight.py",
        AHEAD,
        (
            "guesses-are-believed",
            " and tuple(row.pending) == (fed,)",
            "",
            "a token that the host did not draw is in the keys",
            f"{AHEAD}::test_wrong_guesses_cost_time_and_nothing_else",
        ),
        (
            "states-not-put-back",
            "            self._kv.rewind(self._mark, [member.slot for member in members])\n",
            "            pass\n",
            "a discarded token stays in the state",
            f"{AHEAD}::test_wrong_guesses_cost_time_and_nothing_else",
        ),
        (
            "old-version-in-the-air",
            "(row not in running or row.adapter is not member.adapter)",
            "row not in running",
            "a token of version 1 is labelled version 2",
            f"{AHEAD}::test_a_swap_in_mid_sequence_is_seen_by_the_same_tokens",
        ),
        (
            "guess-with-the-last-number",
            "(0,), place, len(row.tokens) + 1)",
            "(0,), place, len(row.tokens))",
            "every guess is drawn with the number of the token before",
            f"{AHEAD}::test_guesses_are_right",
        ),
    ),
    *mutants(
        "inference/engine/stepper.py",
        SPECULATION,
        (
            "drafts-are-believed",
            " and r.tokens[-1] == r.draft[depth]",
            "",
            "what goes on from a token that was not drawn counts",
            f"{SPECULATION}::test_the_same_tokens_whatever_is_drafted",
        ),
        (
            "logits-one-place-early",
            "deeper |= {row: own[1:] for",
            "deeper |= {row: own[:-1] for",
            "a place is drawn from the logits of the one before",
            f"{SPECULATION}::test_the_distribution_is_that_of_the_model",
        ),
    ),
    *mutants(
        "inference/engine/drafts.py",
        SPECULATION,
        (
            "drafts-never-forgotten",
            "while len(self._next) > self._most:",
            "while False:",
            "what was said is kept for ever",
            f"{SPECULATION}::test_drafts_are_those_of_the_same_tokens_then_of_the_last_ones_then_of_the_conversation",
        ),
        (
            "drafts-beyond-the-room",
            " and row.reach - row.pos > longest",
            "",
            "entries are fed that the row's slot has no room for",
            f"{SPECULATION}::test_rows_get_drafts_of_one_length_where_there_is_room",
        ),
    ),
    *mutants(
        "inference/forward/kv.py",
        AHEAD,
        (
            "states-only-said-to-be-back",
            "            part.put_back(cached, slots)\n",
            "            pass\n",
            "a discarded token stays in the state, and nothing says so",
            f"{AHEAD}::test_wrong_guesses_cost_time_and_nothing_else",
        ),
    ),
    *mutants(
        "inference/engine/stepper.py",
        AHEAD,
        (
            "waits-before-it-submits",
            "            if flight is not None and self._goes_on():\n                following = self._launch(flight)\n",
            "",
            "nothing is hidden",
            f"{AHEAD}::test_the_host_waits_once_a_step_and_for_the_pass_before",
        ),
    ),
    *mutants(
        "inference/engine/prefix_cache.py",
        f"{SLOTS} {OPTIONS}",
        (
            "whole-prompt-from-cache",
            "common_prefix(ids, tokens), len(ids) - 1)",
            "common_prefix(ids, tokens), len(ids))",
            "no token is left to be computed",
            "tests/inference/test_state_slots.py::test_entries_used_whole_do_not_replace_each_other",
        ),
        (
            "budget-not-kept",
            "while self.nbytes > self.max_bytes and self._entries:",
            "while False:",
            "the cache grows for ever",
            "tests/inference/test_request_options.py::test_the_budget_drops_the_least_recently_used",
        ),
    ),
    *mutants(
        "inference/engine/engine.py",
        OPTIONS,
        (
            "keep-keeps-the-old",
            "                self._scheduler.transfer(old, new, old.version)\n",
            "",
            "in_flight = keep pins",
            "tests/inference/test_request_options.py::test_keep_moves_running_requests_and_tags_their_tokens",
        ),
        (
            "abort-does-not",
            "                self._stepper.aborts.update(affected)\n            elif",
            "                pass\n            elif",
            "mode abort lets old requests go on",
            "tests/inference/test_request_options.py::test_abort_ends_the_old_ones",
        ),
        (
            "wait-does-not",
            "            new.after = tuple(earlier)\n",
            "            pass\n",
            "the new version does not wait",
            "tests/inference/test_request_options.py::test_wait_lets_the_old_ones_finish_first",
        ),
        (
            "caches-not-dropped",
            "        self._runner.drop_caches()\n        self._bank.drop_caches()\n",
            "        self._bank.drop_caches()\n",
            "a resumed run starts from another state",
            RESUME,
        ),
    ),
    *mutants(
        "inference/engine/publisher.py",
        OPTIONS,
        (
            "late-repeat-accepted",
            "            self.ledger.check(name, version, prepared.digest)\n",
            "            pass\n",
            "a late repeat of an old publish wins over the new one",
            "tests/inference/test_adapter_slots.py::test_versions_only_go_up_for_those_who_may_repeat_themselves",
        ),
        (
            "version-always-zero",
            "new = self._bank.install(name, prepared, version=version)",
            "new = self._bank.install(name, prepared, version=0)",
            "samples do not say who made them",
            "tests/train/test_wiring.py::test_every_step_plays_with_the_weights_of_the_step_before[ema]",
        ),
    ),
    *mutants(
        "inference/adapters/bank.py",
        OPTIONS,
        (
            "waits-for-one-version-only",
            "return sorted(used, key=lambda one: one.version)",
            "return sorted(used, key=lambda one: one.version)[-1:]",
            "requests pinned to the version before the last run beside those that had to wait for them",
        ),
    ),
    *mutants(
        "inference/adapters/validation.py",
        SLOTS,
        (
            "scale-not-folded",
            '_served(weights[f"{p}.lora_b"], scale)',
            '_served(weights[f"{p}.lora_b"], 1.0)',
            "the engine serves another scale than was trained",
            "tests/inference/test_adapter_slots.py::test_an_adapter_gives_the_logprobs_of_mlx_lms_lora_layers",
        ),
        (
            "scale-on-both",
            '_served(weights[f"{p}.lora_a"], 1.0)',
            '_served(weights[f"{p}.lora_a"], scale)',
            "the scale counts twice",
            "tests/inference/test_adapter_slots.py::test_an_adapter_gives_the_logprobs_of_mlx_lms_lora_layers",
        ),
        (
            "nan-published",
            "        if not _finite(weights[name]):\n",
            "        if False:\n",
            "an adapter with NaN is served",
            "tests/inference/test_adapter_slots.py::test_bad_weights_are_refused_and_the_old_version_serves",
        ),
        (
            "digest-without-scale",
            "hashlib.sha256(repr(float(scale)).encode())",
            "hashlib.sha256()",
            "another scale has the same digest",
            "tests/inference/test_adapter_digest.py",
        ),
        (
            "digest-without-bytes",
            "        digest.update(np.asarray(mx.contiguous(w).view(mx.uint8)).tobytes())\n",
            "",
            "all adapters have one digest",
            "tests/inference/test_adapter_digest.py",
        ),
    ),
    *mutants(
        "inference/engine/prefix_cache.py",
        SLOTS,
        (
            "prefix-of-another-adapter",
            "            if key[0] == digest:\n",
            "            if True:\n",
            "keys and values of another adapter are used",
        ),
        equivalent="entries are found by hashes that begin with the digest, so only a collision could bring another's",
    ),
    *mutants(
        "inference/engine/sampling.py",
        "tests/server/test_json_mode.py::test_replies_follow_their_schema_whole_and_streamed",
        (
            "guide-ignored",
            "return None if self.guide is None else self.guide.ids_after(tokens)",
            "return None",
            "a reply need not follow its schema",
        ),
    ),
    *mutants(
        "inference/server/grammars.py",
        "tests/server/test_json_mode.py::test_matchers_that_were_dropped_are_made_anew_from_the_tokens",
        (
            "matcher-not-advanced",
            "            matcher.consume_tokens(list(said))\n",
            "            matcher.consume_tokens(list(said[:-1]))\n",
            "a reply whose matcher was dropped follows the grammar one token late",
        ),
    ),
    *mutants(
        "inference/engine/prompt_reading.py",
        "tests/server/test_openai_client.py::test_an_echoed_prompt_has_the_logprobs_of_a_plain_forward_pass",
        (
            "prompt-one-off",
            "targets = prompt[start + 1 : start + 1 + width]",
            "targets = prompt[start : start + width - 1]",
            "lm-eval scores each token as the one before",
        ),
    ),
    *mutants(
        "inference/forward/exponentials.py",
        "tests/inference/test_exponentials.py",
        (
            "exponential-of-two",
            "mx.power(2.0, x * _LOG2_E) if",
            "mx.power(2.0, x) if",
            "powers of two in place of exponentials",
        ),
        (
            "gate-slope-without-curve",
            "cotangent * (share + out * (1.0 - share))",
            "cotangent * share",
            "the gradient of a gate lacks what the sigmoid adds",
        ),
        (
            "softmax-slope-without-mean",
            "weighted - out * mx.sum(weighted, axis=-1, keepdims=True)",
            "weighted",
            "all probabilities of a softmax may rise at once",
        ),
    ),
    *mutants(
        "inference/recurrence/short_convolution.py",
        "tests/inference/test_exponentials.py",
        (
            "filter-backwards",
            "weight[:, shift, 0]",
            "weight[:, -shift, 0]",
            "short convolutions read the future as the past",
        ),
        (
            "stride-overlooked",
            "(layer.stride, layer.padding, layer.dilation) == (1, 0, 1)",
            "layer.padding == 0",
            "a convolution with a stride is computed without",
        ),
    ),
    *mutants(
        "inference/recurrence/install.py",
        "tests/inference/test_exponentials.py",
        (
            "gate-replaced-for-all",
            "if _QUICKLY.get() and fastmath.in_software(x) else gate(x)",
            "if fastmath.in_software(x) else gate(x)",
            "models that mlx-lm compiles cannot be traced",
        ),
        (
            "gate-never-replaced",
            "if _QUICKLY.get() and fastmath.in_software(x) else gate(x)",
            "if False else gate(x)",
            "a learner on a CPU takes exponentials one by one",
        ),
        (
            "convolution-never-replaced",
            "if not _QUICKLY.get() or not fastmath.in_software(x) or not takes(self, x):",
            "if True:",
            "a learner on a CPU waits for MLX's convolutions",
        ),
    ),
    *mutants(
        "inference/forward/row_parts.py",
        "tests/inference/test_row_parts.py",
        (
            "parts-on-one-thread",
            "if rows * width >= LARGE else 1",
            "if False else 1",
            "what lies between products runs on one thread",
        ),
    ),
]
