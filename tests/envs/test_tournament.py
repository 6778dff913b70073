"""Tournaments: eight requests and more in flight, brackets of every size, standings, prizes."""

import asyncio
from random import Random

import pytest

import legos_envs
from legos_envs.scoring.judging import unquoted
from legos_envs.tasks.contests.matches import MatchResult
from legos_envs.tasks.contests.tournament import Tournament, bracket, points
from legos_envs.testing.harness import Player, drive
from tests.envs import nested
from tests.envs.test_matches import play

NUMBERS = [f"entrant_{i}" for i in range(16)]


def entrant_in(text):
    return text if isinstance(text, str) else text["speeches"][0]


def lowest_number_wins(decision):
    """Everybody names its entrant; the judge, who reads that, prefers the lower number."""
    if decision.role != "judge":
        return decision.info["entrant"]
    shown = unquoted(decision.messages[0]["content"])
    number = {label: int(entrant_in(shown[label]).rpartition("_")[2]) for label in "AB"}
    return "[A]" if number["A"] <= number["B"] else "[B]"


def tournament(num_entrants=4, seed=0, options=None, **kwargs):
    env = Tournament(num_entrants, **{"match": None, **kwargs})
    return play(env, dict.fromkeys(("answer", "judge", "pro", "con"), lowest_number_wins), seed, options)


def ranks(episode):
    return {row["entrant"]: row["rank"] for row in episode.info["standings"]}


# --- many requests at once -------------------------------------------------------------------------------------------


def test_four_debaters_play_six_debates_with_twelve_requests_in_flight():
    env = legos_envs.make("Tournament-v0")
    env.reset(seed=0)
    assert len(env.ready_agents) == 12 and {env.infos[agent]["role"] for agent in env.ready_agents} == {"pro", "con"}
    flying, most = set(), []

    async def policy(decision):
        flying.add(decision.agent)
        most.append(len(flying))
        await asyncio.sleep(0)
        flying.discard(decision.agent)
        return lowest_number_wins(decision)

    episode = asyncio.run(legos_envs.play(env, policy, 0))
    assert max(most) == 12 and episode.turns == 36
    assert episode.outcome == "entrant_0" and [row["points"] for row in episode.info["standings"]] == [3, 2, 1, 0]
    assert episode.info["champion"] == "entrant_0" and sum(episode.returns.values()) == 0


def test_debates_where_one_speaks_after_the_other_have_one_request_a_match():
    def ready(**kwargs):
        env = Tournament(**kwargs)
        env.reset(seed=0)
        return len(env.ready_agents)

    assert ready(match_kwargs={"turns": "alternate"}) == 6
    assert ready(num_entrants=5, match_kwargs={"turns": "alternate"}) == 10
    assert ready(match=nested.Debate, num_entrants=5) == 10
    assert ready(num_entrants=16, format="bracket") == 16


def test_any_order_of_answers_gives_the_same_tournament():
    def run(order=None, **kwargs):
        env = Tournament(5, match=None, prize=1.0, **kwargs)
        env.reset(seed=3)
        return drive(env, Player(None, 5), order=order)

    for kwargs in ({"format": "bracket"}, {}):
        plain = run(**kwargs)
        for n in range(3):
            other = run(Random(n), **kwargs)
            assert other.by_agent() == plain.by_agent() and other.last == plain.last
            assert other.returns == pytest.approx(plain.returns)


# --- brackets --------------------------------------------------------------------------------------------------------


def rounds_of(place, depth=0):
    """(seed, number of matches to the title) of every leaf, and the names of all matches."""
    if isinstance(place, int):
        return [(place, depth)], []
    name, *below = place
    parts = [rounds_of(node, depth + 1) for node in below]
    return [leaf for leaves, _ in parts for leaf in leaves], [name, *(n for _, names in parts for n in names)]


@pytest.mark.parametrize("count", range(2, 17))
def test_bracket_is_a_seeded_single_elimination(count):
    tree = bracket(count)
    leaves, names = rounds_of(tree)
    assert sorted(seed for seed, _ in leaves) == list(range(count))
    assert sorted(names) == sorted(f"match_{k}" for k in range(count - 1)) and tree[0] == f"match_{count - 2}"
    depth = dict(leaves)
    full = (count - 1).bit_length()
    byes = 2**full - count
    assert all(depth[seed] == full - (seed < byes) for seed in range(count))
    upper = {seed for seed, _ in rounds_of(tree[1])[0]}
    assert 0 in upper and 1 not in upper


