"""Proposers and solvers: what is read and worked out, who sees what, who is paid what."""

import asyncio
import json
from itertools import product

import pytest

import legos_envs
from legos_envs.tasks.problems import ProposerSolver
from legos_envs.testing import check_env

# --- the rules -------------------------------------------------------------------------------------------------------


def play(env, options=None, seed=0, **said):
    """Plays fixed texts by agent or role; solvers and checkers say 27 where none is given."""
    named = {"proposer": "Problem: 3 * (2 + 7)\nAnswer: 27", "solver": "Answer: 27", "checker": "Answer: 27"} | said
    policy = lambda d: named.get(d.agent.replace("/", "_"), named[d.role])  # noqa: E731
    return asyncio.run(legos_envs.play(env, policy, seed, options))


def some_right(k, n=4, m=0):
    return {f"problem_{m}_solver_{i}": "Answer: 27" if i < k else "Answer: 26" for i in range(n)}


def test_seats_are_a_tree():
    env = ProposerSolver(num_problems=2, num_solvers=2)
    assert {agent: seat.role for agent, seat in env.seats.items()} == {
        "proposer_0": "proposer",
        "proposer_1": "proposer",
        "problem_0/solver_0": "solver",
        "problem_0/solver_1": "solver",
        "problem_1/solver_0": "solver",
        "problem_1/solver_1": "solver",
    }
    assert env.max_turns == 12


@pytest.mark.parametrize(
    ("k", "goldilocks", "variance"), [(0, 0, 0), (1, 0.5, 0.75), (2, 1, 1), (3, 0.5, 0.75), (4, 0, 0)]
)
def test_rewards(k, goldilocks, variance):
    for reward, expected in (("goldilocks", goldilocks), ("variance", variance)):
        episode = play(ProposerSolver(proposer_reward=reward), **some_right(k))
        assert episode.returns["proposer_0"] == expected
        assert [episode.returns[f"problem_0/solver_{i}"] for i in range(4)] == [float(i < k) for i in range(4)]
        assert episode.outcome == "played" and episode.info["verdicts"] == ["played"]
        info = episode.trajectories["problem_0/solver_0"].info
        assert (info["problem"], info["truth"], info["solve_rate"], info["correct"]) == (
            "3 * (2 + 7)",
            "27",
            k / 4,
            k > 0,
        )


def test_the_proposer_is_paid_for_the_rate_of_right_answers():
    """Both rewards are the same for a rate and for one minus it, so they do not tell which of the two was taken."""
    env = ProposerSolver()
    env.pays = lambda rate: rate
    assert play(env, **some_right(1)).returns["proposer_0"] == 0.25


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("\\boxed{27}", True),
        ("3 * 9 = 27", True),
        ("Answer: 27.0", True),
        ("Answer: 3 * (2 + 7)", False),
        ("none", False),
    ],
)
def test_an_arithmetic_answer_is_a_number(said, right):
    assert play(ProposerSolver(), solver=said).returns["problem_0/solver_0"] == right


def test_fractions_are_fine():
    episode = play(ProposerSolver(), proposer="Problem: 3 / 4\nAnswer: 0.75", solver="Answer: 3/4")
    assert episode.info["verdicts"] == ["played"] and episode.returns["problem_0/solver_0"] == 1


@pytest.mark.parametrize(
    ("said", "domain", "verdict"),
    [
        ("Problem: 3 * (2 + 7)\nAnswer: 28", "arithmetic", "wrong_answer"),
        ("Problem: 3 * (2 + 7)\nAnswer: 3 * (2 + 7)", "arithmetic", "wrong_answer"),
        ("Problem: 27\nAnswer: 27", "arithmetic", "trivial"),
        ("Problem: ((-27))\nAnswer: -27", "arithmetic", "trivial"),
        ("Problem: Ana has 27 shells. How many?\nAnswer: 27", "free", "leaked"),
        ("Problem: Ana has 27 shells. How many?\nAnswer: 27.0", "free", "leaked"),
        ("Problem: Half of 2,000 is 1,000; what is half of it?\nAnswer: 1000", "free", "leaked"),
        ("Problem: Which town is Lima?\nAnswer: lima", "free", "leaked"),
    ],
)
def test_worthless_problems_earn_nothing_and_nobody_is_asked(said, domain, verdict):
    episode = play(ProposerSolver(domain=domain), proposer=said)
    assert episode.outcome == verdict and episode.turns == 1 and set(episode.returns.values()) == {0.0}


