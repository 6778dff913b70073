"""Fixtures that several packages' tests share: a small random model in the Hugging Face layout, and an adapter maker.

MLX is imported inside the fixtures only, so that tests of `legos_envs` run without it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pettingzoo
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import is_hypothesis_test, settings

from tests import once, quick
from tests.random_model import save_random_qwen3, save_tokenizer

# There is a worker for every core, and OpenBLAS's idle threads spin: with several of them in each worker, products of
# small matrices took up to twenty times the processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
if sys.dont_write_bytecode:
    # Tests start many processes. Without bytecode each of them would compile a thousand modules, which takes longer
    # than most tests; so it is kept after all, but out of everybody's way.
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / "build/bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def fsync(_: int) -> None:
    """Nothing here survives a loss of power; waiting for the disk was a tenth of a run's time."""


os.fsync = fsync  # what has to be durable is tested by the calls that are made, not by the disk


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: some tests wait for clocks, processes and pages."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Before all tests are collected, each worker imports them from a place of its own on.

    So it finds the bytecode of the others: else, on a fresh clone, every worker would compile every file.
    """
    mine = getattr(session.config, "workerinput", None)
    if mine is None or session.config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    root = Path(__file__).parents[1]
    files = sorted((root / "tests").rglob("test_*.py"))
    for file in files[len(files) * int(mine["workerid"][2:]) // mine["workercount"] :]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it says what is wrong
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


def pytest_configure(config: pytest.Config) -> None:
    """Hypothesis tries few examples by default, and many where slow tests are run."""
    gc.set_threshold(100_000)  # the default costs a twentieth of the time
    settings.register_profile("few", max_examples=20, deadline=None)
    settings.register_profile("many", max_examples=200, deadline=None)
    settings.load_profile("few" if config.option.markexpr == "not slow" else "many")
    if "LEGOS_CACHE" not in os.environ:  # workers, and what tests start, share it
        cache = os.environ["LEGOS_CACHE"] = tempfile.mkdtemp(prefix="legos-cache-")
        config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))


@pytest.fixture
def compared_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every engine compares its model's forward passes, whatever was found about the same model before."""
    monkeypatch.setenv("LEGOS_CACHE", "off")


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`@pytest.mark.quick` says which cases run by default (tests/quick.py); `-m slow` runs Hypothesis's tests too."""
    tests = defaultdict(list)
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if item.get_closest_marker("quick"):
            tests[item.nodeid.partition("[")[0]].append(item)
        if config.option.markexpr == "slow" and is_hypothesis_test(item.function):
            item.add_marker("slow")
    for name, cases in tests.items():
        (mark,) = cases[0].iter_markers("quick")
        kept = quick.kept(mark.args, [(case.callspec.id, case.callspec.params) for case in cases])
        if not kept and len(cases) > 1:
            raise pytest.UsageError(f"{name}: no case has an id that its mark `quick` names, got {mark.args}")
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker("slow")


def pytest_collection_finish() -> None:
    """What is loaded by now stays to the end, so no pass of the garbage collector need look at it: each took 0.3 s."""
    gc.collect()
    gc.freeze()
    frozen["modules"] = len(sys.modules)


frozen = {"modules": 0}
"""How many modules the garbage collector leaves out."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker sends what became of a test, and not six messages about it: they took longer than a third of the tests.

    Modules that tests load later, such as MLX, are left out by the collector too: each test began with 0.06 s of them.
    """
    if len(sys.modules) > frozen["modules"] + 100:
        pytest_collection_finish()
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture(scope="session", autouse=True)
def found_out_once() -> Iterator[None]:
    """See tests/once.py; not for models where none of the tests has to do with them."""
    with pytest.MonkeyPatch.context() as patch:
        if "mlx_lm.utils" in sys.modules:
            once.load_bundled_tokenizers_once(patch)
            once.render_bundled_templates_once(patch)
            once.probe_bundled_models_once(patch)
            once.know_that_objects_are_frozen(patch)
        yield


@pytest.fixture(autouse=True)
def registry_left_as_it_was() -> Iterator[None]:
    """No environment that a test registers is there for the next."""
    import legos_envs  # registers: else the registry is put back to an empty one

    assert legos_envs.registered()
    before, last = dict(pettingzoo.aec_registry), next(reversed(sys.modules))
    yield
    if pettingzoo.aec_registry != before:
        pettingzoo.aec_registry.clear()
        pettingzoo.aec_registry.update(before)
    for name in list(takewhile(lambda name: name != last, reversed(sys.modules))):  # those that the test has loaded
        if name.startswith("legos_file_"):
            del sys.modules[name]  # else asking for the file's env again would not register it


@pytest.fixture(scope="session")
def random_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer float32 Qwen3 with a byte-level BPE tokenizer; loads in mlx-lm and transformers."""
    folder = tmp_path_factory.mktemp("random_model")
    vocab_size = save_tokenizer(folder)
    save_random_qwen3(folder, vocab_size)
    return folder


@pytest.fixture(scope="session")
def thinking_model_dir(random_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`random_model_dir` with the chat template of Qwen3, which has a thinking switch."""
    from inference.text import RENDERERS

    folder = tmp_path_factory.mktemp("thinking") / "model"
    shutil.copytree(random_model_dir, folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": RENDERERS["qwen3"].jinja}))
    return folder


@pytest.fixture(scope="session")
def random_model(random_model_dir: Path) -> tuple[Any, Any]:
    """(model, tokenizer wrapper) of `random_model_dir`. Shared, so do not change it; `clone_structure` makes copies."""
    from inference import loading

    model, tokenizer, _ = loading.load(random_model_dir)
    return model, tokenizer


@pytest.fixture(scope="session")
def make_adapter(random_model: tuple[Any, Any]) -> Callable[..., dict[str, Any]]:
    """make_adapter(seed, rank=4, size=0.3) -> LoRA weights for every attention and MLP projection."""
    from inference.adapters import linear_shapes

    shapes = linear_shapes(random_model[0])

    def make(seed: int, rank: int = 4, size: float = 0.3) -> dict[str, Any]:
        import mlx.core as mx

        weights = {}
        for i, (path, (width, out)) in enumerate(sorted(shapes.items())):
            keys = mx.random.split(mx.random.key(seed * 1000 + i))
            weights[f"{path}.lora_a"] = mx.random.normal((width, rank), key=keys[0]) * size
            weights[f"{path}.lora_b"] = mx.random.normal((rank, out), key=keys[1]) * size
        mx.eval(weights)
        return weights

    return make
