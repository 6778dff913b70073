"""Mistakes in what is kept and comes back: checkpoints, rows, publishing after a resume."""

from __future__ import annotations

from tests.mutants.mutant import mutants

CHECKPOINT = "tests/train/test_checkpoint.py"
RESUME = "tests/train/test_whole_state.py::test_a_run_with_everything_on_resumes_bit_for_bit"

MUTANTS = [
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
            'if not sealed and manifest["schema"] != 1:',
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
            '        fsops.write_file(temporary / MANIFEST, _manifest(step, run, entries), torn="checkpoint.torn")\n',
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
            "the monitor begins anew after a resume",
            "tests/train/test_whole_state.py::test_a_run_with_everything_on_resumes_bit_for_bit",
        ),
        (
            "replay-not-restored",
            '    parts.replay.load(loaded.files["replay.jsonl"])\n',
            "",
            "batches waiting for another use are lost",
        ),
        (
            "best-not-restored",
            'if state["best"] is not None:',
            "if False:",
            "a worse best is taken after a resume",
            "tests/train/test_whole_state.py::test_a_resumed_run_has_the_past_and_the_best_that_it_had",
        ),
        (
            "stop-reason-forgotten",
            '    parts.stop_reason = state["stop_reason"]\n',
            "",
            "a run that was stopped goes on",
            "tests/train/test_whole_state.py::test_stop_ends_the_run_with_its_checkpoint",
        ),
        (
            "past-not-restored",
            "        parts.past[step] = parts.backend.unpack(groups[key], step)\n",
            "        pass\n",
            "the run's past is not met at its end",
            "tests/train/test_whole_state.py::test_a_resumed_run_has_the_past_and_the_best_that_it_had",
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
        "legos_train/run/generation/weight_sync.py",
        "tests/train/test_whole_state.py tests/train/test_league_envs.py",
        (
            "proof-skipped",
            "if np.array_equal(before[learner], self._logits(learner, probe)):",
            "if False:",
            "an engine that serves old weights is not seen",
            "tests/train/test_train.py::test_an_engine_that_keeps_serving_old_weights_is_an_error",
        ),
        (
            "members-are-the-policy",
            "            self.backend.publish(target, name, weights)\n",
            "            self.backend.publish(target, name, self.backend.snapshot(self.learner.step))\n",
            "members play with the live weights",
            RESUME,
        ),
        (
            "evicted-stay",
            "            self.forget(name)\n",
            "            pass\n",
            "adapters of members that left are kept for ever",
            "tests/train/test_wiring_seats.py::test_what_is_served_is_the_policy_and_the_pool",
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
            "tests/train/test_whole_state.py::test_stop_ends_the_run_with_its_checkpoint",
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
