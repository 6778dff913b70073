"""Ids, namespaces, files and modules; and what importing the package loads."""

import asyncio
import importlib.util
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path

import pettingzoo
import pytest

import legos_envs
import legos_envs.tasks
from legos_envs import TextEnv, UnknownEnv
from legos_envs.games.kuhn_poker import KuhnPoker
from legos_envs.registry import families, family_of
from legos_envs.testing.pages import page

ROOT = Path(__file__).parents[2]

SOURCE = """
import legos_envs
from legos_envs import Seat, TextEnv

class {name}(TextEnv):
    name = "{name}-v0"
    seats = {{"player_0": Seat("player")}}

    def __init__(self, start=1, **kwargs):
        self.start = start
        super().__init__(**kwargs)

    def play(self, table):
        yield from table.ask("player_0", f"Count from {{self.start}}.")

legos_envs.register("{name}-v0", {name}, start=3)
"""


def test_make_is_pettingzoos_own_registry():
    env = legos_envs.make("KuhnPoker-v0", num_rounds=3)
    assert isinstance(env, KuhnPoker) and env.num_rounds == 3
    assert isinstance(pettingzoo.make("aec", "legos/KuhnPoker-v0"), KuhnPoker)
    assert isinstance(legos_envs.make("legos/KuhnPoker-v0"), KuhnPoker)
    assert isinstance(legos_envs.make(legos_envs.spec("KuhnPoker-v0")), KuhnPoker)


def test_registered_are_the_short_ids_of_this_project(capsys):
    assert "KuhnPoker-v0" in legos_envs.registered()
    assert all("/" not in id and "-v" in id for id in legos_envs.registered())
    legos_envs.pprint_registry()
    assert capsys.readouterr().out.split() == legos_envs.registered()


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("KuhnPokr-v0", "KuhnPoker-v0"), ("kuhnpoker-v0", "KuhnPoker-v0"), ("TicTacTo-v0", "TicTacToe-v0"),
     ("KuhnPoker-v7", "KuhnPoker-v0")],
)  # fmt: skip
def test_did_you_mean(wrong, near):
    with pytest.raises(UnknownEnv, match=f"{wrong}.*Did you mean .*'{near}'"):
        legos_envs.make(wrong)


def test_nothing_near():
    with pytest.raises(UnknownEnv, match=r"no environment 'Zzzzqqqq-v0' is registered\. `legos envs list` shows all"):
        legos_envs.spec("Zzzzqqqq-v0")
    assert issubclass(UnknownEnv, LookupError)


def test_an_id_without_a_version_is_the_newest_with_a_warning():
    legos_envs.register("ManyVersions-v2", KuhnPoker)
    legos_envs.register("ManyVersions-v10", KuhnPoker, num_rounds=2)
    with pytest.warns(UserWarning, match="'ManyVersions' names no version; using the newest, 'ManyVersions-v10'"):
        assert legos_envs.make("ManyVersions").num_rounds == 2


def test_an_env_in_a_file_is_made_and_pickles(tmp_path):
    file = tmp_path / "my_env.py"
    file.write_text(SOURCE.format(name="FromFile"))
    env = legos_envs.make(f"{file}:FromFile-v0")
    assert env.start == 3 and legos_envs.make(f"{file}:FromFile-v0", start=5).start == 5
    env.reset(seed=1)
    assert type(pickle.loads(pickle.dumps(env))) is type(env)
    with pytest.raises(UnknownEnv, match="'Other-v0'"):
        legos_envs.make(f"{file}:Other-v0")


def test_an_env_in_a_module_is_made(tmp_path, monkeypatch):
    (tmp_path / "module_with_env.py").write_text(SOURCE.format(name="FromModule"))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert legos_envs.make("module_with_env:FromModule-v0").start == 3


def test_missing_files_and_modules(tmp_path):
    with pytest.raises(UnknownEnv, match=r"no file '.*nowhere\.py', named before the ':'"):
        legos_envs.make(f"{tmp_path}/nowhere.py:X-v0")
    with pytest.raises(UnknownEnv, match="cannot import 'no_such_module'"):
        legos_envs.make("no_such_module:X-v0")


def test_a_file_that_fails_can_be_mended(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("1 / 0")
    with pytest.raises(legos_envs.UnknownEnv, match=r"ZeroDivisionError: division by zero \(line 1\)"):
        legos_envs.make(f"{file}:Mended-v0")
    file.write_text(SOURCE.format(name="Mended"))
    assert legos_envs.make(f"{file}:Mended-v0").name == "Mended-v0"


PAGED = '''"""Counting: a player counts on.

| | |
|---|---|
| creation | `counting.py:Counting-v0` |
| seats | `player_0` |
| horizon | 1 |
| sum of rewards | 1 |
"""
'''


def test_a_game_is_one_class_in_one_file(tmp_path):
    """Its one call of `register` puts it into the list of families, `legos envs list`, the docs and a training run."""
    file = tmp_path / "counting.py"
    source = SOURCE.format(name="Counting").replace("start=3)", 'family="Counting games", start=3)')
    file.write_text(PAGED + source)
    env = legos_envs.make(f"{file}:Counting-v0")
    assert list(families())[-1] == "Counting games" and families()["Counting games"] == ["Counting-v0"]
    assert family_of("Counting-v0") == family_of("legos/Counting-v0") == "Counting games" and env.start == 3
    assert page("Counting-v0").facts["seats"] == "`player_0`"
    table = env_pages().table()
    assert (
        "**Counting games**" in table
        and "(_generated/Counting-v0.md) | player | Counting: a player counts on. |" in table
    )
    episode = asyncio.run(legos_envs.play(env, lambda decision: "3", seed=0))
    assert [turn.action for turn in episode.trajectories["player_0"].turns] == ["3"]


def test_an_id_that_is_gone_is_in_no_family():
    legos_envs.register("Fleeting-v0", KuhnPoker, family="Fleeting games")
    del pettingzoo.aec_registry["legos/Fleeting-v0"]
    assert "Fleeting games" not in families() and family_of("KuhnPoker-v0") == "Board, card and matrix games"


def test_a_built_in_game_is_one_class_and_one_row():
    """No environment of the package is left out of the table in `legos_envs/__init__.py`, and none has two rows."""
    rows = [(id, f"legos_envs.{where}") for ids in legos_envs._BUILT_IN.values() for id, where in ids.items()]
    classes = {
        f"{module.name}:{name}"
        for package in (legos_envs.games, legos_envs.tasks)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        for name, value in vars(importlib.import_module(module.name)).items()
        if isinstance(value, type) and issubclass(value, TextEnv) and value.__module__ == module.name
        if "-v" in value.name and value.name != TextEnv.name  # not those that only others derive from
    }
    assert {where for _, where in rows} == classes and len(rows) == len(classes)
    code = "import legos_envs; print(*legos_envs.registered())"  # other tests register ids in this process
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert sorted(id for id, _ in rows) == done.stdout.split()


def env_pages():
    """docs/make_env_pages.py, imported."""
    found = importlib.util.spec_from_file_location("make_env_pages", ROOT / "docs/make_env_pages.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_import_loads_no_model_library():
    code = "import sys, legos_envs; legos_envs.make('KuhnPoker-v0').reset(seed=0); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"mlx", "mlx_lm", "transformers", "textarena", "pydantic", "torch", "pytest", "inference"}
    assert not any(name.startswith("legos_train") for name in loaded) and "legos_envs" in loaded