@pytest.mark.parametrize(
    "said", ["Nothing.", "Problem: x + 1\nAnswer: 2", "Problem: 1 / 0\nAnswer: 0", "Problem: " + "1+" * 999]
)
def test_an_unreadable_problem_costs_the_proposer_alone(said):
    episode = play(ProposerSolver(), proposer=said)
    assert episode.outcome == "invalid_problem" and episode.info["verdicts"] == ["invalid"]
    assert episode.returns == {"proposer_0": -1} | {f"problem_0/solver_{i}": 0 for i in range(4)}
    assert episode.turns == 2 and "invalid" in episode.trajectories["proposer_0"].info  # one second try


def test_a_silent_solver_pays_alone_and_counts_as_not_right():
    episode = play(ProposerSolver(), problem_0_solver_0="")
    assert episode.returns["problem_0/solver_0"] == -1 and episode.returns["problem_0/solver_1"] == 1
    assert episode.returns["proposer_0"] == 0.5 and episode.outcome == "played"


def test_duplicates():
    assert play(ProposerSolver(seen=["3*(2+7)"])).outcome == "duplicate"
    assert play(ProposerSolver(seen=["(3)*((2+7))"])).outcome == "duplicate"
    assert play(ProposerSolver(), {"seen": ["3*(2 + 7)", "1+1"]}).outcome == "duplicate"
    assert play(ProposerSolver(), {"seen": ["(7+2)*3"]}).outcome == "duplicate"
    assert play(ProposerSolver(), {"seen": ["3*2+7", "not arithmetic"]}).outcome == "played"
    env = ProposerSolver(domain="free")
    said = "Problem: What is nine times three?\nAnswer: 27"
    assert play(env, {"seen": ["what is NINE times three"]}, proposer=said).outcome == "duplicate"
    assert play(env, proposer=said).outcome == "played"  # nothing is kept from the episode before


@pytest.mark.parametrize("domain", ["arithmetic", "free"])
def test_the_example_of_the_prompt_earns_nothing_again(domain):
    env = ProposerSolver(domain=domain)
    env.reset(seed=0)
    example = env.observe("proposer_0")["messages"][0]["content"].partition("two lines:\n")[2]
    assert play(env, proposer=example).outcome == "duplicate"
    assert play(env, {"problem": example.splitlines()[0].removeprefix("Problem: "), "answer": "27"}).outcome == "played"


WORDS = "Problem: What is nine times three?\nAnswer: 27"


@pytest.mark.parametrize(
    ("said", "outcome", "paid"),
    [
        ({"problem_0_solver_0": "28", "problem_0_solver_1": "26"}, "played", 1.0),
        ({"problem_0_solver_0": "no idea", "problem_0_solver_1": ""}, "played", 1.0),
        ({"problem_0_solver_0": "28", "problem_0_solver_1": "28"}, "disputed", 0.0),  # two say 27, two say 28
        ({"problem_0_checker_1": "28"}, "disputed", 0.0),
        ({"problem_0_checker_1": ""}, "disputed", 0.0),
        ({"solver": "51", "checker": "51", "proposer": "Problem: What is 17 times 3?\nAnswer: 52"}, "disputed", 0.0),
        ({}, "played", 0.0),
    ],
)
def test_a_key_in_words_counts_only_when_those_who_answer_bear_it_out(said, outcome, paid):
    episode = play(ProposerSolver(domain="free"), **{"proposer": WORDS} | said)
    assert episode.outcome == outcome and episode.returns["proposer_0"] == paid
    for agent, trajectory in episode.trajectories.items():
        silent = said.get(agent.replace("/", "_")) == ""
        if outcome == "disputed" and agent != "proposer_0":
            assert trajectory.total == (-1 if silent else 0) and trajectory.trainable == silent
        else:
            assert trajectory.trainable
    if outcome == "played":
        assert episode.returns["problem_0/checker_0"] == episode.returns["problem_0/solver_3"] == 1


def test_a_question_that_can_only_be_guessed_pays_almost_nothing():
    """All 64 ways to toss coins: both checkers say yes in 16; there 3 of 4 solvers say yes in 4, which pays 1/2."""
    env = ProposerSolver(domain="free")
    agents = [agent.replace("/", "_") for agent in env.possible_agents[1:]]
    asked = "Problem: Did its face point up?\nAnswer: yes"
    paid = [
        play(env, proposer=asked, **dict(zip(agents, tosses))).returns["proposer_0"]
        for tosses in product(("Answer: yes", "Answer: no"), repeat=6)
    ]
    assert sum(paid) / len(paid) == 0.03125
    none = ProposerSolver(domain="free", num_checkers=0)
    assert len(none.possible_agents) == 5
    assert (
        play(none, proposer=asked, solver="Answer: yes", problem_0_solver_0="Answer: no").returns["proposer_0"] == 0.5
    )


