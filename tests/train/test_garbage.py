"""While a run steps, garbage is collected rarely; afterwards as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from legos_train import train
from legos_train.run import garbage
from legos_train.run.garbage import YOUNG, any_frozen, rarely_collected
from tests.train.helpers import small


@pytest.fixture
def thawed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without what `tests/conftest.py` has frozen."""
    monkeypatch.setattr(garbage, "any_frozen", any_frozen)  # and without what tests/once.py says of it
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("thawed")
@pytest.mark.slow
def test_a_run_steps_with_rare_passes(tmp_path: Path) -> None:
    before, seen = gc.get_threshold(), []
    train(
        small(batch_size=2, steps=1, run_dir=tmp_path / "run"),
        quiet=True,
        on_step=lambda _: seen.append((gc.get_threshold(), gc.get_freeze_count() > 0)),
    )
    assert seen == [((YOUNG, *before[1:]), True)]
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_two_runs_at_once_leave_the_collector_as_it_was() -> None:
    """The second took the first one's setting for the process's own, and put it back last."""
    before, second = gc.get_threshold(), rarely_collected()
    with rarely_collected():
        second.__enter__()
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_an_error_leaves_the_collector_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="stop"), rarely_collected():
        raise ValueError("stop")
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0


def test_what_the_caller_froze_stays_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "any_frozen", any_frozen)
    gc.freeze()
    count = gc.get_freeze_count()
    with rarely_collected():
        pass
    assert 0 < gc.get_freeze_count() <= count
