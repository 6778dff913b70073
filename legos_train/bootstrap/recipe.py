"""The bundled models and how to rebuild them: `legos bootstrap OUT --recipe tiny|small`.

`tiny`, of 0.74 M parameters, knows four exactly solvable games and plays every legal move with equal probability.
`small`, of 1.6 M, knows the texts of all registered environments and answers as a mixture of their scripted players.
To teach `small` the texts of a new environment, register it and run this again.

    sentences.py       a generator of sentences
    texts.py           dialogues from random play in games
    mixtures.py        dialogues from mixtures of scripted players
    text_shares.py     the share of each source
    tokenizer.py       byte-level BPE, chat template
    training_rows.py   dialogues to token ids and soft targets
    packed_rows.py     the forward pass
    pretraining_loss.py   the loss
    shared_gradients.py   its gradients, by one process or two
    pretrain.py        the training loop
    measure.py         exact illegal mass and evenness of a model
    env_scores.py      illegal share and returns of a model in every environment
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import qwen3
from tokenizers import Tokenizer

from legos_envs import arguments
from legos_train.bootstrap import mixtures, pretrain, text_shares, texts, tokenizer
from legos_train.bootstrap.pretrain import PEAK, Report
from legos_train.bootstrap.training_rows import LIMIT, DialogueRow, make_row
from legos_train.observe import ProgressLine

TOKENIZER_DIALOGUES = 12_000
UNFINISHED = "unfinished.safetensors"
"""The file in a model's folder from which an interrupted run continues."""


class TextStage(NamedTuple):
    """A part of the training with its own texts.

    Attributes:
        stream: the texts, by seed.
        steps: optimiser steps.
        peak: the highest learning rate.
        limit: maximum tokens of a row.
        batch_size: rows per step; None: the recipe's.
    """

    stream: Callable[[int | str], Iterator[texts.Dialogue]]
    steps: int
    peak: float = PEAK
    limit: int = LIMIT
    batch_size: int | None = None


class Recipe(NamedTuple):
    """Everything that determines a bundled model, except the seed.

    Attributes:
        shape: of the model.
        stages: the texts of each stage, in order.
        batch_size: rows per step.
        readers: facts read off its hidden states; see `training_rows.READ_BEST`.
        pool: number of buffered dialogues, to mix those of an episode with others; 0: no buffer.
        part: number of steps after which the stream restarts with another seed and an interrupted run can continue;
            stages consist of whole parts.
        averaged: the weights are the mean of those at the ends of this many last stages (model soups, Wortsman
            et al. 2022), which makes fewer mistakes than the last weights alone.
        sharpness: factor on the logits of the finished model. A value above 1 makes the many small mistakes rarer that
            a small model makes when sampled at temperature 1, and hardly changes the odds of its likely replies.
    """

    shape: pretrain.Shape
    stages: tuple[TextStage, ...]
    batch_size: int
    readers: int
    pool: int = 0
    part: int = 1500
    averaged: int = 1
    sharpness: float = 1.0


RECIPES = {
    "tiny": Recipe(
        pretrain.TINY,
        (TextStage(texts.stream, 1500),),
        batch_size=28,
        readers=max(texts.RECALLED.values()),
        pool=16 * 28,
    ),
    "small": Recipe(
        pretrain.SMALL,
        (
            TextStage(mixtures.stream, 2500),
            TextStage(partial(mixtures.stream, of=text_shares.DRILL), 120),
            TextStage(partial(mixtures.stream, of=text_shares.WITH_SUMS), 1080),
            TextStage(partial(mixtures.stream, of=text_shares.WORKED_OUT), 260),
            TextStage(partial(mixtures.stream, of=text_shares.LONG_TALKS, chat=0.4), 1000, peak=1e-3, limit=1024),
            TextStage(partial(mixtures.stream, of=text_shares.CAREFUL, chat=0.25), 600, peak=8e-4, limit=1024),
            TextStage(partial(mixtures.stream, of=text_shares.LONGEST, chat=0.6), 120, 4e-4, limit=3072, batch_size=16),
            TextStage(partial(mixtures.stream, of=text_shares.TRADES, chat=0.4), 400, 5e-4, limit=2048, batch_size=32),
            TextStage(partial(mixtures.stream, of=text_shares.HOLDINGS, chat=0.4), 400, 1e-3, 2048, batch_size=32),
            TextStage(partial(mixtures.stream, of=text_shares.EVERYTHING, chat=0.35), 2000, 1e-3, 2048, batch_size=32),
            TextStage(partial(mixtures.stream, of=text_shares.EXACT, chat=0.35), 600, 9e-4, 2048, batch_size=32),
        ),
        batch_size=48,
        readers=max(texts.RECALLED.values()) + 1,
        part=200,
        averaged=2,
        sharpness=1.15,
    ),
}


@contextmanager
def _on_cpu() -> Iterator[None]:
    """The forward pass of packed_rows.py is for a CPU, and models of this size gain nothing elsewhere."""
    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    try:
        yield
    finally:
        mx.set_default_device(before)


