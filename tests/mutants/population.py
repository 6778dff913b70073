"""Mistakes between several learners: whose weights, whose turns, whose state."""

from __future__ import annotations

from tests.mutants.mutant import mutants

TESTS = "tests/train/test_population.py"
APART = f"{TESTS}::test_each_learns_what_it_would_alone_from_the_same_turns"
SEATED = f"{TESTS}::test_each_seat_is_played_and_measured_with_the_weights_of_its_own_learner"
RESUMED = f"{TESTS}::test_a_resumed_run_is_the_uninterrupted_one"

MUTANTS = [
    *mutants(
        "legos_train/loss/batch/by_learner.py",
        APART,
        (
            "everybody-learns-from-all",
            'if t.info.get("learner") == learner}',
            "}",
            "each learner is trained on the turns of all",
        ),
    ),
    *mutants(
        "legos_train/model/population_backend.py",
        SEATED,
        (
            "first-published-for-all",
            "snapshot.content[learner])",
            "snapshot.content[next(iter(self.members))])",
            "every seat is played with the weights of the first learner",
        ),
        (
            "first-written-for-all",
            "one.write(snapshot.content[name], folder / name",
            "one.write(snapshot.content[next(iter(self.members))], folder / name",
            "every folder holds the weights of the first learner",
            f"{TESTS}::test_a_run_leaves_an_adapter_for_each_and_they_are_those_that_were_measured",
        ),
    ),
    *mutants(
        "legos_train/model/learners.py",
        RESUMED,
        (
            "optimiser-of-another",
            'if key.endswith(f".{name}")}',
            'if key.endswith(f".{next(iter(self.members))}")}',
            "a resumed learner goes on with the state of another",
        ),
    ),
    *mutants(
        "legos_train/config/train_config.py",
        APART,
        (
            "settings-shared",
            "merged(shared, own), f",
            "merged(own, shared), f",
            "what a learner has of its own is overruled by the run",
        ),
    ),
]
