"""What the pages of the commands say that no parser knows: files, environment variables, exit codes, guides.

tests/test_docs_generated.py looks for every name of a file and a variable in the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Facts(NamedTuple):
    """Facts about one verb.

    Attributes:
        reads: files that it reads.
        writes: files that it writes.
        guides: links to guides.
        variables: environment variables that it looks at.
        codes: exit codes that differ from `CODES`, or are added to them.
    """

    reads: str
    writes: str
    guides: str
    variables: tuple[str, ...] = ()
    codes: Mapping[int, str] = {}


CODES = {
    0: "done",
    1: "it failed, and the message on standard error says why",
    2: "wrong usage: an unknown option, a value out of range",
    130: "ended by Ctrl-C",
}
VARIABLES = {
    "LEGOS_API_KEY": "the key for your own servers; the same name in `server.api_key_env` for training",
    "OPENAI_API_KEY": "the key that goes to api.openai.com, and nowhere else",
    "OPENROUTER_API_KEY": "the key that goes to openrouter.ai, and nowhere else",
    "LEGOS_BLAS": "matrix library on a Linux CPU: path of a shared library, or `off` for the one that comes with MLX",
    "LEGOS_CACHE": "where comparisons of forward passes are kept, instead of `~/.cache/legos`; `off` keeps none",
    "LEGOS_DATA": "folder of the leaderboard, instead of `runs`",
    "HF_HOME": "where models and data sets from the hub are cached (`~/.cache/huggingface`)",
    "HF_TOKEN": "the hub's token, for private models and for `--push`",
    "WANDB_MODE": "with `--wandb`: `offline` keeps the log on this machine",
    "WANDB_API_KEY": "with `--wandb`: the account",
    "MLX_HOSTFILE": "set by `mlx.launch` for runs of several processes",
    "BROWSER": "the program that opens the page",
}
ENDPOINTS = ("LEGOS_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")
MODELS = ("HF_HOME", "HF_TOKEN", "LEGOS_BLAS", "LEGOS_CACHE")
TERM = {143: "ended by SIGTERM"}

FACTS = {
    "envs": Facts(
        reads="with `file.py:Name-v0`, that file, whose code is run",
        writes="`new`: `my_game.py` and `test_my_game.py`, in `--dir`; the others write nothing",
        guides="[Environments](../../environments.md), [every environment](../index.md)",
        codes={1: "`check`: a check failed; else: it failed, and the message on standard error says why"},
    ),
    "train": Facts(
        reads="the TOML file of `--config`; a model directory or the hub; with `--resume` the newest whole checkpoint",
        writes="`runs/NAME/`, or `--run-dir`: `config.toml` (all settings), `metrics.jsonl` (a line per step), "
        "`rollouts.jsonl` (sampled episodes), `checkpoints/`, `adapter/` (the result), `last/`, `average/`, `best/`, "
        "`start.json` and `result.json` (what was measured before and after), `report.html` and `figures/`",
        guides="[Training](../../training.md), [every algorithm](../algorithms/index.md), "
        "[the league](../../league.md), [curriculum](../../curriculum.md)",
        variables=(*MODELS, *ENDPOINTS, "WANDB_MODE", "WANDB_API_KEY", "MLX_HOSTFILE"),
        codes={
            3: "no step made an update from rewards: nothing was learned, and the last lines say what to change",
            130: "ended by Ctrl-C; a checkpoint is kept, and `--resume` continues from it",
            **TERM,
        },
    ),
    "eval": Facts(
        reads="model directories, adapters and runs that `-m` names; with `--out` the games that are there",
        writes="with `--out DIR`: `rollouts.jsonl` (every game, for `legos view DIR`) and `results.json`",
        guides="[Evaluation](../../evaluation.md)",
        variables=(*MODELS, *ENDPOINTS),
        codes={1: "games were lost by an endpoint (all others count), or it failed and the message says why"},
    ),
    "tournament": Facts(
        reads="what `eval` reads; the leaderboard",
        writes="the leaderboard, `leaderboard.sqlite`; with `--out DIR`: `rollouts.jsonl` and `results.json`",
        guides="[Evaluation](../../evaluation.md)",
        variables=("LEGOS_DATA", *MODELS, *ENDPOINTS),
        codes={1: "games were lost by an endpoint (all others count), or it failed and the message says why"},
    ),
    "exploit": Facts(
        reads="what `eval` reads; the answers that are in DIR",
        writes="in DIR, `--out` or `runs/exploit-ENV-POLICY`: `rollouts.jsonl` (every answer, for `legos view DIR`), "
        "`results.json` and `exploiter/` with `strategy.json`; nothing with `--dry-run`",
        guides="[How exploitable is this model?](../../exploit.md), [evaluation](../../evaluation.md)",
        variables=(*MODELS, *ENDPOINTS),
        codes={1: "answers were lost by an endpoint (all others count), or it failed and the message says why"},
    ),
    "serve": Facts(
        reads="the model; adapters of `--adapter`, and from below `--adapter-root`; the keys of `--api-key-file`",
        writes="nothing",
        guides="[Serving](../../serving.md), [the engine](../../engine.md)",
        variables=MODELS,
        codes={0: "ended by Ctrl-C or SIGTERM, after running requests have finished"},
    ),
    "play": Facts(
        reads="model directories, adapters and runs that play",
        writes="nothing",
        guides="[Looking at a run](../../look.md)",
        variables=(*MODELS, *ENDPOINTS),
        codes={1: "the input ended before the game did, or it failed and the message says why"},
    ),
    "chat": Facts(
        reads="the model, adapter or run that answers",
        writes="nothing",
        guides="[Looking at a run](../../look.md)",
        variables=(*MODELS, *ENDPOINTS),
        codes={1: "it could not answer a line of a pipe, and the message says why"},
    ),
    "view": Facts(
        reads="`rollouts.jsonl` of each DIR; with several runs also `config.toml`, `metrics.jsonl` and `result.json`",
        writes="`view.html` and, of several runs, `compare.html`, both in the first DIR; `browse.html` of a folder of "
        "runs with `--no-open`; nothing with `--terminal` or `--watch`",
        guides="[Looking at episodes](../../viewer.md), [looking at a run](../../look.md)",
        variables=("BROWSER",),
        codes={0: "done; with `--watch`, ended by Ctrl-C"},
    ),
    "report": Facts(
        reads="`config.toml`, `metrics.jsonl`, `start.json`, `result.json` and `rollouts.jsonl` of each DIR",
        writes="`report.html` and `figures/` in each DIR; of several runs `compare.html` in the first",
        guides="[Looking at a run](../../look.md)",
    ),
    "export": Facts(
        reads="`adapters.safetensors` and `adapter_config.json` of an adapter or a run; its `config.toml`; "
        "`rollouts.jsonl`",
        writes="OUT: a folder, or with `parquet` and `jsonl` a file",
        guides="[Exporting](../../export.md)",
        variables=("HF_TOKEN",),
    ),
    "doctor": Facts(
        reads="what is installed, and facts of the system",
        writes="nothing",
        guides="[Exporting, and `legos doctor`](../../export.md)",
        codes={0: "always, even if a part could not be examined; the report says so"},
    ),
    "completion": Facts(
        reads="the parsers of all verbs, and the registered environments",
        writes="nothing",
        guides="[Installing](../../installing.md)",
    ),
    "bootstrap": Facts(
        reads="nothing but the registered environments",
        writes="OUT: a model directory in mlx-lm's layout, with its tokenizer and chat template",
        guides="[Architecture](../../architecture.md)",
        variables=("LEGOS_BLAS",),
    ),
}
