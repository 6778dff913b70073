"""`check_env` on all registered environments, and the test of the test: broken envs must fail, for the right check."""

import asyncio

import pytest

import legos_envs
from legos_envs import Seat, TextEnv
from legos_envs.testing import CHECKS, Report, attack, check_env, fuzz
from tests.envs import sweeps
from tests.envs.broken import MUTANTS, Chatter, KeepsLambda, Sealed, Secretive
from tests.envs.naive import Naive, Numbers

VARIANTS = [
    {"memory": "chat"},
    {"memory": "state"},
    {"action_format": "boxed"},
    {"invalid_retries": 0},
    {"invalid_reward": -1.5, "invalid_opponent_reward": 0.5},
]


NOT_EVERYWHERE = ("seed.process",)  # starts an interpreter a time
SMALL = {
    "Amplification-v0": {"operations": 2, "max_questions": 3},
    "ConnectFour-v0": {"rows": 4, "columns": 4, "connect": 3},
    "EloArena-v0": {"num_entrants": 3, "matches": 2},
    "EnsembleVote-v0": {"num_solvers": 3},
    "LiarsDice-v0": {"dice": 2},
    "Negotiation-v0": {"rounds": 3},
    "PigDice-v0": {"goal": 20},
    "ProposerSolver-v0": {"num_solvers": 2},
    "SPICE-v0": {"num_reasoners": 2},
    "SelfDistillation-v0": {"num_samples": 2},
    "SimpleNegotiation-v0": {"turns": 4},
    "Tournament-v0": {"num_entrants": 3, "match_kwargs": {"rounds": 1}},
}
"""Every check plays many episodes; what seats may know and say is the same in small ones."""


@pytest.mark.parametrize("id", sweeps.ids())
def test_registered(id):
    skip = () if id in ("KuhnPoker-v0", "Debate-v0") else NOT_EVERYWHERE
    report = check_env(id, episodes=8, skip=skip, raise_on_failure=True, **SMALL.get(id, {}))
    assert report.ok and 0 < report.us_per_turn < 20_000


def named(options):
    return "-".join(f"{k}={v}" for k, v in options.items())