def test_problems_side_by_side():
    env = ProposerSolver(num_problems=3, num_solvers=2)
    said = {"proposer_1": "Problem: 20 + 7\nAnswer: 27", "proposer_2": "?", "problem_1_solver_0": "Answer: 0"}
    episode = play(env, **said)
    assert episode.info["verdicts"] == ["played", "played", "invalid"] and episode.outcome == "mixed"
    assert [episode.returns[f"proposer_{m}"] for m in range(3)] == [0, 1, -1]
    assert episode.trajectories["problem_1/solver_0"].info["problem"] == "20 + 7"
    assert episode.trajectories["problem_2/solver_0"].turns == []
    twice = play(env, proposer_1="Problem: 20 + 7\nAnswer: 27")  # proposers 0 and 2 write the same
    assert twice.info["verdicts"] == ["duplicate", "played", "duplicate"]
    assert twice.returns["proposer_0"] == twice.returns["proposer_2"] == 0


def test_the_options_give_the_problem():
    episode = play(ProposerSolver(num_problems=2), {"problem": "20 + 7"})
    assert episode.trajectories["proposer_0"].turns == [] and episode.returns["proposer_1"] == 0
    assert episode.returns["problem_1/solver_3"] == 1 and episode.turns == 8
    free = play(ProposerSolver(domain="free"), {"problem": "Name 27.", "answer": "27"})
    assert free.outcome == "played" and free.returns["problem_0/solver_0"] == 1


@pytest.mark.parametrize(
    ("domain", "options", "message"),
    [
        ("arithmetic", {"answer": "3"}, "option answer needs option problem"),
        (
            "arithmetic",
            {"problem": "x"},
            "option problem cannot be played: the problem is not an arithmetic expression",
        ),
        (
            "arithmetic",
            {"problem": "1+1", "answer": "3"},
            "option answer must be '2', which is what '1.1' gives; got '3'",
        ),
        ("arithmetic", {"problem": 7}, "option problem must be text"),
        ("free", {"problem": "Why?"}, "option answer must be text"),
        ("free", {"seen": "a problem"}, "option seen must be a list of problems"),
        ("free", {"seen": [3]}, "a problem in option seen must be text"),
    ],
)
def test_bad_options(domain, options, message):
    with pytest.raises(ValueError, match=message):
        play(ProposerSolver(domain=domain), options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_solvers": 0}, "num_solvers must be a whole number from 1 to 64"),
        ({"num_problems": 65}, "num_problems must be a whole number from 1 to 64"),
        ({"num_checkers": -1, "domain": "free"}, "num_checkers must be a whole number from 0 to 64"),
        ({"domain": "maths"}, "domain must be one of 'arithmetic', 'free'"),
        ({"proposer_reward": "gold"}, "proposer_reward must be one of"),
        ({"seen": "1+1"}, "seen must be a list of problems"),
        ({"seen": 3}, "seen must be a list of problems"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ProposerSolver(**arguments)


@pytest.mark.parametrize("memory", ["state", "chat"])
def test_solvers_see_the_problem_and_nothing_else_of_the_proposer(memory):
    env = ProposerSolver(domain="free", memory=memory, num_problems=2)
    env.reset(seed=0)
    for m in range(2):
        env.select(f"proposer_{m}")
        env.step(f"<think>THOUGHT{m}</think>I plan PLAN{m}.\nProblem: What is PROBLEM{m}?\nAnswer: KEY{m}\nAFTER{m}")
    env.select("problem_0/solver_0")
    env.step("Answer: MINE")
    for agent in env.possible_agents:
        shown = json.dumps([env.observe(agent), env.infos[agent]])
        mine = {
            "problem_0/solver_0": {"PROBLEM0", "MINE"},
            "proposer_0": {f"{w}0" for w in ("THOUGHT", "PLAN", "PROBLEM", "KEY", "AFTER")},
        }
        seen = {
            w
            for w in ("MINE", *(f"{w}{m}" for m in range(2) for w in ("THOUGHT", "PLAN", "PROBLEM", "KEY", "AFTER")))
            if w in shown
        }
        if agent in mine:
            assert seen == mine[agent]
        elif agent.startswith("problem"):
            assert seen == {f"PROBLEM{agent[8]}"}, agent


def test_credit_groups_solvers_by_their_problem():
    episode = play(
        ProposerSolver(num_problems=2, num_solvers=3), proposer_1="Problem: 20 + 7\nAnswer: 27", **some_right(2, 3)
    )
    parents = {agent: t.parent for agent, t in episode.trajectories.items()}
    assert parents["problem_1/solver_2"] == "problem_1" and parents["proposer_1"] == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [{"domain": "free"}, {"num_problems": 3, "num_solvers": 2}, {"proposer_reward": "variance"}]
)
def test_variants_pass_every_check(arguments):
    check_env("ProposerSolver-v0", episodes=30, skip=("seed.process",), raise_on_failure=True, **arguments)
