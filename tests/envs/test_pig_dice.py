"""Pig: the published solution, the rules against it, and dice that depend on the seed alone."""

import asyncio
from functools import cache

import numpy as np
import pytest

import legos_envs
from legos_envs import Decision
from legos_envs.games import pig_solver as pig_solver
from legos_envs.games.pig_dice import PigDice, hold_at_20, optimal, shown
from legos_envs.policies import make_policy
from legos_envs.testing.pages import page


def expected_return(goal, rounds, first, second):
    """What the first player gets on average from level scores when both play fixed policies, exactly.

    Args:
        goal: the points that win.
        rounds: turns of each player, after which the higher score wins.
        first: (total, own, other) the first player's probability of holding.
        second: the second player's.
    """
    scores = np.arange(goal)
    values = np.sign(scores[:, None] - scores[None, :]).astype(float)
    for _ in range(rounds):
        values, _ = pig_solver.turn(values, second)
        values, _ = pig_solver.turn(values, first)
    return float(values[0, 0])


def hold_at(points, goal):
    """Holds with so many points: (total, own, other)."""
    hold = np.zeros((goal, goal, goal))
    hold[points:] = 1
    return hold


@cache
def policy_of(name, goal):
    return {
        "random": lambda: np.full((goal, goal, goal), 0.5),
        "optimal": lambda: pig_solver.solve(goal).hold.astype(float),
        "scripted:hold_at_20": lambda: hold_at(20, goal),
        "scripted:first": lambda: hold_at(goal, goal),
        "scripted:last": lambda: hold_at(0, goal),
    }[name]()


@pytest.mark.slow
def test_perfect_play_to_100_wins_as_often_as_neller_and_presser_say():
    """0.5306 of games for the player who begins; and 0.5347 when both hold at 20."""
    assert (1 + pig_solver.solve(100).values[0, 0]) / 2 == pytest.approx(0.5306, abs=5e-5)
    both = expected_return(100, 30, hold_at(20, 100), hold_at(20, 100))
    assert (1 + both) / 2 == pytest.approx(0.5347, abs=5e-5)


def test_their_example_where_the_opponent_has_almost_won():
    """At 0 : 99 nothing but the whole way helps."""
    hold = pig_solver.solve(100).hold
    assert not hold[2:99, 0, 99].any()
    assert hold[25, 0, 0] and not hold[15, 0, 0]


@pytest.mark.slow
def test_every_expected_return_on_the_page_is_exact():
    for claim in page("PigDice-v0").claims:
        env = PigDice(**claim.arguments)
        first, second = (
            policy_of(claim.players.get(agent) or claim.players["*"], env.goal) for agent in env.possible_agents
        )
        value = expected_return(env.goal, env.max_rounds, first, second)
        assert claim.returns == pytest.approx({"player_0": value, "player_1": -value}, abs=5.1e-5)


def test_nobody_does_better_than_perfect_play_and_always_rolling_is_perfect_to_30():
    best = policy_of("optimal", 40)
    value = expected_return(40, 40, best, best)
    assert value == pytest.approx(pig_solver.solve(40).values[0, 0], abs=1e-6), "the last round is hardly ever seen"
    for name in ("random", "scripted:hold_at_20", "scripted:first", "scripted:last"):
        assert expected_return(40, 15, policy_of(name, 40), best) < value - 0.01
        assert expected_return(40, 15, best, policy_of(name, 40)) > value + 0.01
    assert not pig_solver.solve(30).hold[2:, 0, 0].any()


def test_one_turn_by_hand():
    """To 10, in the last round, when both hold after their first roll."""
    level = np.sign(np.arange(10)[:, None] - np.arange(10)[None, :]).astype(float)
    other, _ = pig_solver.turn(level, hold_at(0, 10))
    assert other[0, 8] == -1, "6 points at most, against 8"
    assert other[8, 8] == pytest.approx(5 / 6), "2 to 6 win, a 1 leaves it level"
    assert other[4, 8] == pytest.approx((-1 - 1 - 1 + 0 + 1 + 1) / 6), "a 6 makes the goal, a 5 the lead, a 4 level"
    mover, _ = pig_solver.turn(other, hold_at(0, 10))
    assert mover[8, 0] == pytest.approx(1), "2 to 6 win, a 1 leaves the other out of reach"
    assert mover[8, 8] == pytest.approx(5 / 6 - 1 / 6 * 5 / 6), "after a 1 it is the other's 5 / 6"


def moves_of(env, seed, choose, options=None):
    """Plays with `choose(facts) -> move`; returns what was shown before each move, and the returns."""
    env.reset(seed=seed, options=options)
    seen, totals = [], dict.fromkeys(env.possible_agents, 0.0)
    while not env.ended:
        agent = env.agent_selection
        text = env.observe(agent)["messages"][-1]["content"]
        facts = shown(Decision(agent, agent, env.observe(agent), env.infos[agent], 0, 0))
        facts |= {
            "Rolled": int(text.rpartition("You rolled ")[2][0]),
            "Round": int(text.rpartition("Round ")[2].split()[0]),
        }
        seen.append((agent, facts))
        env.step(f"[{choose(facts)}]")
        for name, value in env.rewards.items():
            totals[name] += value
    return seen, totals


