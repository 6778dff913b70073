"""A stranger's file: an env with nested tables and a reward of its own, trained from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from legos_envs.records import episode_from_json
from legos_train.cli.main import main

FILE = '''
"""Two writers each lead a pair of helpers; a pair is paid for saying the same word, a writer for its pair."""

from legos_envs import Seat, TextEnv, register

WORDS = ("red", "blue")


class Pairs(TextEnv):
    """Helpers of one pair answer at once and want to agree."""

    name = "Pairs-v0"
    seats = {f"leader_{i}": Seat("leader") for i in range(2)} | {
        f"team_{i}/helper_{j}": Seat("helper") for i in range(2) for j in range(2)
    }

    def __init__(self, bonus: float = 1.0, **options):
        super().__init__(**options)
        self.bonus = bonus

    def play(self, table):
        told = yield from table.gather([table.ask(f"leader_{i}", "Name a colour.") for i in range(2)])
        teams = [self.team(table.sub(f"team_{i}"), word) for i, word in enumerate(told)]
        for i, agreed in enumerate((yield from table.gather(teams))):
            table.reward(f"leader_{i}", self.bonus * agreed)

    def team(self, table, word):
        asked = [table.ask(f"helper_{j}", f"Say one of {WORDS}. Hint: {word}") for j in range(2)]
        said = yield from table.gather(asked)
        agreed = float(said[0] == said[1])
        for j in range(2):
            table.reward(f"helper_{j}", agreed)
        return agreed


register("Pairs-v0", Pairs)
'''


def test_a_file_of_the_users_own_trains(tmp_path: Path) -> None:
    path = tmp_path / "pairs.py"
    path.write_text(FILE)
    assert len(FILE.splitlines()) <= 50
    arguments = ["--steps", "2", "--batch-size", "8", "--run-dir", str(tmp_path / "run"), "--eval.games", "2"]
    credit = ["--credit.name", "hierarchical_grpo", "--lora.rank", "4"]
    assert main(["train", "--env", f"{path}:Pairs-v0", "--arg", "bonus=2.0", *credit, *arguments]) == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [r["step"] for r in records] == [1, 2]
    assert set(records[0]["reward"]) == {"leader", "helper"} and records[0]["turns"] == 8 * 6
    rows = [json.loads(line) for line in (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()]
    helpers = [t["agent"] for t in rows[0]["episode"]["trajectories"] if t["role"] == "helper"]
    assert helpers == ["team_0/helper_0", "team_0/helper_1", "team_1/helper_0", "team_1/helper_1"]
    episode = episode_from_json(rows[0]["episode"])
    assert set(episode.tree.tables) == {"team_0", "team_1"} and set(episode.tree.returns) == {"leader_0", "leader_1"}
    assert set(episode.tree.tables["team_1"].trajectories) == {"team_1/helper_0", "team_1/helper_1"}
    assert [one.role for one in episode.trajectories.values()].count("helper") == 4
    # Siblings are compared with one another: the advantages of a pair add up to zero.
    for row in rows:
        for team in ("team_0", "team_1"):
            pair = [row["advantages"][f"{team}/helper_{j}"][0] for j in range(2)]
            assert abs(sum(pair)) < 1e-9
