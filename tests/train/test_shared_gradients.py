"""Gradients of pretraining by one process and by two."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from inference.forward import fastblas
from inference.loading import prepare_mlx
from legos_train.bootstrap import RECIPES, bootstrap, mixtures, pretrain, pretraining_loss, texts
from legos_train.bootstrap import training_rows as rows
from legos_train.bootstrap.recipe import TextStage
from legos_train.bootstrap.shared_gradients import SharedGradients, halves
from legos_train.bootstrap.tokenizer import ChatEncoder, train_tokenizer
from legos_train.cli.main import main

SHAPE = pretrain.Shape(32, 1, 2, 1, 16, 32)


@pytest.fixture(scope="module")
def whole() -> rows.PretrainingBatch:
    """Games and free answers, in several parts, with sites of every kind and reader."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mixtures, "HELD", 4)  # rows that each source buffers before the first is drawn
        dialogues = list(islice(mixtures.stream(3), 40))
    encoder = ChatEncoder(train_tokenizer(text for dialogue in dialogues for text in dialogue.texts()))
    return rows.collate([rows.make_row(dialogue, encoder, Random(0)) for dialogue in dialogues])


@pytest.fixture
def readers() -> pretraining_loss.Readers:
    prepare_mlx()
    fastblas.enable(1)
    return pretraining_loss.Readers(pretrain.new_model(pretrain.model_config(2048, SHAPE), 0), 16, 0)


@pytest.mark.slow
def test_halves_add_up_to_the_gradient_of_the_whole(
    whole: rows.PretrainingBatch, readers: pretraining_loss.Readers
) -> None:
    parts = halves(whole)
    assert sorted(np.concatenate([at for at, _ in parts]).tolist()) == list(range(len(whole.kinds)))
    for at, part in parts:
        assert (part.targets == whole.targets[at]).all() and (part.weights == whole.weights[at]).all()
        assert sum(len(one.rows) for one in part.parts) == len(at)
    tokens = [sum(one.size for one in part.parts) for _, part in parts]
    assert len(parts) == 2 and max(tokens) < 2 * min(tokens)
    (loss, divergence), gradients = nn.value_and_grad(readers, pretraining_loss.batch_loss)(readers, whole)
    got = SharedGradients(readers)(whole)
    assert got.loss == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(got.divergence, np.array(divergence), atol=1e-5)
    for name, wanted in tree_flatten(gradients):
        np.testing.assert_allclose(got.arrays[name], np.array(wanted), atol=1e-5, err_msg=name)
        assert np.abs(got.arrays[name]).max() > 1e-6, name


def test_a_worker_computes_the_same_bits_with_new_weights_too(
    whole: rows.PretrainingBatch, readers: pretraining_loss.Readers
) -> None:
    alone = SharedGradients(readers)
    with SharedGradients(readers, processes=2) as shared:
        for _ in range(2):
            one, two = alone(whole), shared(whole)
            assert one.loss == two.loss and (one.divergence == two.divergence).all()
            assert all((one.arrays[name] == two.arrays[name]).all() for name in one.arrays)
            readers.readers = readers.readers * 0.5
            readers.model.model.embed_tokens.weight *= 0.5
        assert shared._worker is not None
        with pytest.raises(AttributeError, match="no attribute 'parts'") as caught:
            shared._worker.begin({}, None)
            shared._worker.result()
        assert "in the worker process" in caught.value.__notes__[0], "and the worker goes on"
        os.kill(shared._worker.process.pid or 0, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"worker process ended.*-9.*Repeat the command"):
                shared(whole)


PARENT = """
import os
import signal

from legos_train.bootstrap import pretrain, pretraining_loss, shared_gradients

if __name__ == "__main__":
    model = pretrain.new_model(pretrain.model_config(64, pretrain.Shape(32, 1, 2, 1, 16, 32)), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    with shared_gradients.SharedGradients(pretraining_loss.Readers(model, 1, 0), processes=2) as shared:
        print(shared._worker.process.pid, flush=True)
        signal.pause()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_worker_ends_with_its_parent(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert parent.stdout is not None
    assert int(parent.stdout.readline()) != parent.pid
    parent.send_signal(how)
    parent.communicate(timeout=20)  # the worker has the pipe too, so this waits for its end


def test_a_batch_of_one_part_is_not_divided(whole: rows.PretrainingBatch, readers: pretraining_loss.Readers) -> None:
    sites = len(whole.parts[0].rows)
    one = rows.PretrainingBatch(whole.parts[:1], *(array[:sites] for array in whole[1:]))
    ((at, part),) = halves(one)
    assert at.tolist() == list(range(sites)) and part.parts == one.parts
    loss, _ = pretraining_loss.batch_loss(readers, one)
    assert SharedGradients(readers)(one).loss == loss.item()


@pytest.mark.slow
def test_two_processes_make_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legos_train.bootstrap.recipe.TOKENIZER_DIALOGUES", 300)
    stages = (TextStage(texts.stream, 2), TextStage(mixtures.stream, 2))
    made = RECIPES["tiny"]._replace(batch_size=6, pool=0, stages=stages, readers=16)
    one, two = (bootstrap(tmp_path / str(n), 4, progress=False, processes=n, recipe=made) for n in (1, 2))
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()


@pytest.mark.parametrize("flags, processes", [([], 2), (["--processes", "1"], 1)])
def test_the_command_takes_as_many_processes_as_cpus_are_idle(
    flags: list[str], processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: dict[str, Any] = {}
    monkeypatch.setattr("inference.forward.threads.idle_cpus", lambda: 3)
    monkeypatch.setattr("legos_train.bootstrap.bootstrap", lambda *_, **options: got.update(options))
    assert main(["bootstrap", str(tmp_path / "new"), *flags]) == 0
    assert got["processes"] == processes


def test_after_an_error_no_gradient_is_that_of_another_batch(
    whole: rows.PretrainingBatch, readers: pretraining_loss.Readers
) -> None:
    def fail() -> None:
        raise OSError("the texts ended")

    with SharedGradients(readers, processes=2) as gradients:
        with pytest.raises(OSError, match="the texts ended"):
            gradients(whole, fail)
        with pytest.raises(RuntimeError, match="ended"):
            gradients(whole)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_training_draws_the_rows_that_it_learns_from_and_no_more(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def rows_of() -> Iterator[rows.DialogueRow]:
        for number in range(20):
            seen.append(number)
            yield rows.DialogueRow([number, 1, 2], [rows.Site(1, {2: 1.0}, rows.REPLY)])

    training = pretrain.Pretraining(pretrain.new_model(pretrain.model_config(40, SHAPE), 0), [20], 1, 0)
    learned: list[int] = []
    compute = training.gradients._of

    def of(part: rows.PretrainingBatch) -> Any:
        learned.extend(int(one.tokens[0][0]) for one in part.parts)
        return compute(part)

    monkeypatch.setattr(training.gradients, "_of", of)
    training.train(rows_of(), 2, steps)
    assert seen == list(range(2 * steps)), "a run that goes on would miss what was drawn for nothing"
    assert sorted(learned) == seen and training.step == steps
    assert [number // 2 for number in learned] == sorted(number // 2 for number in seen), "in order"


def test_more_processes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"processes must be .* got 3"):
        bootstrap(tmp_path / "never", processes=3)
    assert not (tmp_path / "never").exists()
