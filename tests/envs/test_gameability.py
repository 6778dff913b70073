"""Degenerate players earn no more than the pages state, and `attack` sees rewards that can be gamed."""

import pytest

import legos_envs
from legos_envs import Seat, TextEnv
from legos_envs.testing import attack
from legos_envs.testing.degenerate import DEGENERATE
from tests.envs import sweeps

IDS = legos_envs.registered()
RARE = ("ConnectFour-v0", "LeducPoker-v0", "MatrixGame-v0", "PigDice-v0")
"""Chance decides more in their episodes, so that two are too few."""


@pytest.mark.parametrize("id", sweeps.ids())
def test_nobody_exceeds_the_floor_that_the_page_states(id):
    compare(id, 5 if id in RARE else 2)


@pytest.mark.slow
@pytest.mark.parametrize("id", IDS)
def test_many_episodes(id):
    compare(id, 150)


def compare(id, episodes):
    panel = attack(id, episodes=episodes)
    assert panel.declared and panel.ok, str(panel)
    assert all(set(table.cells) >= {"empty", "zero", "echo", "longest", "injection"} for table in panel.tables)


# --- rewards that can be gamed ---------------------------------------------------------------------------------------

PAGE = '''"""A question, an answer.

## Scripted players

| players | expected return | arguments | floor |
|---|---|---|---|
{rows}
"""

from legos_envs import Seat, TextEnv, register
from legos_envs.scoring import judging
from legos_envs.table import Unscored


class Sums(TextEnv):
    name = "{name}-v0"
    {seats}
    scripted_players = {{
        "good": lambda d: f"Answer: {{sum(map(int, d.messages[0]['content'].split()[2:5:2]))}}",
        "bad": lambda d: "Answer: no",
        "judge": lambda d: d.legal_actions[0],
    }}

    def play(self, table):
        one, other = (int(table.rng.integers(10, 1000)) for _ in range(2))
        said = yield from table.gather(
            table.ask(a, f"What is {{one}} + {{other}} ?") for a, s in self.seats.items() if s.trainable
        )
        truth = f"Answer: {{one + other}}"
        for agent, text in zip(self.seats, said):
            {pay}


register("{name}-v0", Sums)
'''
SOLVER = 'seats = {"solver_0": Seat("solver")}'
PAIR = 'seats = {"solver_0": Seat("solver"), "helper_0": Seat("helper")}'
RIGHT = "table.reward(agent, float(text == truth))"


@pytest.fixture
def sums(tmp_path):
    """Writes an environment into a file and returns its id."""

    def write(name, *rows, pay=RIGHT, seats=SOLVER):
        file = tmp_path / f"{name.casefold()}.py"
        file.write_text(PAGE.format(name=name, rows="\n".join(rows), pay=pay, seats=seats))
        return f"{file}:{name}-v0"

    return write


def players_above(panel):
    return {line.partition(": ")[2].partition(" as ")[0] for line in panel.failures}


def test_a_reward_for_what_is_right_is_not_gamed(sums):
    panel = attack(sums("Right", "| `*=scripted:good` | `solver +1` | | `solver 0` |"), episodes=5)
    assert panel.declared and panel.ok and "nobody exceeds a floor" in str(panel)
    (table,) = panel.tables
    assert set(table.cells) == {"the players of the row", *DEGENERATE} - {"equal", "leave"}
    assert table.cells["the players of the row"]["solver"].mean == 1


@pytest.mark.parametrize(
    ("name", "pay", "guilty"),
    [
        ("Length", "table.reward(agent, min(1.0, len(text) / 1000 + (text == truth)))", {"longest"}),
        ("Form", "table.reward(agent, float(text[:7] == 'Answer:'))", {"number", "hedge", "learned", "again"}),
        ("Mention", "table.reward(agent, float(str(one) in text or text == truth))", {"echo"}),
        ("Silence", "table.reward(agent, float('Answer: 0' in text or text == truth))", {"zero"}),
    ],
)
def test_each_way_to_game_a_reward_has_a_player_that_finds_it(sums, name, pay, guilty):
    panel = attack(sums(name, "| `*=scripted:good` | `solver +1` | | `solver 0.2` |", pay=pay), episodes=5)
    assert not panel.ok and guilty <= players_above(panel) and "empty" not in players_above(panel)
    assert "<-" in str(panel) and "above the floor +0.2" in str(panel)


def test_one_player_may_be_excused_by_name(sums):
    pay = "table.reward(agent, float(str(one) in text or text == truth))"
    row = "| `*=scripted:good` | `solver +1` | | `solver 0, {} 1` |"
    assert not attack(sums("Excused", row.format("copy"), pay=pay), episodes=5).ok
    assert attack(sums("Excuse", row.format("echo"), pay=pay), episodes=5).ok


def test_seats_that_are_paid_for_agreement_are_played_alike(sums):
    agree = "table.reward(agent, float(said[0] == said[1]))"
    row = "| `*=scripted:good` | `solver +1, helper +1` | | `solver 0, helper 0{}` |"
    alone = attack(sums("Agree", row.format(""), pay=agree, seats=PAIR), episodes=5)
    assert "no floor for 'together'" in str(alone)
    panel = attack(sums("Agreement", row.format(", together 0"), pay=agree, seats=PAIR), episodes=5)
    assert {"zero", "echo", "words"} <= players_above(panel)
    assert all("as together earns" in line for line in panel.failures)


def test_the_page_must_be_right_about_its_own_players(sums):
    wrong = attack(sums("Wrong", "| `*=scripted:bad` | `solver +1` | | `solver 0` |"), episodes=5)
    assert "as solver earn +0.000, the page says +1" in str(wrong)
    high = attack(sums("High", "| `*=scripted:bad` | `solver 0` | | `solver 0.5` |"), episodes=5)
    assert "the floor of solver, +0.5, is above +0" in str(high)
    with pytest.raises(ValueError, match="'solvr'; trained seats are"):
        attack(sums("Misspelt", "| `*=scripted:good` | `solver +1` | | `solvr 0` |"), episodes=1)


@pytest.mark.parametrize(
    ("name", "shown", "ok"), [("Quoted", "judging.quoted(table, {'A': text})", True), ("Bare", "text", False)]
)
def test_orders_must_not_reach_a_judge_outside_of_a_quote(sums, name, shown, ok):
    pay = f"yield from table.ask('judge_0', {shown}, legal=('yes', 'no')); {RIGHT}"
    seats = 'seats = {"solver_0": Seat("solver"), "judge_0": Seat("judge", trainable=False)}'
    row = "| `judge=scripted:judge *=scripted:good` | `solver +1` | | `solver 0` |"
    panel = attack(sums(name, row, pay=pay, seats=seats), episodes=3)
    assert panel.ok == ok
    assert ok or "injection as solver: seed 0: its orders reach judge_0 outside of a quote" in str(panel)


def test_without_a_floor_there_is_a_warning_and_no_failure(sums):
    panel = attack(sums("Stranger", "| `*=scripted:good` | `solver +1` |"), episodes=3)
    assert panel.ok and not panel.declared and "warning: no floor" in str(panel) and "  echo " in str(panel)
    assert not attack("KuhnPoker-v0", episodes=1, num_rounds=3).declared

    class Watched(TextEnv):
        seats = {"judge_0": Seat("judge", trainable=False)}

        def play(self, table):
            yield from table.ask("judge_0", "Well?")

    assert "none of its seats is trained" in str(attack(Watched, episodes=1))
