"""Documents to ask questions about: text files, rows of any source, directories of both, or a bundled sample."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from legos_envs.tasks.raw_rows import HUB, SUFFIXES
from legos_envs.tasks.rows import open_rows

SAMPLE = Path(__file__).with_name("data") / "corpus.jsonl"
"""24 short passages, each with its title and source: 21 written for this project, 3 openings of works before 1900."""
TEXT = ".txt"
NAMES = {"text": "text", "title": "title"}
BUILT_IN = ("facts", "sample")
"""Other values that `SPICE` accepts as a source."""


class Document(NamedTuple):
    """A passage of a corpus."""

    title: str
    text: str


def open_corpus(
    source: Any = None,
    max_chars: int = 4000,
    *,
    fields: Mapping[str, str] | None = None,
    split: str = "all",
    config: str | None = None,
    bad_rows: str = "refuse",
) -> tuple[Document, ...]:
    """The documents of a corpus.

    Args:
        source: a path or several: a `.txt` file, which is cut between paragraphs into passages; a `.jsonl`, `.json` or
            `.parquet` file, each row with `text` and optionally `title`; a directory, whose files of these kinds are
            read in name order. Or `"hf:NAME"`, or a sequence of mappings. None is the bundled sample.
        max_chars: maximum length of a passage. Longer texts are split.
        fields: the names of these fields in the rows.
        split: split of a Hugging Face data set.
        config: configuration of a Hugging Face data set.
        bad_rows: `"refuse"` or `"skip"`.

    Raises:
        FileNotFoundError: there is no such path.
        ValueError: a file is of another kind, unreadable or empty; the message names file and line.
        ImportError: a package that the source needs is missing.
        RuntimeError: a Hugging Face data set cannot be loaded.
    """
    if source is None:
        source = SAMPLE
    paths = [source] if isinstance(source, str | Path) else source
    of_paths = isinstance(paths, Sequence) and all(isinstance(path, str | Path) for path in paths)
    if of_paths and not str(paths[0] if paths else "").startswith(HUB):
        files = [file for path in paths for file in _files(Path(path))]
        stamps = tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
        named = tuple(sorted((fields or {}).items()))
        documents = tuple(document for stamp in stamps for document in _read(*stamp, max_chars, named, bad_rows))
    elif isinstance(source, str) or hasattr(source, "__getitem__"):
        split = split if isinstance(source, str) else "all"  # only Hugging Face data sets have their own splits
        rows: Sequence[dict[str, Any]] = open_rows(
            source, NAMES, fields, optional=["title"], split=split, config=config, bad_rows=bad_rows, built_in=BUILT_IN
        )
        title = source.removeprefix(HUB) if isinstance(source, str) else "document"
        documents = _documents(rows, title, max_chars)
    else:
        raise ValueError(
            f"source must be {', '.join(map(repr, BUILT_IN))}, a path or a list of paths, 'hf:NAME' or a sequence of "
            f"mappings; got {source!r}"
        )
    if not documents:
        raise ValueError(f"source {str(source)!r} holds no text ({TEXT}, {', '.join(SUFFIXES)} files are read)")
    return documents


def _files(path: Path) -> list[Path]:
    accepted = (TEXT, *SUFFIXES)
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in accepted and file.is_file())
    if not path.is_file():
        raise FileNotFoundError(f"source: there is no file or directory {str(path)!r} (looked in {Path.cwd()})")
    if path.suffix not in accepted:
        raise ValueError(f"source: a file must end in {', '.join(accepted)}; got {str(path)!r}")
    return [path]


@functools.lru_cache(256)
def _read(
    path: Path, changed: int, size: int, max_chars: int, fields: tuple[tuple[str, str], ...], bad_rows: str
) -> tuple[Document, ...]:
    """The documents of a file; cached while it is unchanged, so that many envs share them."""
    if path.suffix != TEXT:
        rows: Sequence[dict[str, Any]] = open_rows(path, NAMES, dict(fields), optional=["title"], bad_rows=bad_rows)
        return _documents(rows, path.stem, max_chars)
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not valid UTF-8: {error}") from None
    return _documents([{"text": text}] if text.strip() else [], path.stem, max_chars)


def _documents(rows: Sequence[Mapping[str, Any]], title: str, max_chars: int) -> tuple[Document, ...]:
    return tuple(
        [Document(row.get("title", title), passage) for row in rows for passage in passages(row["text"], max_chars)]
    )


def passages(text: str, max_chars: int) -> list[str]:
    """Splits a text into passages of at most `max_chars`, between paragraphs if possible, else between words."""
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