@_on_cpu()
def bootstrap(
    out_dir: str | Path,
    steps: int | None = None,
    seed: int = 0,
    progress: Report | bool = True,
    threads: int = 1,
    processes: int = 1,
    recipe: str | Recipe = "tiny",
) -> Path:
    """Creates a model folder from scratch: tokenizer, chat template, configuration, weights.

    On one machine the same arguments give the same files bit for bit, however often the run was interrupted: called
    again with the same arguments, it continues from the last finished part.

    Args:
        out_dir: created if missing; must not already contain a model.
        steps: optimiser steps; None takes the recipe's.
        seed: seed of the texts, the initial weights and the order of training.
        progress: True shows progress on stderr, False is silent; or a function called after each step with the step,
            `steps` and the losses by kind of token.
        threads: BLAS threads of a process; the result depends on it. At this size a second one gains nothing.
        processes: 1, or 2, which share the work of each step. The result is the same. Scripts that give 2 must start
            under `if __name__ == "__main__":`, as always with `multiprocessing`.
        recipe: one of `RECIPES` by name, or your own.

    Returns:
        The folder, which `mlx_lm.load` and `transformers.AutoTokenizer` read.

    Raises:
        FileExistsError: the folder contains a config.json.
        ValueError: `steps` is less than 1, `processes` is not 1 or 2, the recipe is unknown, or an interrupted run had
            other `steps`.
    """
    from inference.forward import fastblas
    from inference.loading import prepare_mlx

    made = RECIPES[arguments.one_of("recipe", recipe, list(RECIPES))] if isinstance(recipe, str) else recipe
    stages = _stages(made, steps)
    arguments.whole("processes", processes, 1, 2)
    folder = Path(out_dir)
    if (folder / "config.json").exists():
        raise FileExistsError(f"{folder} already contains a model (config.json); give an empty or new folder")
    prepare_mlx()
    fastblas.enable(threads)
    folder.mkdir(parents=True, exist_ok=True)
    line = ProgressLine("steps")
    report = progress if callable(progress) else _averages(line) if progress else None
    if not (folder / "tokenizer.json").exists():
        sample = islice(made.stages[0].stream(seed + 1_000_000), TOKENIZER_DIALOGUES)
        trained = tokenizer.train_tokenizer(text for dialogue in sample for text in dialogue.texts())
        tokenizer.save_tokenizer(trained, folder)
    trained = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoder = tokenizer.ChatEncoder(trained)
    config = pretrain.model_config(trained.get_vocab_size(), made.shape)
    model = pretrain.new_model(config, seed)
    peaks = [stage.peak for stage in made.stages]
    training = pretrain.Pretraining(model, stages, made.readers, seed, peaks, processes, threads)
    if (folder / UNFINISHED).exists():
        training.resume(folder / UNFINISHED)
    last = range(len(stages) - made.averaged, len(stages) - 1)
    ends = {sum(stages[: stage + 1]): f"stage_{stage + 1}.safetensors" for stage in last}
    ends.pop(0, None)  # of stages that are left out, because `steps` are few
    with training.gradients:
        while training.step < training.steps:
            stage, at, length = training.place
            rows = _rows(made, stage, encoder, seed if training.step == 0 else f"{seed}.{training.step}")
            batch_size = made.stages[stage].batch_size or made.batch_size
            training.train(rows, batch_size, training.step + min(made.part, length - at), report)
            if training.step in ends:  # before `save`: an interrupted run repeats the part, and this
                _save(model, folder / ends[training.step])
            training.save(folder / UNFINISHED)
    line.close()
    end, pad = encoder.end, trained.token_to_id(tokenizer.END_OF_TEXT)
    earlier = [folder / name for name in ends.values()]
    _finish(model, earlier, made.sharpness)
    _save(model, folder / "model.safetensors")
    generation = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_new_tokens": 32}
    _write(folder / "generation_config.json", {"eos_token_id": [end, pad], "pad_token_id": pad, **generation})
    _write(folder / "config.json", config | {"bos_token_id": None, "eos_token_id": [end, pad], "pad_token_id": pad})
    for path in (folder / UNFINISHED, *earlier):
        path.unlink()
    return folder


def _stages(recipe: Recipe, steps: int | None) -> list[int]:
    """The steps of each stage; scaled from the recipe's."""
    wanted = [stage.steps for stage in recipe.stages]
    if steps is None:
        return wanted
    whole = arguments.whole("steps", steps, 1)
    first = [round(whole * one / sum(wanted)) for one in wanted[:-1]]
    return [*first, whole - sum(first)]


def _rows(recipe: Recipe, stage: int, encoder: tokenizer.ChatEncoder, seed: int | str) -> Iterator[DialogueRow]:
    """The rows of a part of the training, a function of the arguments."""
    rng = Random(f"rows {seed}")
    dialogues = recipe.stages[stage].stream(seed)
    for dialogue in texts.shuffled(dialogues, recipe.pool, rng) if recipe.pool else dialogues:
        yield make_row(dialogue, encoder, rng, limit=recipe.stages[stage].limit)


def _averages(line: ProgressLine) -> Report:
    """Shows the losses on a progress line, averaged over about the last 50 steps."""
    means: dict[str, float] = {}

    def report(step: int, steps: int, losses: dict[str, float]) -> None:
        for name, loss in losses.items():
            means[name] = means.get(name, loss) + (loss - means.get(name, loss)) / 25
        line(step, steps, "; loss " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()))

    return report


def _finish(model: qwen3.Model, earlier: Sequence[Path], sharpness: float) -> None:
    """Averages the weights with those of files, and multiplies the logits by `sharpness`."""
    sets = [dict(tree_flatten(model.parameters())), *(cast(dict[str, mx.array], mx.load(str(one))) for one in earlier)]
    mean = {name: mx.mean(mx.stack([one[name] for one in sets]), axis=0) for name in sets[0]}
    mean["model.norm.weight"] = mean["model.norm.weight"] * sharpness
    model.update(cast(Any, tree_unflatten(list(mean.items()))))


def _save(model: qwen3.Model, path: Path) -> None:
    mx.save_safetensors(str(path), dict(tree_flatten(model.parameters())), metadata={"format": "mlx"})


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n")
