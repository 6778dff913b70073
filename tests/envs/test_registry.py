"""Ids, namespaces, files and modules; and what importing the package loads."""

import pickle
import subprocess
import sys

import pettingzoo
import pytest

import legos_envs
from legos_envs import UnknownEnv
from legos_envs.games.kuhn_poker import KuhnPoker

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


def test_import_loads_no_model_library():
    code = "import sys, legos_envs; legos_envs.make('KuhnPoker-v0').reset(seed=0); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"mlx", "mlx_lm", "transformers", "textarena", "pydantic", "torch", "pytest", "inference"}
    assert not any(name.startswith("legos_train") for name in loaded) and "legos_envs" in loaded
