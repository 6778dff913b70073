"""`read_tokenizer` gives what mlx-lm's own loader gives, and does not list the vocabulary for it."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import mlx_lm.utils
import pytest
from mlx_lm import tokenizer_utils

from inference.loading import find_model
from inference.text import read_tokenizer


@pytest.fixture(scope="module")
def folder() -> Path:
    return find_model("tiny")


def test_it_is_mlx_lms_tokenizer_in_every_attribute(folder: Path) -> None:
    ours, theirs = read_tokenizer(folder, 2), mlx_lm.utils.load_tokenizer(folder, eos_token_ids=2)
    assert type(ours) is type(theirs) and type(ours._tokenizer) is type(theirs._tokenizer)
    plain = vars(theirs).keys() - {"_tokenizer", "_detokenizer"}
    assert {name: getattr(ours, name) for name in plain} == {name: getattr(theirs, name) for name in plain}
    assert isinstance(ours.get_vocab(), dict) and ours.get_vocab() == theirs.get_vocab()
    assert pickle.loads(pickle.dumps(ours._tokenizer)).get_vocab() == theirs.get_vocab()


def test_streamed_texts_are_mlx_lms(folder: Path) -> None:
    ours, theirs = read_tokenizer(folder, 2), mlx_lm.utils.load_tokenizer(folder, eos_token_ids=2)
    kind = type(theirs._detokenizer)
    assert kind is tokenizer_utils.BPEStreamingDetokenizer and isinstance(ours._detokenizer, kind)
    said = []
    for streamed in (ours.detokenizer, copy.deepcopy(ours).detokenizer, theirs.detokenizer):
        for token in theirs.encode("What is it worth, a King é 世 ?"):
            streamed.add_token(token)
        streamed.finalize()
        said.append(streamed.text)
    assert said[0] == said[1] == said[2] != ""


def test_markers_of_thought_are_found_one_by_one(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = mlx_lm.utils.load_tokenizer(folder)._tokenizer
    plain.add_tokens(["<think>", "</think>"])
    plain.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    theirs = mlx_lm.utils.load_tokenizer(tmp_path)
    listed: list[Any] = []
    whole = type(plain).get_vocab
    monkeypatch.setattr(type(plain), "get_vocab", lambda self: listed.append(self) or whole(self))
    ours = read_tokenizer(tmp_path, None)
    assert not listed
    assert (ours.think_start, ours._think_end_tokens) == (theirs.think_start, theirs._think_end_tokens)
    assert ours.think_start == "<think>"
