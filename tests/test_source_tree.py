"""The laws of tests/test_layering.py, each broken once in a small tree: `low` knows nobody, `high` knows `low`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.source_tree import Code

LAZY = "import lazy_loader\n__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)\n"
TREE = {
    "low/__init__.py": "",
    "low/alone.py": "from json import dumps\nfrom os import sep as sep\nX = 1\n",
    "high/__init__.py": "import lazy_loader\n",
    "high/top/__init__.py": "",
    "high/top/use.py": "from high.disk import fsops\nfsops.write()\n",
    "high/disk/__init__.py": LAZY,
    "high/disk/__init__.pyi": "from . import fsops as fsops\nfrom . import marks as marks\nfrom .names import f as f\n",
    "high/disk/fsops.py": "def write(): ...\n",
    "high/disk/marks.py": "from high.disk import fsops\nfrom high.disk.names import f\ndef mark(): fsops.write()\n",
    "high/disk/names.py": "Pair = tuple[int, int]\ndef f(): ...\n",
    "high/base.py": "",
}
ORDER = ["top", "disk", "base"]

Make = Callable[..., Code]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    def make(**changed: str) -> Code:
        """The tree with lines added to files; their names are written with `__` for `/`."""
        for name, text in TREE.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        for name, text in changed.items():
            path = tmp_path / f"{name.replace('__', '/').replace('INIT', '__init__')}"
            path = path if path.suffix else path.with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text((path.read_text() if path.exists() else "") + text + "\n")
        return Code(tmp_path, ("low", "high"))

    return make


def laws(code: Code) -> dict[str, list[str]]:
    """The broken laws."""
    found: Mapping[str, list[str]] = {
        "up": code.upwards("high", ORDER) + code.upwards("low", ["alone"]),
        "strangers": code.strangers("low", {"json", "os", "lazy_loader"}),
        "past": code.past_faces(),
        "both": code.both_ways(),
        "circles": code.circles(),
        "crowded": code.crowded(4, 2),
        "twice": code.twice("high"),
    }
    return {law: said for law, said in found.items() if said}


def test_the_tree_breaks_no_law(made: Make) -> None:
    assert laws(made()) == {}


@pytest.mark.parametrize(
    "line",
    [
        "def g():\n    import high.top",
        "from high import top",
        "import high\nhigh.top",
        "import importlib\nimportlib.import_module('high.top.use')",
        "from importlib import import_module\nimport_module('..top', __package__)",
        "from importlib import import_module\nimport_module(f'high.top.{1}')",
        "x = __import__('high.top')",
        "import lazy_loader\nuse = lazy_loader.load('high.top.use')",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from high.top.use import fsops",
        "from high import anything",
    ],
)
def test_upwards(made: Make, line: str) -> None:
    assert "up" in laws(made(high__disk__fsops=line)), line


@pytest.mark.parametrize("line", ["from high import top", "from ..top import use", "from .. import top"])
def test_upwards_in_a_face_that_has_a_stub(made: Make, line: str) -> None:
    assert "up" in laws(made(high__disk__INIT=line))


def test_a_lazy_face_without_a_stub(made: Make) -> None:
    code = made(high__top__INIT="import lazy_loader\nlazy_loader.attach(__name__, ['use'], {'use': ['write', 'mark']})")
    assert "high.top.use" in [use.target for use in code.imports["high.top"]]
    assert code.faces["high.top"] == ["mark", "use", "write"] and code.modules_of("high.top") == ["use"]


@pytest.mark.parametrize("line", ["import high", "def g():\n    import mlx.core as mx", "__import__('mlx')"])
def test_strangers(made: Make, line: str) -> None:
    assert list(laws(made(low__alone=line))) == ["strangers"], line


@pytest.mark.parametrize(
    "line",
    [
        "from high.disk.names import f",
        "import high.disk\nhigh.disk.names.f()",
        "import high.disk as disk\ndisk.names.f()",
        "from high import disk\ndisk.names",
        "from high.disk import marks\nmarks.fsops.write()",
        "from high.disk import marks\nmarks.f()",
        "from high.disk.marks import f",
        "from low.alone import dumps",
        "from low import alone\nalone.dumps",
    ],
)
def test_past_a_face(made: Make, line: str) -> None:
    assert list(laws(made(high__top__use=line))) == ["past"], line


@pytest.mark.parametrize(
    "line",
    [
        "from low.alone import X, sep",
        "import low.alone\nlow.alone.X",
        "from high.disk import marks\nmarks.mark().fsops",
    ],
)
def test_what_a_module_defines_or_says_that_it_offers_is_open(made: Make, line: str) -> None:
    assert laws(made(high__top__use=line)) == {}


def test_offers_of_a_list_are_open_but_no_module_is(made: Make) -> None:
    use = "from high.disk import marks\nmarks.f()"
    assert laws(made(high__disk__marks="__all__ = ['f', 'mark']", high__top__use=use)) == {}
    assert "past" in laws(
        made(high__disk__marks="__all__ = ['fsops']", high__top__use="from high.disk import marks\nmarks.fsops")
    )


def test_both_ways(made: Make) -> None:
    below = made(high__top__parts__INIT="", high__top__parts__part="X = 1", high__top__use="import high.top.parts.part")
    assert laws(below) == {}
    up = {"high__top__parts__part": "import high.top.other", "high__top__other": "Y = 1"}
    both = laws(made(high__top__parts__INIT="", high__top__use="import high.top.parts.part", **up))
    assert list(both) == ["both"] and "high.top.parts" in both["both"][0]


def test_circles(made: Make) -> None:
    assert "circles" in laws(made(high__disk__names="def g():\n    from high.disk import marks"))


def test_a_face_counts_what_it_defines(made: Make) -> None:
    assert "crowded" in laws(made(high__top__INIT="\n".join(f"def f{n}(): ..." for n in range(5))))
    assert "crowded" in laws(made(**{"high__disk__INIT.pyi": "from . import names as names"}))
    assert made().crowded(4, 1) == ["high.disk: 3 names, 2 modules"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Pair = list[int]", "Pair"),
        ("class Pair: ...", "Pair"),
        ("def f(): ...", "f"),
        ("f = 3", "f"),
    ],
)
def test_twice(made: Make, line: str, name: str) -> None:
    assert [said.partition(":")[0] for said in laws(made(high__base=line))["twice"]] == [name]


@pytest.mark.parametrize("line", ["Pair = tuple[int, int]", "def g(): ...\nh = 1", "_Pair = 1"])
def test_not_twice(made: Make, line: str) -> None:
    assert laws(made(high__base=line, high__top__use="def g(): ...")) == {}


def test_two_files_of_one_name(made: Make) -> None:
    assert laws(made(high__top__names=""))["twice"] == ["names: high.disk.names, high.top.names"]