@pytest.mark.parametrize("count", [2, 3, 5, 8, 11, 16])
def test_the_best_entrant_wins_whatever_the_lot(count):
    for seed in range(3):
        episode = tournament(count, seed, format="bracket")
        assert episode.outcome == "entrant_0" and len(episode.info["records"]) == count - 1
        played = [sum(name in r["entrants"] for r in episode.info["records"]) for name in NUMBERS[:count]]
        assert all(n >= 1 for n in played) and sum(played) == 2 * (count - 1)
        assert sum(row["losses"] for row in episode.info["standings"]) == count - 1


def test_seeding_and_ranks_of_a_bracket_of_eight():
    """Favourites win every match: seed 1 goes out in the final, 2 and 3 in the semifinals, the rest at once."""
    episode = tournament(8, format="bracket", options={"seeding": NUMBERS[:8]})
    first_round = [frozenset(record["entrants"]) for record in episode.info["records"][:4]]
    assert first_round == [frozenset({f"entrant_{i}", f"entrant_{7 - i}"}) for i in (0, 3, 1, 2)]
    assert ranks(episode) == dict(zip(NUMBERS, (1, 2, 3, 3, 5, 5, 5, 5)))
    assert episode.info["standings"][0] == {
        "entrant": "entrant_0",
        "rank": 1,
        "points": 3.0,
        "wins": 3,
        "draws": 0,
        "losses": 0,
    }
    assert {t.info["rank"] for t in episode.trajectories.values() if t.info.get("entrant") == "entrant_2"} == {3}


def test_winners_go_on_and_the_final_waits_for_both():
    env = Tournament(4, "bracket", match=None)
    env.reset(seed=0, options={"seeding": NUMBERS[:4]})
    assert len(env.ready_agents) == 4 and "entrant" not in env.infos["match_2/answer_0"]
    record = drive(env, Player(lowest_number_wins, 0))
    finalists = {record.last[f"match_2/answer_{i}"][1]["entrant"] for i in (0, 1)}
    assert finalists == {"entrant_0", "entrant_1"}
    ends = [k for k, step in enumerate(record.steps) if step.agent.startswith(("match_0", "match_1"))]
    starts = [k for k, step in enumerate(record.steps) if step.agent.startswith("match_2")]
    assert max(ends) < min(starts)


def test_lots_vary_seeding_and_first_seats():
    env = Tournament(4, "bracket", match=None)
    drawn, first = set(), set()
    for seed in range(20):
        env.reset(seed=seed, options={"seeding": NUMBERS[:4]})
        first.add(env.infos["match_0/answer_0"]["entrant"])
        env.reset(seed=seed)
        drawn.add(frozenset(env.infos[f"match_0/answer_{i}"]["entrant"] for i in (0, 1)))
    assert first == {"entrant_0", "entrant_3"} and len(drawn) == 6


def test_a_drawn_or_void_match_is_won_by_the_better_seed():
    seeding = ["entrant_2", "entrant_3", "entrant_1", "entrant_0"]
    for judge in ("[A]", "hm"):
        said = {"judge": "[A]", "match_1/judge_0": judge}  # always A in both orders: a draw
        episode = play(Tournament(4, "bracket", match=None), said, options={"seeding": seeding})
        assert episode.outcome == "entrant_2"
        assert ranks(episode) == {"entrant_2": 1, "entrant_3": 2, "entrant_1": 3, "entrant_0": 3}
    assert episode.info["records"][1]["ending"] == "unscored"


def test_a_worse_seed_that_wins_goes_on():
    episode = tournament(4, format="bracket", options={"seeding": NUMBERS[3::-1]})
    assert ranks(episode) == {"entrant_0": 1, "entrant_1": 2, "entrant_2": 3, "entrant_3": 3}


@pytest.mark.parametrize("seeding", [["entrant_0"], "entrant_0", ["entrant_0"] * 3, ["entrant_0", "entrant_1", 2], 7])
def test_seeding_must_name_everybody_once(seeding):
    with pytest.raises(ValueError, match=r"option seeding must be \['entrant_0', .*\] in some order; got"):
        Tournament(3, "bracket", match=None).reset(seed=0, options={"seeding": seeding})


# --- standings and prizes --------------------------------------------------------------------------------------------


def test_round_robin_shares_ranks():
    episode = play(Tournament(3, match=None), {"judge": "[A]"})
    assert ranks(episode) == dict.fromkeys(NUMBERS[:3], 1) and episode.info["champion"] is None
    assert episode.outcome == "shared" and {row["draws"] for row in episode.info["standings"]} == {2}


