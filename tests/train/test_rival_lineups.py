"""Learners that share seats: who plays whom, and who learns from it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from legos_train.league import LeagueSettings, Rival, RivalLeague

SEATS = ["player_0", "player_1"]


def league(opponents: dict[str, tuple[str, ...]], latest: float = 0.5, **changes: Any) -> RivalLeague:
    made = RivalLeague(
        LeagueSettings(**{"mode": "fsp", **changes}),
        0,
        {"env": True},
        {name: Rival(met, latest) for name, met in opponents.items()},
    )
    return made


def lineups(made: RivalLeague, count: int, claims: dict[str, tuple[str, ...]], step: int = 1) -> list[Any]:
    seats = list(claims)
    return [
        made.lineup(step, number, seats, {seat: "player" for seat in seats}, "env", claims) for number in range(count)
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 9), st.floats(0, 1), st.data())
def test_every_learner_takes_every_side_equally_often_against_opponents_of_its_own(
    count: int, sides: int, step: int, latest: float, data: st.DataObject
) -> None:
    names = tuple("abcd"[:count])
    met = {n: tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))) for n in names}
    made = league(met, latest)
    made.add("step_0", None)
    claims = {f"seat_{number}": names for number in range(sides)}
    rounds = 3
    found = lineups(made, rounds * count * sides, claims, step)
    assert found == lineups(made, rounds * count * sides, claims, step), "it depends on nothing else"
    focused: Counter[tuple[str, str]] = Counter()
    for number, (learners, members) in enumerate(found):
        assert learners and {*learners} | {*members} == {*claims} and not {*learners} & {*members}
        focus = names_at = None
        place = (number % (count * sides) + step) % (count * sides)
        side, at = divmod(place, count)
        focus, names_at = names[at], f"seat_{side}"
        assert learners[names_at] == focus
        focused[focus, names_at] += 1
        for seat in {*claims} - {names_at}:
            if seat in learners:
                others = {learners.get(s) or members[s].removeprefix("policy.") for s in claims if s != seat}
                assert learners[seat] in met[focus] and others <= {*met[learners[seat]]}, "it wants these opponents too"
            else:
                weights, _, of = members[seat].rpartition(".")
                assert weights in ("step_0", "policy") and of in met[focus]
    assert set(focused.values()) == {rounds}


def test_shares_of_current_weights_are_those_of_each_learner() -> None:
    rivals = {"main": Rival(("main", "late"), 0.25), "late": Rival(("main",), 1.0)}
    made = RivalLeague(LeagueSettings(mode="fsp"), 0, {"env": True}, rivals)
    for name in ("step_0", "step_5"):
        made.add(name, None)
    found = lineups(made, 4 * 100, dict.fromkeys(SEATS, ("main", "late")))
    pool = [m for learners, members in found for m in members.values() if not m.startswith("policy")]
    assert len(pool) == 150, "three quarters of the games that `main` chooses"
    assert set(pool) == {f"{s}.{n}" for s in ("step_0", "step_5") for n in ("main", "late")}
    early = RivalLeague(LeagueSettings(mode="fsp", start_from=3), 0, {"env": True}, rivals)
    early.add("step_0", None)
    found = lineups(early, 40, dict.fromkeys(SEATS, ("main", "late")), step=3)
    assert not any("step" in m for _, members in found for m in members.values())


@pytest.mark.parametrize(("count", "groups"), [(2, 1), (2, 2), (3, 1), (3, 4)])
def test_few_games_a_step_are_enough_for_all_to_meet(count: int, groups: int) -> None:
    names = tuple("abc"[:count])
    made = league(dict.fromkeys(names, names), mode="mirror")
    met: Counter[tuple[str, ...]] = Counter()
    for step in range(1, 2 * count**2 + 1):
        found = lineups(made, groups, dict.fromkeys(SEATS, names), step)
        met.update((learners["player_0"], learners["player_1"]) for learners, _ in found)
    assert len(met) == count**2 and (groups > 1 or {*met.values()} == {2})


def test_members_play_where_their_learner_does_and_no_name_is_taken_for_another() -> None:
    envs = {"cards": False, "heaps": False}
    sides = {"cards": [("a", "b"), ("d",)], "heaps": [("c",), ("c",)]}
    names = ("a", "b", "c", "d")
    settings = LeagueSettings(mode="fsp", opponents=("runs/past.b",))
    made = RivalLeague(settings, 0, envs, {name: Rival(names) for name in names}, sides)
    made.add("step_0", None)
    other = "runs/past.b"
    assert {*made.mixture(0, "cards")} == {"step_0.a", "step_0.b", other}
    assert {*made.mixture(1, "cards")} == {"step_0.d", other}
    assert {*made.mixture(0, "heaps")} == {"step_0.c", other}
    assert other in made.mixture(0, "cards", learner="d", among=("a",)) and not made.has_weights(other)
    made.standings["cards"].results["d"].add("step_0.a", "player", 1.0, 0.0, False)
    told = made.metrics()["learners"]
    assert told["d"]["win_rate"] == pytest.approx((0.75 + 0.5 + 0.5) / 3) and told["d"]["least_win_rate"] == 0.5
    assert made.win_rate("step_0.a", "d") == pytest.approx(0.75), "not diluted by envs in which they never met"


def test_a_side_of_one_learner_is_met_by_all_that_share_the_other() -> None:
    made = league({"red": ("red", "rose", "blue"), "rose": ("red", "rose", "blue"), "blue": ("rose",)}, mode="mirror")
    claims = {"attack": ("red", "rose"), "defence": ("blue",)}
    found = [made.lineup(1, n, list(claims), {s: s for s in claims}, "env", claims) for n in range(12)]
    pairs = Counter((learners.get("attack"), learners.get("defence")) for learners, members in found)
    assert pairs == {("red", "blue"): 4, ("rose", "blue"): 8}, "blue chooses rose"
    alone = {"solve": ("red", "rose")}
    one = [made.lineup(1, n, ["solve"], {"solve": "s"}, "env", alone) for n in range(4)]
    assert Counter(learners["solve"] for learners, _ in one) == {"red": 2, "rose": 2}
