"""Runs the notebooks in examples/notebooks and stores their outputs: python docs/run_notebooks.py [FILE ...]

Each notebook runs from top to bottom in a new kernel of this Python, in an empty folder, so that no output depends on
what was there before. `tests/test_notebooks.py` runs them too, and compares what they show with what is stored here.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"
TIMEOUT = 120
"""Seconds that one cell may take."""
DECIMAL = re.compile(r"[-+]?\d+\.\d+")


def execute(path: Path) -> Any:
    """The notebook with the outputs of an execution; the file is left as it is.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; the message has its source and traceback.
        nbclient.exceptions.CellTimeoutError: a cell took longer than `TIMEOUT`.
    """
    notebook = nbformat.read(path, as_version=4)
    for cell in code_cells(notebook):
        cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory(prefix="nb-") as temporary:
        work = Path(temporary, "work")
        work.mkdir()
        # Sockets in the folder instead of TCP ports, which another program may take before the kernel does.
        manager = AsyncKernelManager(
            kernel_name="python3", transport="ipc", connection_file=str(Path(temporary, "kernel.json"))
        )
        client = NotebookClient(
            notebook, km=manager, timeout=TIMEOUT, iopub_timeout=TIMEOUT, record_timing=False, coalesce_streams=True
        )
        client.resources["metadata"] = {"path": str(work)}
        # This Python, whatever kernels the user has, and without the user's own start-up files.
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", "--colors=nocolor"]
        manager.kernel_spec.argv = command  # type: ignore[union-attr]
        quiet = "ignore:IProgress not found"  # tqdm misses ipywidgets, which nothing here needs
        env = {**os.environ, "IPYTHONDIR": str(Path(temporary, "ipython")), "PYTHONWARNINGS": quiet}
        client.execute(cleanup_kc=True, env=env)
    notebook.metadata.language_info = {"name": "python"}  # the kernel's own says which Python it was
    return notebook


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def differences(stored: Any, fresh: Any, *, values: bool = True) -> Iterator[str]:
    """What the stored notebook shows otherwise than an execution of the same cells; nothing when it is up to date.

    Decimal numbers may differ by one in their last digit, since processors round differently; all else is equal.

    Args:
        stored: the notebook as it is on disk.
        fresh: what `execute` gave for it.
        values: False to compare only which cells have which kinds of outputs.
    """
    for number, (old, new) in enumerate(zip(code_cells(stored), code_cells(fresh), strict=True), start=1):
        if old.execution_count != number:
            yield f"{old.id}: stored execution count {old.execution_count}, it is code cell {number}"
        shown, now = texts(old), texts(new)
        if list(shown) != list(now):
            yield f"{old.id}: stored outputs {list(shown)}, now {list(now)}"
            continue
        for kind, text in shown.items() if values else ():
            # The HTML of a table is its text once more, in markup that is pandas' own.
            if not kind.endswith("text/html") and not same(text, now[kind]):
                yield f"{old.id}: {kind} was\n{text}\nand is now\n{now[kind]}"


def texts(cell: Any) -> dict[str, str]:
    """The outputs of a cell by place and kind, such as `0 text/html`; what is written to one stream is one output."""
    found: dict[str, str] = {}
    for place, output in enumerate(cell.outputs):
        if output.output_type == "stream":
            found[f"{place} {output.name}"] = output.text
        else:
            found |= {f"{place} {kind}": str(text) for kind, text in sorted(output.data.items())}
    return found


def same(one: str, other: str) -> bool:
    """Whether two texts are equal up to white space and one in the last digit of decimal numbers."""
    if [part.split() for part in DECIMAL.split(one)] != [part.split() for part in DECIMAL.split(other)]:
        return False
    pairs = zip(DECIMAL.findall(one), DECIMAL.findall(other), strict=True)
    return all(abs(float(a) - float(b)) < 1.01 * 10.0 ** -max(digits(a), digits(b)) for a, b in pairs)


def digits(decimal: str) -> int:
    return len(decimal.partition(".")[2])


def main() -> None:
    for path in [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = execute(path)
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
