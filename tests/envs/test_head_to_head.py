"""Head to head: the contest by default, any env of two seats with the same deal for both sides, several entrants."""

import asyncio
import statistics

import pytest

import legos_envs
from legos_envs.games.kuhn_poker import KuhnPoker
from legos_envs.policies import make_policy
from legos_envs.tasks.contests.head_to_head import HeadToHead
from tests.envs.test_matches import play, prefers


def first_texts(env, seed=0):
    env.reset(seed=seed)
    return {agent: env.observe(agent)["messages"][0]["content"] for agent in env.ready_agents}


def test_the_judge_decides_between_two_answers():
    episode = play(HeadToHead(), {"judge": prefers("match_0/answer_1", "match_0/answer_0")})
    assert episode.returns == {"match_0/answer_0": -1, "match_0/answer_1": 1, "match_0/judge_0": 0}
    assert episode.outcome == episode.info["winner"] == "entrant_1"
    assert episode.info["points"] == {"entrant_0": 0.0, "entrant_1": 1.0}
    assert [t.info.get("entrant") for t in episode.trajectories.values()] == ["entrant_0", "entrant_1", None]
    level = play(HeadToHead(), {"judge": "[B]"})
    assert level.outcome == "draw" and level.info["winner"] is None


def test_games_of_the_contest_have_prompts_of_their_own_and_no_swap():
    texts = first_texts(HeadToHead(games=3))
    assert len(texts) == 6 and len(set(texts.values())) == 3
    env = HeadToHead(games=3)
    assert all(seat.entrant == f"entrant_{agent[-1]}" for agent, seat in env.seats.items() if seat.trainable)


def test_both_games_have_the_same_deal_with_seats_swapped():
    env = HeadToHead("KuhnPoker-v0", games=4)
    assert [env.seats[f"match_{k}/player_0"].entrant for k in range(4)] == ["entrant_0", "entrant_1"] * 2
    cards = []
    for seed in range(20):
        texts = first_texts(env, seed)
        assert texts["match_0/player_0"] == texts["match_1/player_0"]
        assert texts["match_2/player_0"] == texts["match_3/player_0"]
        cards.append((texts["match_0/player_0"][-60:], texts["match_2/player_0"][-60:]))
    assert any(one != two for one, two in cards)
    apart = HeadToHead("KuhnPoker-v0", swap=False)
    assert {seat.entrant for agent, seat in apart.seats.items() if "player_0" in agent} == {"entrant_0"}
    assert any(len(set(first_texts(apart, seed).values())) == 2 for seed in range(20))


def test_equal_deterministic_players_share_every_pair_of_games():
    """With one deal and seats swapped, luck and seat cancel exactly: each entrant gets what the other gets."""
    env = HeadToHead("KuhnPoker-v0")
    for seed in range(30):
        episode = asyncio.run(legos_envs.play(env, make_policy("scripted:first", env), seed))
        assert episode.outcome == "draw" and episode.info["points"] == {"entrant_0": 1.0, "entrant_1": 1.0}


@pytest.mark.slow
def test_the_better_player_wins_and_swapping_makes_it_surer():
    """Equilibrium play against one that never bets and always calls: chips over both games spread less when swapped."""
    spread = {}
    for swap in (True, False):
        env = HeadToHead(KuhnPoker, swap=swap)
        good, bad = make_policy("optimal", env), make_policy("scripted:first", env)

        def policy(decision, good=good, bad=bad):
            return (good if decision.info["entrant"] == "entrant_0" else bad)(decision)

        won = []
        for seed in range(300):
            episode = asyncio.run(legos_envs.play(env, policy, seed))
            won.append(sum(t.total for t in episode.trajectories.values() if t.info["entrant"] == "entrant_0"))
        spread[swap] = statistics.stdev(won)
        assert statistics.mean(won) > 2 * spread[swap] / 300**0.5
    assert spread[True] < 0.8 * spread[False]


def test_three_entrants_answer_one_prompt():
    env = HeadToHead(num_entrants=3, games=2)
    texts = first_texts(env)
    assert len(texts) == 6 and len(set(texts.values())) == 2
    names = [f"match_{k}/answer_{i}" for k in (0, 1) for i in (1, 0, 2)]
    episode = play(env, {"judge": prefers(*names)})
    assert episode.info["points"] == {"entrant_0": 1.0, "entrant_1": 2.0, "entrant_2": 0.0}
    assert episode.outcome == "entrant_1" and episode.returns["match_1/answer_2"] == -1
    assert sum(episode.returns.values()) == 0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_entrants": 1}, "num_entrants must be a whole number from 2 to 8; got 1"),
        ({"match_kwargs": {"num_answers": 3}}, "num_answers is set by num_entrants here: give num_entrants"),
        ({"num_entrants": 9}, "num_entrants must be a whole number from 2 to 8; got 9"),
        (
            {"num_entrants": 3, "match": "KuhnPoker-v0"},
            "exactly 3 trainable seats; KuhnPoker-v0 has 2",
        ),
        ({"games": 0}, "games must be a whole number from 1 to 64; got 0"),
        ({"swap": "no"}, "swap must be one of True, False; got 'no'"),
        ({"match_kwargs": {"num_rounds": 0}, "match": "KuhnPoker-v0"}, "num_rounds must be a whole number"),
        (
            {"match": HeadToHead, "match_kwargs": {"games": 2}},
            r"exactly 2 trainable seats; HeadToHead-v0 has 4: \['match_0/ans",
        ),
    ],
)
def test_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        HeadToHead(**kwargs)