def test_equal_sums_of_thirds_share_a_rank():
    """Matches of four seats give thirds, which were added in another order for each entrant."""
    thirds = [1 / 3, 2 / 3, 1.0, 1 / 3, 2 / 3, 2 / 3]
    results = [
        MatchResult("m", ("a", "b"), (0.0, 0.0), (first, second), "played")
        for first, second in zip(thirds, sorted(thirds, reverse=True))
    ]
    one, other = points(("a", "b"), results).values()
    assert one == other == 3.666666667


def test_prizes_by_hand():
    """Four in a round robin, three seats each: +2, +2/3, -2/3, -2 in thirds on top of what the matches pay."""
    episode = tournament(4, prize=2.0)
    plain = tournament(4)
    prize = {"entrant_0": 2, "entrant_1": 2 / 3, "entrant_2": -2 / 3, "entrant_3": -2}
    for agent, trajectory in episode.trajectories.items():
        share = prize.get(trajectory.info.get("entrant"), 0) / 3
        assert trajectory.total - plain.returns[agent] == pytest.approx(share)
    level = play(Tournament(4, match=None, prize=2.0), {"judge": "[A]"})
    assert set(level.returns.values()) == {0}


def test_a_void_match_pays_no_part_of_a_prize():
    """The first of three meets both others; its prize is paid where it played, not where the judge failed."""
    env = Tournament(3, match=None, prize=1.0)
    said = {"judge": "[A]", "match_0/judge_0": "hm"}  # always A in both orders: draws
    episode = play(env, said)
    (void,) = [record for record in episode.info["records"] if record["ending"] == "unscored"]
    alone = ({*NUMBERS[:3]} - {*void["entrants"]}).pop()
    assert ranks(episode) == {alone: 1} | dict.fromkeys(void["entrants"], 2)
    for agent, trajectory in episode.trajectories.items():
        if trajectory.info["role"] == "answer":
            share = 0.5 if trajectory.info["entrant"] == alone else -0.5
            assert episode.returns[agent] == (0 if agent.startswith("match_0/") else share)
    bracket = play(Tournament(2, "bracket", match=None, prize=1.0), {"judge": "hm"})
    assert bracket.outcome == "unscored" and set(bracket.returns.values()) == {0}
    said = {"judge": "[A]", "match_0/judge_0": "hm"}
    bracket = play(Tournament(4, "bracket", match=None, prize=1.0), said, options={"seeding": NUMBERS[:4]})
    assert sum(bracket.returns.values()) == pytest.approx(0)  # who went out there has no other seat


def test_prizes_of_a_bracket_add_up_to_nothing():
    episode = tournament(5, format="bracket", prize=1.0, options={"seeding": NUMBERS[:5]})
    total = dict.fromkeys(NUMBERS[:5], 0.0)
    for agent, value in tournament(5, format="bracket", options={"seeding": NUMBERS[:5]}).returns.items():
        entrant = episode.trajectories[agent].info.get("entrant")
        if entrant:
            total[entrant] += episode.returns[agent] - value
    # Places 3 and 4 are shared by those who lost in the second round: (0 - 0.5) / 2.
    assert total == pytest.approx(dict(zip(NUMBERS, (1, 0.5, -0.25, -0.25, -1))))


def test_a_forfeit_does_not_end_the_others():
    env = Tournament(invalid_retries=0)
    episode = play(
        env, {"match_0/con_0": "", "pro": lowest_number_wins, "con": lowest_number_wins, "judge": lowest_number_wins}
    )
    records = episode.info["records"]
    assert records[0]["ending"] == "forfeit" and {record["ending"] for record in records[1:]} == {"played"}
    assert records[0]["entrants"] == ["entrant_0", "entrant_1"] and records[0]["forfeited"] == ["entrant_1"]
    assert episode.returns["match_0/pro_0"] == 1 and episode.returns["match_0/con_0"] == -1
    assert episode.outcome == "entrant_0" and sum(episode.returns.values()) == 0


def test_a_forfeit_sends_the_opponent_on():
    env = Tournament(4, "bracket", match=None, invalid_retries=0)
    episode = play(env, {"answer": lambda d: "" if d.info["entrant"] != "entrant_3" else "here"})
    assert episode.outcome == "entrant_3" and len(episode.info["records"]) == 3


def test_all_judges_fail():
    assert play(Tournament(match=None), {"judge": "hm"}).outcome == "unscored"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_entrants": 1}, "num_entrants must be a whole number from 2 to 16; got 1"),
        ({"format": "swiss"}, "format must be one of 'round_robin', 'bracket'; got 'swiss'"),
        ({"prize": -1}, "prize must be a finite number from 0 to 10; got -1"),
        ({"match": Tournament}, "the number of seats of a match; got 4; Tournament-v0 has 12"),
    ],
)
def test_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Tournament(**kwargs)
