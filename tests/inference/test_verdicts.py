"""Comparisons of forward passes are made once for a model and a machine, and what was kept is not believed blindly."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import zoo
from mlx import nn
from mlx_lm.models import qwen3

from inference.adapters import AdapterBank
from inference.forward import Fed, choose, decoder, host_forward, mlx_forward, verdicts


def model(seed: int = 0, **more: object) -> qwen3.Model:
    mx.random.seed(seed)
    config = {**zoo._BASE, "model_type": "qwen3", "num_hidden_layers": 2, **more}
    return qwen3.Model(qwen3.ModelArgs.from_dict(config))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEGOS_CACHE", str(tmp_path))
    return tmp_path / "forward"


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the forward passes that trials were made of."""
    made: list[str] = []
    for place in (choose, mlx_forward):
        monkeypatch.setattr(place, "trial", noted(mlx_forward.trial, made))
    return made


def noted(trial: Callable[..., list[mlx_forward.Logits]], made: list[str]) -> Callable[..., list[mlx_forward.Logits]]:
    def run(forward: mlx_forward.Forward, *args: object, **more: object) -> list[mlx_forward.Logits]:
        made.append(forward.name)
        return trial(forward, *args, **more)

    return run


def chosen(of: nn.Module) -> mlx_forward.Forward:
    return choose.choose_forward(of, AdapterBank(of, slots=2))


def test_a_second_load_makes_no_trials_and_the_same_choice(trials: list[str], folder: Path) -> None:
    first = chosen(model())
    assert trials and [*folder.iterdir()] == [*folder.glob("*.json")]
    trials.clear()
    second = chosen(model())
    assert not trials
    assert type(first) is type(second) is host_forward.HostForward and second.vocab == first.vocab


@pytest.mark.parametrize(
    "other",
    [lambda: model(seed=1), lambda: model(rms_norm_eps=1e-3), lambda: model(num_hidden_layers=3)],
    ids=["weights", "an argument", "blocks"],
)
def test_another_model_is_tried(other: Callable[[], nn.Module], trials: list[str]) -> None:
    chosen(model())
    trials.clear()
    chosen(other())
    assert trials


FOUND = ["", "{", "[]", '{"model": "another", "agreed": ["numpy"]}', '{"agreed": 3}', "x" * 9000]


def test_a_torn_or_foreign_file_counts_as_none(trials: list[str], folder: Path) -> None:
    chosen(model())
    (file,) = folder.iterdir()
    right = file.read_text()
    for found in FOUND:
        file.write_text(found)
        trials.clear()
        chosen(model())
        assert trials and json.loads(file.read_text()) == json.loads(right), found


def test_what_was_kept_and_is_wrong_is_found_out(
    monkeypatch: pytest.MonkeyPatch, trials: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As if an older mlx-lm had agreed with code that this one does not agree with."""
    chosen(model())
    trials.clear()
    monkeypatch.setattr(host_forward.HostForward, "__call__", wrong(host_forward.HostForward.__call__))
    monkeypatch.setattr(decoder, "hidden_states", wrong(decoder.hidden_states))
    one = model()
    with caplog.at_level(logging.INFO):
        forward = chosen(one)
    assert trials and isinstance(forward, mlx_forward.MlxForward) and not forward.own_decoder
    assert "runs its own code: the faster pass gives different results" in caplog.text
    ids = np.array([[3, 1, 2]], np.int32)
    found = forward(forward.new_kv(), Fed(0, [0], ids, [forward.bank.base]))
    np.testing.assert_allclose(found, np.asarray(one(mx.array(ids))), atol=1e-4)


def test_a_pass_in_numpy_that_gives_other_numbers_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host_forward.HostForward, "__call__", wrong(host_forward.HostForward.__call__))
    with caplog.at_level(logging.INFO):
        forward = chosen(model())
    assert isinstance(forward, mlx_forward.MlxForward) and forward.own_decoder
    assert "qwen3 runs in MLX: the faster numpy pass gives different results" in caplog.text


def wrong(right: Callable[..., object]) -> Callable[..., object]:
    return lambda *args, **more: right(*args, **more) * 1.01  # type: ignore[operator]


def test_nothing_is_kept_where_it_is_off_or_where_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch, trials: list[str], tmp_path: Path, folder: Path
) -> None:
    monkeypatch.setenv("LEGOS_CACHE", "off")
    chosen(model())
    once = len(trials)
    monkeypatch.setenv("LEGOS_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    chosen(model())
    assert not folder.exists() and len(trials) == 2 * once > 0


def test_a_chosen_folder_needs_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has no entry in passwd."""

    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.setattr(Path, "expanduser", lambda path: nobody() if str(path).startswith("~") else path)
    assert verdicts._folder() == tmp_path / "forward"
    monkeypatch.setenv("LEGOS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert verdicts._folder() == tmp_path / "legos" / "forward"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert verdicts._folder() is None
