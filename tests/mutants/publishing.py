"""Publishing to servers: late repeats, other runs, adapters that overflow."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutants

LATE = "tests/inference/test_adapter_slots.py::test_versions_only_go_up_for_those_who_may_repeat_themselves"
FINITE = "tests/inference/test_adapter_slots.py::test_weights_that_are_finite_until_scaled_or_multiplied_are_refused"
RUNS = "tests/train/test_two_runs.py::test_two_runs_on_one_server_end_with_the_bytes_that_each_has_alone"
NAMES = "tests/train/test_two_runs.py::test_every_publication_has_a_name_of_its_own_and_the_last_one_answers"
LEARNER = "tests/train/test_two_runs.py::test_a_policy_that_is_not_the_learners_stops_the_run_before_it_learns"
ONCE = "tests/inference/test_fleet.py::test_what_goes_wrong_once_costs_no_game_and_brings_none_twice"
PARAMS = "tests/inference/test_sampling_params.py"
OTHERS = "tests/train/test_two_runs.py::test_answers_by_other_weights_under_the_right_name_and_version_stop_the_run"
ROOM = "tests/server/test_adapter_versions.py::test_what_nobody_asks_for_makes_room_and_may_come_back"
BUSY = "tests/train/test_two_runs.py::test_a_request_keeps_the_version_that_it_was_submitted_under"
LIMIT = "tests/train/test_server_mode.py::test_a_server_that_takes_too_few_adapters_is_refused_before_the_first_step"
RANK = "tests/train/test_two_runs.py::test_a_rank_that_follows_uses_what_the_first_has_brought_and_takes_nothing_away"

MUTANTS: list[Mutant] = [
    *mutants(
        "inference/engine/version_ledger.py",
        LATE,
        ("older-version-wins", "if version < last.version:", "if False:", "a late repeat wins"),
        ("altered-version-wins", "elif last.digest != digest:", "elif False:", "one version has two meanings"),
        ("deleted-version-returns", "elif last.gone:", "elif False:", "a late repeat brings back what was taken away"),
    ),
    *mutants(
        "inference/engine/publisher.py",
        LATE,
        (
            "deletion-forgotten",
            "        self.ledger.drop(name, for_good=for_good)\n",
            "",
            "a deletion leaves no trace",
        ),
        (
            "probe-skipped",
            "        self.probe(prepared, self._vocab)\n",
            "",
            "overflowing products go live",
            FINITE,
        ),
    ),
    *mutants(
        "inference/engine/probe.py",
        FINITE,
        ("one-passed-all-pass", "if prepared.digest in self._passed:", "if self._passed:", "later ones are not tried"),
    ),
    *mutants(
        "inference/adapters/validation.py",
        FINITE,
        (
            "scaled-not-looked-at",
            "if not (_finite(b) and (",
            "if not (True or (",
            "an adapter overflows with its scale",
        ),
    ),
    *mutants(
        "inference/client/completions.py",
        ONCE,
        (
            "digest-not-compared",
            'choice.get("adapter_digest", digest) != digest',
            "False",
            "another run's weights of the same version are taken",
            OTHERS,
        ),
        ("other-model-taken", 'answer.get("model") != model', "False", "another adapter's games are learned from"),
        (
            "other-prompt-taken",
            "prompt is not None and prompt != _plain(request.prompt)",
            "False",
            "games are mixed up",
            "tests/inference/test_fleet.py::test_what_stays_wrong_ends_the_request_with_its_reason",
        ),
        (
            "guide-dropped",
            "getattr(params, name) != _DEFAULTS[name]]\n    if given",
            "name != 'guide' and getattr(params, name) != _DEFAULTS[name]]\n    if given",
            "a guided completion comes back unguided",
            f"{PARAMS}::test_a_call_of_several_prompts_sends_an_option_or_refuses_it[guide]",
        ),
        (
            "option-not-in-the-key",
            "(*_values(params), params.seed is None)",
            "(*_values(params)[1:], params.seed is None)",
            "requests with different options share a call, and all get those of the first",
            f"{PARAMS}::test_a_call_of_several_prompts_sends_an_option_or_refuses_it[max_tokens]",
        ),
        (
            "model-defaults-decide",
            "for name in VLLM_NUMBERS} | VLLM_EXTRA",
            "for name in VLLM_NUMBERS}",
            "vLLM applies the model's own repetition penalty, and games are played off policy",
            f"{PARAMS}::test_vllm_is_told_what_the_models_own_defaults_would_decide",
        ),
        (
            "forced-end-of-thought-drawn",
            '_NO_EFFECT = ("max_tokens", "speculate")',
            '_NO_EFFECT = ("max_tokens", "speculate", "thinking_token_budget")',
            "the forced end of a thought is reported as drawn",
            f"{PARAMS}::test_log_probabilities_of_another_distribution_are_not_taken_for_those_of_the_draw",
        ),
    ),
    *mutants(
        "inference/client/fleet.py",
        ONCE,
        (
            "lost-with-its-server",
            "            elif not ticket.cancelled:\n                self._waiting.appendleft(ticket)\n",
            "",
            "games hang",
        ),
    ),
    *mutants(
        "inference/server/adapter_store.py",
        ROOM,
        ("evict-the-newest", "oldest = min(idle,", "oldest = max(idle,", "adapters of runs that go on make room"),
        (
            "evict-for-good",
            "self._remove(oldest, for_good=False)",
            "self._remove(oldest, for_good=True)",
            "no way back",
        ),
        (
            "room-before-the-ledger",
            "engine.check_version(name, version, prepared.digest)",
            "None",
            "a late repeat takes the place of an adapter that is served, and is refused",
        ),
    ),
    *mutants(
        "legos_train/rollout/players/remote.py",
        NAMES,
        (
            "one-name-for-all-runs",
            "{self.run}.{_ODD.sub",
            "{_ODD.sub",
            "runs mix",
            RUNS,
        ),
        (
            "name-kept",
            "            self._retire(old)\n",
            "            pass\n",
            "every step leaves an adapter behind",
        ),
        (
            "nothing-cleared",
            "            if not self.follows:\n                self._clear()\n",
            "            pass\n",
            "runs leave their adapters behind",
        ),
        (
            "followers-take-away",
            "            if not self.follows:\n                self._clear()\n",
            "            if True:\n                self._clear()\n",
            "the first rank that ends takes away what the others play with",
            RANK,
        ),
    ),
    *mutants(
        "legos_train/run/generation/servers.py",
        LIMIT,
        ("limit-not-looked-at", "if most < adapters:", "if False:", "the run ends in the middle"),
    ),
    *mutants(
        "legos_train/model/learner.py",
        LEARNER,
        ("mismatch-ignored", "if mismatch > most:", "if False:", "the run learns from another policy's games"),
        (
            "mismatch-limit-ignored",
            "self.config.sampling.max_mismatch or self.backend",
            "self.backend",
            "the setting does nothing",
        ),
    ),
    *mutants(
        "inference/server/control_routes.py",
        "tests/server/test_pausing.py",
        (
            "paused-in-the-end",
            "            server.open()\n            if resumed",
            "            if resumed",
            "a shutdown is paused",
        ),
    ),
    *mutants(
        "inference/engine/worker.py",
        "tests/inference/test_worker.py",
        ("starting-for-ever", "self._starting -= len(ids)", "pass", "what has ended counts as running"),
        (
            "refused-runs",
            "            self._starting -= count",
            "            pass",
            "what was refused counts as running",
        ),
        ("nobody-answers", "            self._refuse_rest()\n            return", "            return", "callers hang"),
    ),
]