@pytest.mark.quick
@pytest.mark.parametrize("id", ["KuhnPoker-v0", "MatrixGame-v0"])
@pytest.mark.parametrize("options", VARIANTS, ids=named)
def test_variants(id, options):
    """One env whose seats act in turn and one where they act at once; `test_every_variant` has all of them."""
    check_env(id, episodes=10, skip=NOT_EVERYWHERE, raise_on_failure=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("id", legos_envs.registered())
@pytest.mark.parametrize("options", [{}, *VARIANTS], ids=named)
def test_every_variant(id, options):
    check_env(id, raise_on_failure=True, **options)


def test_kuhn_match():
    assert (
        check_env("KuhnPoker-v0", episodes=10, skip=NOT_EVERYWHERE, num_rounds=3, raise_on_failure=True).us_per_turn > 0
    )


def test_naive_env_fails_by_name():
    report = check_env(Naive, episodes=15)
    assert {
        "play.one_ending",
        "play.turn_limit",
        "infos.plain",
        "hidden.private",
        "think.private",
        "think.unclosed",
        "action.last",
        "garbage.safe",
        "garbage.ends",
        "copy.pickle",
        "copy.restore",
        "order.ready",
        "seed.reused",
        "rng.untouched",
        "seed.refused",
    } <= set(report.failures)
    assert not report.ok and "FAIL  think.private" in str(report)
    with pytest.raises(AssertionError, match=r"think\.private(.|\n)*rng\.untouched"):
        check_env(Naive, episodes=5, raise_on_failure=True)


def test_env_that_is_no_text_env_is_reported_and_does_not_crash():
    report = check_env(Numbers, episodes=5)
    assert {"spaces.same", "observation.chat", "order.ready", "copy.restore"} <= set(report.failures)
    assert "pettingzoo.api" in report.passed and "refuses the text" in report.failures["spaces.same"]


@pytest.mark.slow
def test_env_that_cannot_be_made_is_reported():
    report = check_env("NoSuchGame-v0")
    assert "play.ends" in report.failures and "NoSuchGame" in report.failures["play.ends"]
    assert report.us_per_turn is None


@pytest.mark.parametrize("env", [Chatter, Sealed, Secretive])
def test_good_envs_pass(env):
    assert check_env(env, episodes=15, skip=NOT_EVERYWHERE).failures == {}


@pytest.mark.parametrize(("env", "expected"), MUTANTS, ids=[env.__name__ for env, _ in MUTANTS])
def test_mutant_fails_for_what_is_wrong_with_it(env, expected):
    assert sorted(check_env(env, episodes=15).failures) == sorted(expected)


@pytest.mark.parametrize(
    ("count", "text", "good"),
    [
        (61, "from 100 to 160", True),
        (61, "from 100", False),
        (61, "up to 160", False),
        (60, "from 100 to 159", False),
        (60, " ".join(map(str, range(100, 160))), True),
    ],
)
def test_many_legal_actions_may_be_told_as_a_range(count, text, good):
    class Numbers(TextEnv):
        seats = {"player_0": Seat("player_0")}

        def play(self, table):
            said = yield from table.ask("player_0", text, legal=[str(100 + n) for n in range(count)], listed=False)
            table.reward("player_0", int(said))

    report = check_env(Numbers, episodes=3, only=("infos.legal",))
    assert ("infos.legal" not in report.failures) == good


def test_env_with_an_argument_that_does_not_pickle():
    def make(**kwargs):
        return KeepsLambda(judge=lambda text: text, **kwargs)

    assert list(check_env(make, episodes=20).failures) == ["copy.pickle"]


@pytest.mark.slow
def test_endless_env():
    class Endless(Sealed):
        default_max_turns = 10**6

        def play(self, table):
            while True:
                yield from super().play(table)

    report = check_env(Endless, only=("play.ends",))
    assert "did not end within" in report.failures["play.ends"]


@pytest.mark.quick("*lambda*")
@pytest.mark.parametrize("players", ["{}", "{'random': lambda decision: 'Yes.'}"])
def test_env_that_depends_on_the_hash_seed(tmp_path, players):
    file = tmp_path / "hashed.py"
    file.write_text(
        "import legos_envs\n"
        "from legos_envs import Seat, TextEnv\n"
        "class Hashed(TextEnv):\n"
        "    name = 'Hashed-v0'\n"
        "    seats = {'player_0': Seat('player')}\n"
        f"    scripted_players = {players}\n"
        "    def play(self, table):\n"
        "        table.note(hash=hash('x'))\n"
        "        table.reward('player_0', table.rng.random())\n"
        "        yield from table.ask('player_0', 'Say something.')\n"
        "legos_envs.register('Hashed-v0', Hashed)\n"
    )
    assert list(check_env(f"{file}:Hashed-v0", episodes=10).failures) == ["seed.process"]
    mine = check_env(f"{file}:Hashed-v0", episodes=10, policy=lambda decision: "Yes.")
    assert mine.ok and "seed.process" in mine.skipped


def test_nothing_passes_without_an_episode_and_one_is_no_evidence_of_a_dull_game():
    for none in (0, -3):
        for check in (check_env, attack):
            with pytest.raises(ValueError, match=f"episodes must be a whole number of at least 1; got {none}"):
                check("KuhnPoker-v0", episodes=none)
        with pytest.raises(ValueError, match=f"actions must be a whole number of at least 1; got {none}"):
            fuzz("KuhnPoker-v0", actions=none)
    report = check_env("KuhnPoker-v0", episodes=1, only=("play.outcomes", "play.ends"))
    assert report.ok and list(report.skipped) == ["play.outcomes"]


def test_report_and_selection_of_checks():
    report = check_env(Sealed, episodes=5, only=("play.ends", "hidden.private"))
    assert report.ok and report.passed == ["play.ends"] and list(report.skipped) == ["hidden.private"]
    assert str(report).startswith("Sealed: 0 failed, 1 passed, 1 do not apply") and "us a turn" in str(report)
    skipping = check_env(Sealed, episodes=5, skip=tuple(CHECKS))
    assert skipping == Report("Sealed", us_per_turn=skipping.us_per_turn)
    with pytest.raises(ValueError, match=r"play\.end'.*play\.ends"):
        check_env(Sealed, only=("play.end",))


def test_policy_plays_all_seats():
    seen = []

    def policy(decision):
        seen.append(decision.role)
        return decision.legal_actions[-1]

    report = check_env(Sealed, episodes=3, policy=policy, only=("play.outcomes",))
    assert "nothing can be learned" in report.failures["play.outcomes"] and set(seen) == {"bidder"}


def test_every_check_has_one_line_of_description():
    assert all(len(c.description) > 20 and c.description.endswith(".") for c in CHECKS.values())


def test_envs_are_checked_where_a_loop_runs_too():
    """As in a notebook, where the check of `play` failed for every env."""

    async def cell():
        return check_env("Nim-v0", episodes=5, only=("rewards.play",))

    assert asyncio.run(cell()).ok