@pytest.mark.parametrize("seed", range(8))
def test_points_add_up_as_the_rules_say(seed):
    env, enough = PigDice(goal=40), 6 + 3 * seed
    seen, totals = moves_of(env, seed, lambda facts: "hold" if facts["Turn total"] >= enough else "roll")
    scores = {"player_0": 0, "player_1": 0}
    before = None
    for agent, facts in seen:
        other = "player_1" if agent == "player_0" else "player_0"
        going_on = before is not None and before[0] == agent and before[1]["Turn total"] < enough
        same_turn = going_on and facts["Turn total"] != facts["Rolled"]
        assert 2 <= facts["Rolled"] <= 6 and facts["Goal"] == 40
        assert facts["Turn total"] == facts["Rolled"] + (before[1]["Turn total"] if same_turn else 0)
        if before is not None and before[1]["Turn total"] >= enough:
            scores[before[0]] += before[1]["Turn total"]
        assert (facts["Your score"], facts["Other's score"]) == (scores[agent], scores[other])
        before = agent, facts
    final = {agent: env.infos[agent]["score"] for agent in scores}
    winner = max(final, key=final.get)
    assert final[winner] >= 40 > min(final.values())
    assert totals == {agent: 1.0 if agent == winner else -1.0 for agent in scores}


def test_the_last_round_decides_by_the_higher_score():
    results = set()
    for seed in range(60):
        env = PigDice(goal=100, max_rounds=1)
        seen, totals = moves_of(env, seed, lambda facts: "hold")
        scores = [env.infos[agent]["score"] for agent in env.possible_agents]
        assert len(seen) <= 2 and all(score in (0, 2, 3, 4, 5, 6) for score in scores)
        assert totals["player_0"] == (scores[0] > scores[1]) - (scores[0] < scores[1]) == -totals["player_1"]
        results.add(totals["player_0"])
    assert results == {-1, 0, 1}


def test_the_dice_are_fair_and_a_function_of_the_seed():
    env, other, faces = PigDice(goal=30), PigDice(goal=30), []
    for seed in range(100):
        rolled = [[facts["Rolled"] for _, facts in moves_of(e, seed, lambda facts: "roll")[0]] for e in (env, other)]
        assert rolled[0] == rolled[1]
        faces += rolled[0]
    counts = np.bincount(faces, minlength=7)[2:]
    assert ((counts - len(faces) / 5) ** 2 / (len(faces) / 5)).sum() < 18.5, "chi-square, 4 degrees: 0.1 %"


def test_an_invalid_move_throws_no_dice():
    env = PigDice()
    env.reset(seed=3)
    twin = PigDice()
    twin.reset(seed=3)
    env.step("Let me think.")
    for each in (env, twin):
        each.step("[roll]")
    last = [each.observe(each.agent_selection)["messages"][-1]["content"] for each in (env, twin)]
    assert last[0] == last[1]


@pytest.mark.parametrize("memory", ["state", "chat"])
def test_scripted_players_read_the_position(memory):
    env = PigDice(goal=100, memory=memory)
    for seed in range(20):
        env.reset(seed=seed, options={"scores": [0, 99]})
        agent = env.agent_selection
        env.step("hm")  # in a chat, the retry does not show the position again
        decision = Decision(agent, agent, env.observe(agent), env.infos[agent], 1, 0)
        facts = shown(decision)
        assert facts["Goal"] == 100 and facts["Your score"] == (0 if agent == "player_0" else 99)
        assert hold_at_20(decision) == "roll"
        if agent == "player_0":
            assert optimal(decision) == "roll"
    with pytest.raises(LookupError, match="has seen no position of Pig"):
        shown(Decision("player_0", "player_0", {"messages": ()}, {}, 0, 0))


def test_perfect_play_beats_random_play():
    env = PigDice(goal=40)
    for seat, other in (("player_0", "player_1"), ("player_1", "player_0")):
        policies = {seat: make_policy("optimal", env), other: make_policy("random", env)}
        got = [asyncio.run(legos_envs.play(env, policies, seed)).returns[seat] for seed in range(150)]
        mine, theirs = policy_of("optimal", 40), policy_of("random", 40)
        first, second = (mine, theirs) if seat == "player_0" else (theirs, mine)
        value = expected_return(40, 20, first, second) * (1 if seat == "player_0" else -1)
        assert value > 0.4
        assert sum(got) / len(got) == pytest.approx(value, abs=4 * 0.8 / len(got) ** 0.5)


def test_an_episode_may_be_over_before_anybody_was_asked():
    ended = 0
    for seed in range(60):
        env = PigDice(goal=10)
        env.reset(seed=seed, options={"scores": [9, 9]})
        assert env.ended and sorted(env._cumulative_rewards.values()) == [-1, 1]
        ended += env._cumulative_rewards["player_0"] == 1
    assert 40 < ended < 60


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"goal": 9}, "goal must be a whole number from 10 to 100; got 9"),
        ({"goal": 101}, "goal must be"),
        ({"goal": "50"}, "goal must be"),
        ({"max_rounds": 0}, "max_rounds must be a whole number from 1 to 1000; got 0"),
    ],
)
def test_bad_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        PigDice(**wrong)


@pytest.mark.parametrize("scores", [[50, 0], [0, -1], [1], "30", 7, [1.5, 2], {"player_0": 1}])
def test_bad_scores_are_refused(scores):
    with pytest.raises(ValueError, match="option scores must be"):
        PigDice().reset(seed=0, options={"scores": scores})


def test_the_turn_limit_is_never_the_end():
    env = PigDice(goal=20, max_rounds=3)
    assert env.max_turns == 2 * 3 * 10 * 2
    for seed in range(200):
        moves_of(env, seed, lambda facts: "roll")
        assert all(env.terminations.values())
