"""The reference of the Python API: every public name of every face, with its signature and its text."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def maker() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        yield importlib.import_module("make_api_pages")
    finally:
        sys.path.remove(str(ROOT / "docs"))


def test_every_name_has_a_signature_and_a_text(maker: ModuleType, tmp_path: Path) -> None:
    maker.write(tmp_path)
    index = (tmp_path / "index.md").read_text()
    for face in maker.FACES:
        page = (tmp_path / f"{face}.md").read_text()
        assert f"({face}.md)" in index and len(maker.opening(importlib.import_module(face))) > 20
        names = maker.names(importlib.import_module(face))
        assert re.findall(r"^## (\S+)$", page, re.MULTILINE) == names and names
        assert " at 0x" not in page
        silent = [name for name in names if callable(value := getattr(importlib.import_module(face), name)) and not (
            value.__doc__ or isinstance(value, type(list[int]))
        )]  # fmt: skip
        assert not silent, (face, silent)


def test_a_page_says_it_as_the_code_does(maker: ModuleType) -> None:
    numeric, own = maker.page("legos_envs.wrappers.numeric"), maker.page("legos_envs")
    assert "Numeric(env: AECEnv, numbers: Numbers | None = None, *, mask: str = 'observation')" in numeric
    assert "**Raises:**\n\n- `ValueError`: the number is not that of a move." in numeric
    assert "make(id: str | EnvSpec, **kwargs: Any) -> AECEnv" in own and "### TextEnv.select" in own
    train = maker.page("legos_train")
    assert "- `role`: a role of the environments, or `ENV/ROLE` for one environment of several." in train
