"""Hostile actions thrown at every registered env; and envs that are wrong, which the fuzzer must find out."""

import math

import pytest

import legos_envs
from legos_envs import Seat, TextEnv, registry
from legos_envs.scoring import formulas
from legos_envs.testing import FuzzReport, fuzz, fuzzing
from legos_envs.testing.fuzzing import mutated
from tests.envs.broken import Sealed
from tests.envs.nested import Debate, Tournament


@pytest.mark.parametrize("id", legos_envs.registered())
def test_registered(id, monkeypatch):
    monkeypatch.setattr(formulas, "installed", lambda: False)  # loading math-verify takes longer than all the rest
    report = fuzz(id, actions=80)
    assert report.ok, str(report)
    assert report.slowest_s < 20, str(report)  # by the clock, of which a busy machine takes its part
    assert min(report.slowest_s, report.slowest_ms / 500) < 2, str(report)
    assert report.hostile >= 80 and report.outcomes.total() == report.episodes


FORMULAS = ("\\frac{\\sqrt{2}}{2}", "(x+1)^2", "\\left(3,\\frac{\\pi}{2}\\right)", "e^{x}+\\sin x", "[2,\\infty)")
ROWS = [{"question": f"Which is it, number {i}?", "answer": answer} for i, answer in enumerate(FORMULAS)]
COMPARING = [
    ("Dataset-v0", {"source": ROWS}),
    ("EnsembleVote-v0", {"source": ROWS}),
    ("EnsembleVote-v0", {"source": ROWS, "answer": None, "num_solvers": 16}),
    ("SelfDistillation-v0", {"source": ROWS}),
    ("ProposerSolver-v0", {"domain": "free"}),
    ("SPICE-v0", {}),
    ("Amplification-v0", {}),
    ("CodeGen-v0", {}),
    ("CodeGen-v0", {"source": "written", "coder_scored_by": "tester", "max_tests": 20}),
    ("RedBlue-v0", {"variant": "patch"}),
]
"""Every env that compares formulas or runs programs, with truths that math-verify is needed for."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("id", "kwargs"), COMPARING)
def test_no_step_takes_more_than_two_seconds(id, kwargs, monkeypatch):
    """Half of what is said are formulas and programs that would never end."""
    monkeypatch.setattr(fuzzing, "WEIGHTS", (10, 5, 5, 10, 5, 5, 40))
    report = fuzz(id, actions=2000, **kwargs)
    assert report.ok and report.slowest_s < 2, str(report)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("family", registry.families())
def test_a_hundred_thousand(family):
    ids = registry.families()[family]
    reports = [fuzz(id, actions=100_000 // len(ids) + 1, seed=1) for id in ids]
    assert all(report.ok for report in reports), "\n".join(map(str, reports))
    assert sum(report.hostile for report in reports) >= 100_000
    assert max(report.slowest_s for report in reports) < 2, "\n".join(map(str, reports))


@pytest.mark.parametrize("env", [Debate, Tournament, Sealed])
@pytest.mark.parametrize("kwargs", [{}, {"action_format": "boxed", "memory": "chat"}, {"invalid_retries": 0}])
def test_good_envs(env, kwargs):
    report = fuzz(env, actions=200, **kwargs)
    assert report.ok and report.hostile >= 200 and report.name == env.__name__


class Base(TextEnv):
    name = "Bad-v0"
    seats = {"player_0": Seat("player"), "player_1": Seat("player")}

    def heard(self, table, text):
        """What a subclass does wrong."""

    def play(self, table):
        for _ in range(3):
            for agent in self.seats:
                self.heard(table, (yield from table.ask(agent, "Say a number.")))


class Raises(Base):
    def heard(self, table, text):
        if text[:1] in "{[" and not text.endswith("}"):
            raise KeyError(text)


class Endless(Base):
    default_max_turns = 10**6

    def play(self, table):
        while True:
            said = yield from table.ask("player_0", "Say yes.")
            if said == "yes":
                return


class Infinite(Base):
    def heard(self, table, text):
        table.env._pay("player_0", math.inf if "9" in text else 0.0)


class NotZeroSum(Base):
    zero_sum = True

    def heard(self, table, text):
        table.reward("player_1", float("\u202e" in text))


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (Raises, "raised KeyError"),
        (Endless, "no end within 2000 actions"),
        (Infinite, "the reward of 'player_0' is inf"),
        (NotZeroSum, "do not add up to zero"),
    ],
)
def test_what_is_wrong_is_found(env, said, monkeypatch):
    monkeypatch.setattr(fuzzing, "FAILURES_KEPT", 5)  # endless episodes take a while each
    report = fuzz(env, actions=5000)
    assert not report.ok and len(report.failures) <= 5 and said in report.failures[0], str(report)
    assert "FAIL  episode" in str(report) and f"{env.__name__}: {len(report.failures)} failures" in str(report)


def test_a_naive_env_is_found_out():
    from tests.envs.naive import Naive

    assert not fuzz(Naive, actions=300).ok


def test_the_same_seed_throws_the_same(monkeypatch):
    logs = []

    def logged(seed):
        env = registry.make("Nim-v0")
        monkeypatch.setattr(fuzzing.registry, "make", lambda *_, **__: env)
        said = []
        step = env.step
        monkeypatch.setattr(env, "step", lambda action: (said.append(action), step(action)))
        fuzz("Nim-v0", actions=60, seed=seed)
        monkeypatch.undo()
        return said

    logs = [logged(3), logged(3), logged(4)]
    assert logs[0] == logs[1] != logs[2] and len(logs[0]) > 60


def test_mutations_stay_close_and_reports_are_readable():
    from random import Random

    variants = {mutated("[take 3]", Random(i)) for i in range(200)}
    assert len(variants) > 100 and all(len(v) <= 64 for v in variants)
    assert str(FuzzReport("X-v0", 0)).startswith("X-v0: 0 failures in 0 actions")
