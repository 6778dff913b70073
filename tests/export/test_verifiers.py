"""Environments as packages for verifiers: they compile, and their game loop plays with any conversation partner.

The classes that verifiers loads are tested where it is installed; no extra brings it.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import re
import tomllib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import legos_envs
from legos_train.cli.main import main
from legos_train.errors import ExportError
from legos_train.export import write_package


class Partner:
    """A conversation that always takes the first legal move, and keeps what it was told."""

    def __init__(self, first: Sequence[dict[str, str]], most: int | None = None, fail: bool = False):
        self.heard: list[str | None] = []
        self.first, self.most, self.fail = first, most, fail
        self.open = True

    async def turn(self, text: str | None) -> str | None:
        assert self.open
        await asyncio.sleep(0)
        if self.fail:
            raise ConnectionError("the endpoint is gone")
        self.heard.append(text)
        if self.most is not None and len(self.heard) > self.most:
            return None
        found = re.search(r"Reply with one legal action: (\[.+?\])", text or self.first[-1]["content"])
        return found[1] if found else "I have nothing to add."


def opener(**how: Any) -> tuple[Any, list[tuple[str, str, Partner]]]:
    """What opens conversations, and the list of those that it opened."""
    opened: list[tuple[str, str, Partner]] = []

    @asynccontextmanager
    async def converse(agent: str, role: str, first: Sequence[dict[str, str]]) -> AsyncIterator[Partner]:
        partner = Partner(first, **how)
        opened.append((agent, role, partner))
        try:
            yield partner
        finally:
            partner.open = False

    return converse, opened


@pytest.fixture(scope="module")
def kuhn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packages") / "kuhn"
    assert main(["export", "verifiers", "KuhnPoker-v0", str(out), "--arg", "num_rounds=3"]) == 0
    return out


@pytest.fixture(scope="module")
def table(kuhn: Path) -> ModuleType:
    """`table.py` of the written package, imported from there."""
    spec = importlib.util.spec_from_file_location("written_table", kuhn / "legos_kuhn_poker_v0/table.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_environment_becomes_a_package_that_compiles(tmp_path: Path) -> None:
    for env_id in legos_envs.registered():
        package, roles = write_package(env_id, tmp_path / env_id)
        source = (tmp_path / env_id / package / "__init__.py").read_text()
        tree = ast.parse(source)
        compile(tree, package, "exec")
        assert "@" not in re.sub(r"@asynccontextmanager", "", source), "a name was not filled in"
        config = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name.endswith("EnvConfig"))
        seats = [n.target.id for n in config.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        assert seats[: len(roles)] == list(roles) and seats[len(roles) :] == ["arguments", "scripted"]
        project = tomllib.loads((tmp_path / env_id / "pyproject.toml").read_text())
        assert project["project"]["name"].replace("-", "_") == package
        assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [package]


def test_the_loop_plays_the_game_that_play_plays(table: ModuleType) -> None:
    """Every seat in one conversation over all rounds, told only what is new to it."""
    converse, opened = opener()
    arguments = {"num_rounds": 3, "memory": "chat"}
    episode = asyncio.run(table.play("KuhnPoker-v0", arguments, 5, converse))
    same = asyncio.run(
        legos_envs.play(legos_envs.make("KuhnPoker-v0", **arguments), lambda d: (d.legal_actions or ("",))[0], 5)
    )
    assert legos_envs.records.episode_to_json(episode) == legos_envs.records.episode_to_json(same)
    assert sorted(agent for agent, _, _ in opened) == ["player_0", "player_1"]
    for agent, _, partner in opened:
        turns = episode.trajectories[agent].turns
        assert len(partner.heard) == len(turns) >= 3 and not partner.open
        assert list(turns[0].observation) == list(partner.first) and partner.heard[0] is None
        for before, after, heard in zip(turns, turns[1:], partner.heard[1:], strict=False):
            assert [m["content"] for m in after.observation[len(before.observation) + 1 :]] == [heard]


def test_a_view_that_starts_over_starts_a_new_conversation(table: ModuleType) -> None:
    converse, opened = opener()
    arguments = {"num_rounds": 2, "memory": "state"}
    episode = asyncio.run(table.play("KuhnPoker-v0", arguments, 5, converse))
    assert len(opened) == episode.turns and all(partner.heard == [None] for _, _, partner in opened)


def test_a_seat_without_a_model(table: ModuleType) -> None:
    converse, opened = opener()
    episode = asyncio.run(table.play("KuhnPoker-v0", {}, 3, converse, {"player_1": "random"}))
    assert {agent for agent, _, _ in opened} == {"player_0"} and episode.trajectories["player_1"].turns


def test_a_conversation_that_is_over_makes_invalid_moves(table: ModuleType) -> None:
    converse, opened = opener(most=0)
    episode = asyncio.run(table.play("KuhnPoker-v0", {"memory": "chat"}, 3, converse))
    assert episode.outcome == "invalid" and len(opened) == 1
    (agent, _, partner) = opened[0]
    assert partner.heard == [None], "it was asked again after its end"
    assert list(episode.info["offenders"]) == [agent]


def test_an_endpoint_that_fails_fails_the_episode_and_closes_all(table: ModuleType) -> None:
    """`pro` has spoken and waits for its next turn when `con` fails."""
    opened: list[Partner] = []

    @asynccontextmanager
    async def converse(agent: str, role: str, first: Sequence[dict[str, str]]) -> AsyncIterator[Partner]:
        partner = Partner(first, fail=role == "con")
        opened.append(partner)
        try:
            yield partner
        finally:
            partner.open = False

    async def play() -> None:
        with pytest.raises(ConnectionError, match="the endpoint is gone"):
            await asyncio.wait_for(table.play("Debate-v0", {"memory": "chat"}, 3, converse), 20)
        assert len(opened) == 2 and not any(partner.open for partner in opened)

    asyncio.run(play())


def test_nested_tables_and_judges(table: ModuleType) -> None:
    converse, opened = opener()
    episode = asyncio.run(table.play("Tournament-v0", {"memory": "chat"}, 3, converse))
    assert {agent for agent, _, _ in opened} == {a for a, t in episode.trajectories.items() if t.turns}
    assert {role for _, role, _ in opened} >= {"pro", "con", "judge"}


def test_what_cannot_be_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExportError, match="not a registered id"):
        write_package("some.module:Game-v0", tmp_path / "x")
    assert main(["export", "verifiers", "KuhnPokr-v0", str(tmp_path / "x")]) == 1
    assert "KuhnPoker-v0" in capsys.readouterr().err and not (tmp_path / "x").exists()


@pytest.mark.filterwarnings("ignore")
def test_verifiers_loads_the_package(kuhn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs verifiers 0.4, which no extra brings."""
    vf = pytest.importorskip("verifiers.v1")
    monkeypatch.syspath_prepend(str(kuhn))
    package = importlib.import_module("legos_kuhn_poker_v0")
    env = package.load_environment(player_1={"model": "other"}, taskset={"first_seed": 4, "num_tasks": 2})
    assert isinstance(env, vf.Env) and list(env._agent_specs) == ["player_0", "player_1"]
    assert [task.data.seed for task in env.taskset] == [4, 5]
    agents = vf.Agents(env.config, lambda name, spec: type("Seat", (), {"trainable": True})())
    asyncio.run(env.setup(agents))
    assert agents.player_0.trainable and not agents.player_1.trainable


def test_random_play_of_a_seat_is_reproducible(table: ModuleType) -> None:
    """The seed of a task fixes the scripted seats, too."""
    played = [asyncio.run(table.play("KuhnPoker-v0", {}, 9, opener()[0], {"player_1": "random"})) for _ in range(2)]
    assert played[0].returns == played[1].returns
