"""Documents to ask questions about: text files, JSON lines, directories of both, or a sample in the box."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

SAMPLE = Path(__file__).with_name("data") / "corpus.jsonl"
"""24 short passages, each with its title and source: 21 written for this project, 3 openings of works before 1900."""
SUFFIXES = (".txt", ".jsonl")


class Document(NamedTuple):
    """A passage of a corpus."""

    title: str
    text: str


def open_corpus(source: Any = None, max_chars: int = 4000) -> tuple[Document, ...]:
    """The documents of a corpus.

    Args:
        source: a path or several: a `.txt` file, which is cut between paragraphs into passages; a `.jsonl` file, each
            line with `text` and, if it likes, `title`; a directory, of which all such files are read in the order of
            their names. None is the sample in the box.
        max_chars: the longest passage. Longer texts are cut.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: a file is of another kind, cannot be read, or nothing is in it; the message names file and line.
    """
    if source is None:
        source = SAMPLE
    if not isinstance(source, str | Path) and not (
        isinstance(source, Iterable) and all(isinstance(path, str | Path) for path in source)
    ):
        raise ValueError(f"source must be 'facts', 'sample', a path or a list of paths; got {source!r}")
    files: list[Path] = []
    for path in [source] if isinstance(source, str | Path) else source:
        files += _files(Path(path))
    stamps = tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    documents = tuple(document for stamp in stamps for document in _read(*stamp, max_chars))
    if not documents:
        raise ValueError(f"source {str(source)!r} holds no text ({' and '.join(SUFFIXES)} files are read)")
    return documents


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not path.is_file():
        raise FileNotFoundError(f"source: there is no file or directory {str(path)!r} (looked in {Path.cwd()})")
    if path.suffix not in SUFFIXES:
        raise ValueError(f"source: a file must end in {' or '.join(SUFFIXES)}; got {str(path)!r}")
    return [path]


@functools.lru_cache(256)
def _read(path: Path, changed: int, size: int, max_chars: int) -> tuple[Document, ...]:
    """The documents of a file; kept while the file is unchanged, so that many envs share them."""
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: this is not UTF-8: {error}") from None
    if path.suffix == ".txt":
        return tuple(Document(path.stem, passage) for passage in passages(text, max_chars))
    documents = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: this is no JSON: {error}") from None
        body = row.get("text") if isinstance(row, dict) else None
        if not isinstance(body, str) or not body.strip():
            raise ValueError(f"{path}, line {number}: field 'text' must be text; got {body!r}")
        title = str(row.get("title") or path.stem)
        documents += [Document(title, passage) for passage in passages(body, max_chars)]
    return tuple(documents)


def passages(text: str, max_chars: int) -> list[str]:
    """A text cut into passages of at most `max_chars`: between paragraphs where it can be, else between words."""
    result: list[str] = []
    for paragraph in text.split("\n\n"):
        rest = paragraph.strip()
        while rest:
            if len(rest) <= max_chars:
                piece, rest = rest, ""
            else:
                cut = rest.rfind(" ", 1, max_chars + 1)
                cut = cut if cut > 0 else max_chars
                piece, rest = rest[:cut].strip(), rest[cut:].strip()
            if result and len(result[-1]) + 2 + len(piece) <= max_chars:
                result[-1] += f"\n\n{piece}"
            else:
                result.append(piece)
    return result
