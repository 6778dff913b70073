"""A model's tokenizer as mlx-lm wraps it, for less than half the work: its loader lists a vocabulary four times.

Three of the lists are asked for a few markers ("<think>" and others); the fourth is a table of texts by id for mlx-lm's
streaming, which nothing here uses. With 150,000 tokens that is 0.4 CPU seconds in every process.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from mlx_lm import tokenizer_utils
from mlx_lm import utils as mlx_lm_utils

_lock = threading.Lock()


def read_tokenizer(path: Path, eos_token_ids: Any) -> Any:
    """The tokenizer in a model's directory; eos_token_ids are what its config.json says, an id or a list."""
    found: list[Any] = []
    with _lock:  # names of a module are changed for a moment
        loader = mock.Mock(spec=["from_pretrained"])
        loader.from_pretrained = functools.partial(_with_few_words, tokenizer_utils.AutoTokenizer, found)
        with mock.patch.multiple(tokenizer_utils, AutoTokenizer=loader, BPEStreamingDetokenizer=_Detokenizer):
            wrapped = mlx_lm_utils.load_tokenizer(path, eos_token_ids=eos_token_ids)
    for tokenizer in found:
        vars(tokenizer).pop("get_vocab", None)
    return wrapped


def _with_few_words(loader: Any, found: list[Any], *args: Any, **kwargs: Any) -> Any:
    """The tokenizer, whose `get_vocab` looks words up one at a time."""
    tokenizer = loader.from_pretrained(*args, **kwargs)
    if hasattr(tokenizer, "backend_tokenizer"):
        tokenizer.get_vocab = lambda: _Words(tokenizer.backend_tokenizer)
        found.append(tokenizer)
    return tokenizer


class _Words(Mapping[str, int]):
    """Ids of tokens; all of them are listed only for who goes through them."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getitem__(self, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise KeyError(token)
        return int(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tokenizer.get_vocab(with_added_tokens=True))

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))


class _Table:
    """Texts by id, listed when they are first asked for."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @functools.cached_property
    def texts(self) -> list[str]:
        return list(self._tokenizer.convert_ids_to_tokens(list(range(len(self._tokenizer)))))


class _Detokenizer(tokenizer_utils.BPEStreamingDetokenizer):  # type: ignore[misc]
    """mlx-lm's over a `_Table`, which its copies share."""

    def __init__(self, tokenizer: Any) -> None:
        tokenizer_utils.StreamingDetokenizer.__init__(self)
        self._table = _Table(tokenizer)
        self.reset()

    @property
    def tokenmap(self) -> list[str]:
        """Texts by id."""
        return self._table.texts
