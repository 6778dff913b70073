"""The bundled model `tiny` and how to remake it: `legos bootstrap OUT`.

A language model of 0.74 M parameters that knows the texts of the registered environments and plays every legal move
with equal probability. Register an environment and run this again, and the new model knows its texts too.

    sentences.py       a generator of sentences
    texts.py           dialogues from random play
    tokenizer.py       byte-level BPE, chat template
    training_rows.py   dialogues to token ids and soft targets
    pretrain.py        the training loop
    measure.py         exact illegal mass and evenness of a model
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from legos_train.bootstrap import pretrain, texts, tokenizer
from legos_train.bootstrap.pretrain import Report
from legos_train.observe import ProgressLine

STEPS = 1500
BATCH = 28
TOKENIZER_DIALOGUES = 12_000


def bootstrap(
    out_dir: str | Path,
    steps: int = STEPS,
    seed: int = 0,
    progress: Report | bool = True,
    threads: int = 1,
    stream: Callable[[int], Iterator[texts.Dialogue]] = texts.stream,
    batch_size: int = BATCH,
) -> Path:
    """Make a model folder from nothing: tokenizer, chat template, configuration, weights.

    On one machine the same arguments give the same files bit for bit.

    Args:
        out_dir: made when missing; must not hold a model already.
        steps: optimiser steps.
        seed: of the texts, the first weights and the order of training.
        progress: True shows progress on stderr, False is silent; or a function called after each step with the step,
            `steps` and the losses by kind of token.
        threads: BLAS threads; the result depends on it. At this size a second one gains nothing.
        stream: what the model reads, by seed.
        batch_size: rows a step.

    Returns:
        The folder, which `mlx_lm.load` and `transformers.AutoTokenizer` read.

    Raises:
        FileExistsError: the folder holds a config.json.
        ValueError: `steps` is less than 1.
    """
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from inference.forward import fastblas

    if steps < 1:
        raise ValueError(f"steps must be at least 1; got {steps!r}")
    folder = Path(out_dir)
    if (folder / "config.json").exists():
        raise FileExistsError(f"{folder} holds a model already (config.json); name an empty or new folder")
    fastblas.enable(threads)
    sample = islice(stream(seed + 1_000_000), TOKENIZER_DIALOGUES)
    trained = tokenizer.train_tokenizer(text for dialogue in sample for text in dialogue.texts())
    encoder = tokenizer.ChatEncoder(trained)
    config = pretrain.model_config(trained.get_vocab_size())
    model = pretrain.new_model(config, seed)
    line = ProgressLine("steps")
    report = progress if callable(progress) else _averages(line) if progress else None
    pretrain.pretrain(
        model, encoder, steps=steps, seed=seed, report=report, dialogues=stream(seed), batch_size=batch_size
    )
    line.close()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_tokenizer(trained, folder)
    end, pad = encoder.end, trained.token_to_id(tokenizer.END_OF_TEXT)
    config |= {"bos_token_id": None, "eos_token_id": [end, pad], "pad_token_id": pad}
    _write(folder / "config.json", config)
    generation = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_new_tokens": 32}
    _write(folder / "generation_config.json", {"eos_token_id": [end, pad], "pad_token_id": pad, **generation})
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _averages(line: ProgressLine) -> Report:
    """Shows the losses on a progress line, averaged over about the last 50 steps."""
    means: dict[str, float] = {}

    def report(step: int, steps: int, losses: dict[str, float]) -> None:
        for name, loss in losses.items():
            means[name] = means.get(name, loss) + (loss - means.get(name, loss)) / 25
        line(step, steps, "; loss " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()))

    return report


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n")
