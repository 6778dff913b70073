"""Mistakes in what serves tokens and keeps state: sampling, scheduling, adapters, caches, checkpoints."""

from __future__ import annotations

from tests.mutants.mutant import mutants

SAMPLING = "tests/inference/test_sampling.py"
ENGINE = "tests/inference/test_engine.py"
OPTIONS = "tests/inference/test_request_options.py"
SLOTS = "tests/inference/test_adapter_slots.py"
SCHEDULER = "tests/inference/test_scheduler.py"
CHECKPOINT = "tests/train/test_checkpoint.py"
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
            "one too many",
        ),
        (
            "bias-on-all",
            "row[token] += np.float32(value)",
            "row += np.float32(value)",
            "logit_bias moves nothing",
            OPTIONS,
        ),
        (
            "logprob-without-total",
            "np.log(weights[picks].astype(np.float64)) - np.log(total)",
            "np.log(weights[picks].astype(np.float64))",
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
        ),
        ("stop-tokens-ignored", "token in params.stop_ids\n", "False\n", "completions go on to their limit"),
        (
            "one-token-more",
            "if not stopped and length < params.max_tokens:",
            "if not stopped and length <= params.max_tokens:",
            "max_tokens is exceeded",
        ),
        (
            "logprob-of-the-tempered",
            "float(outcome.logits[token]) - outcome.log_normaliser",
            "float(outcome.logits[token])",
            "log-probabilities are logits",
        ),
        (
            "kept-tokens-without-version",
            "row.switches = (*row.switches, (len(row.tokens), version))",
            "pass",
            "tokens say the version that came later",
            OPTIONS,
        ),
        (
            "transfer-forgets-the-waiting",
            "            if waiting.adapter is old:\n                waiting.adapter = new\n",
            "            pass\n",
            "waiting requests run on old weights",
            OPTIONS,
        ),
        (
            "blocked-admitted",
            'if getattr(waiting.adapter, "blocked", False):',
            "if False:",
            "wait does not wait",
            OPTIONS,
        ),
    ),
    *mutants(
        "inference/engine/prefix_cache.py",
        f"{SLOTS} {OPTIONS}",
        (
            "prefix-of-another-adapter",
            "            if key[0] == digest:\n",
            "            if True:\n",
            "keys and values of another adapter are used",
        ),
        (
            "whole-prompt-from-cache",
            "self._entries[key].tokens), len(ids) - 1)",
            "self._entries[key].tokens), len(ids))",
            "no token is left to be computed",
        ),
        (
            "budget-not-kept",
            "while self.nbytes > self.max_bytes and self._entries:",
            "while False:",
            "the cache grows for ever",
        ),
    ),
    *mutants(
        "inference/engine/engine.py",
        OPTIONS,
        (
            "keep-keeps-the-old",
            "            self._scheduler.transfer(old, new, old.version)\n",
            "",
            "in_flight = keep pins",
        ),
        (
            "abort-does-not",
            "            self._aborts.update(tickets)\n        elif",
            "            pass\n        elif",
            "old requests go on",
        ),
        ("wait-does-not", "            new.after = old\n", "            pass\n", "the new version does not wait"),
        (
            "caches-not-dropped",
            "        self._runner.drop_caches()\n        self._kv.reset()\n\n    def close",
            "        self._kv.reset()\n\n    def close",
            "a resumed run starts from another state",
            RESUME,
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
        "inference/adapters.py",
        SLOTS,
        (
            "scale-not-folded",
            '_served(weights[f"{p}.lora_b"], scale)',
            '_served(weights[f"{p}.lora_b"], 1.0)',
            "the engine serves another scale than was trained",
        ),
        (
            "scale-on-both",
            '_served(weights[f"{p}.lora_a"], 1.0)',
            '_served(weights[f"{p}.lora_a"], scale)',
            "the scale counts twice",
        ),
        ("nan-published", "        if not _finite(weights[name]):\n", "        if False:\n", "NaN is served"),
        (
            "digest-without-scale",
            "hashlib.sha256(repr(float(scale)).encode())",
            "hashlib.sha256()",
            "another scale has the same digest",
        ),
        (
            "digest-without-bytes",
            "        digest.update(np.asarray(mx.contiguous(w).view(mx.uint8)).tobytes())\n",
            "",
            "all adapters have one digest",
        ),
    ),
    *mutants(
        "legos_train/disk/checkpoint.py",
        CHECKPOINT,
        (
            "damage-not-seen",
            'if len(data) != entry["bytes"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:',
            "if False:",
            "flipped bits are loaded",
        ),
        (
            "length-only",
            'or hashlib.sha256(data).hexdigest() != entry["sha256"]:',
            "or False:",
            "flipped bits are loaded",
        ),
        (
            "seal-not-checked",
            'if sealed and (manifest["sha256"] != _seal(content) or data != _render(manifest)):',
            "if False:",
            "a changed manifest vouches for changed files",
        ),
        (
            "checkpoint-oldest-first",
            "for step in reversed(steps(root)):",
            "for step in steps(root):",
            "a resume goes on from the oldest checkpoint",
        ),
        (
            "manifest-not-written",
            '        fsops.write_file(temporary / MANIFEST, _manifest(step, entries), torn="checkpoint.torn")\n',
            "        pass\n",
            "no checkpoint can be read",
        ),
        (
            "other-number-taken",
            "if directory.name != f\"step_{manifest['step']}\":",
            "if False:",
            "a copied directory is a checkpoint of another step",
        ),
        (
            "directory-not-synced",
            '    fsops.sync_directory(root)\n    crashpoint("checkpoint.committed")',
            '    crashpoint("checkpoint.committed")',
            "a power cut loses a checkpoint that was said to be there",
            "tests/train/test_crash_power.py",
        ),
    ),
    *mutants(
        "legos_train/disk/metrics_file.py",
        RESUME,
        (
            "rows-after-the-checkpoint-stay",
            '            elif row["step"] <= step:\n',
            "            else:\n",
            "steps stand twice after a resume",
        ),
        (
            "row-of-the-checkpoint-cut",
            '            elif row["step"] <= step:\n',
            '            elif row["step"] < step:\n',
            "the row of the checkpoint is lost",
        ),
    ),
    *mutants(
        "legos_train/run/state.py",
        RESUME,
        ("credit-not-restored", '    parts.credit.load_state_dict(state["credit"])\n', "", "baselines begin anew"),
        (
            "monitor-not-restored",
            '    parts.monitor.load_state_dict(state["monitor"])\n',
            "",
            "alarms begin anew",
            "tests/train/test_whole_state.py",
        ),
        (
            "replay-not-restored",
            '    parts.replay.load(loaded.files["replay.jsonl"])\n',
            "",
            "batches waiting for another use are lost",
        ),
        ("best-not-restored", 'if state["best"] is not None:', "if False:", "a worse best is taken after a resume"),
        (
            "stop-reason-forgotten",
            '    parts.stop_reason = state["stop_reason"]\n',
            "",
            "a run that was stopped goes on",
            "tests/train/test_whole_state.py",
        ),
        (
            "past-not-restored",
            "        parts.past[step] = parts.backend.unpack(tensors[key], step)\n",
            "        pass\n",
            "the run's past is not met at its end",
            "tests/train/test_whole_state.py tests/train/test_resume.py",
        ),
        (
            "not-published-after-resume",
            "    parts.sync.everything(parts.league)\n    return parts.learner.step",
            "    return parts.learner.step",
            "the first batch after a resume is played by fresh weights",
        ),
        (
            "caches-kept-at-checkpoints",
            "    parts.drop_caches()\n\n\ndef _state",
            "\n\ndef _state",
            "a resumed run differs in the last bit",
        ),
    ),
    *mutants(
        "legos_train/run/weight_sync.py",
        "tests/train/test_whole_state.py tests/train/test_league_envs.py",
        (
            "proof-skipped",
            "if np.array_equal(before, self.engine.next_logits([probe], actors.POLICY)):",
            "if False:",
            "an engine that serves old weights is not seen",
            "tests/train/test_train.py::test_an_engine_that_keeps_serving_old_weights_is_an_error",
        ),
        (
            "members-are-the-policy",
            "            self.backend.publish(target, name, weights)\n",
            "            self.backend.publish(target, name, self.backend.snapshot(self.learner.step))\n",
            "members play with the live weights",
        ),
        (
            "evicted-stay",
            "            self.local.unpublish(name)\n",
            "            pass\n",
            "adapters of members that left are kept for ever",
        ),
        (
            "one-target-only",
            "return [self.local] if self.generator is self.local else [self.local, self.generator]",
            "return [self.local]",
            "servers never get new weights",
            "tests/train/test_server_mode.py::test_a_run_against_servers_is_the_run_in_this_process",
        ),
        (
            "version-one-behind",
            "self.backend.publish(target, actors.POLICY, self.backend.snapshot(self.learner.step))",
            "self.backend.publish(target, actors.POLICY, self.backend.snapshot(self.learner.step - 1))",
            "samples look older than they are",
            "tests/train/test_wiring.py::test_every_step_plays_with_the_weights_of_the_step_before[ema]",
        ),
    ),
    *mutants(
        "legos_train/run/steps.py",
        "tests/train/test_resume.py",
        (
            "checkpoint-never",
            "if last or (every and number % every == 0):",
            "if last:",
            "checkpoint.every does nothing",
        ),
        (
            "evaluation-forgotten",
            'record["eval"] = evaluate(parts, due)',
            'record["eval"] = parts.measurer.measure("policy", due)',
            "no average is measured, no best kept",
            "tests/train/test_train.py::test_files_of_a_run",
        ),
    ),
]
