"""Flags of other projects and our equivalents, which error messages suggest."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

FLAGS = {
    "--num-steps": "--steps",
    "--max-steps": "--steps",
    "--total-steps": "--steps",
    "--num-train-steps": "--steps",
    "--n-solver-rollouts": "--arg num_solvers",
    "--num-solvers": "--arg num_solvers",
    "--max-turns": "--arg max_turns",
    "--num-rounds": "--arg num_rounds",
    "--num-players": "--arg num_players",
    "--num-generations": "--group-size",
    "--num-rollouts": "--batch-size",
    "--n-rollouts": "--group-size",
    "--rollouts-per-example": "--group-size",
    "--rollouts-per-step": "--batch-size",
    "--episodes-per-step": "--batch-size",
    "--groups-per-batch": "--batch-size GROUPS*SIZE",
    "--rollout-batch-size": "--batch-size",
    "--num-epochs": "--optim.epochs",
    "--ppo-epochs": "--optim.epochs",
    "--lr": "--optim.lr",
    "--learning-rate": "--optim.lr",
    "--learningrate": "--optim.lr",
    "--weight-decay": "--optim.weight-decay",
    "--max-grad-norm": "--optim.grad-clip",
    "--warmup-steps": "--optim.warmup",
    "--lora-rank": "--lora.rank",
    "--lora-r": "--lora.rank",
    "--lora-layers": "--lora.layers",
    "--num-layers": "--lora.layers",
    "--lora-target-modules": "--lora.targets",
    "--target-modules": "--lora.targets",
    "--lora-alpha": "--lora.scale ALPHA/RANK",
    "--model-name": "--model",
    "--model-name-or-path": "--model",
    "--base-model": "--model",
    "--max-tokens": "--sampling.max-tokens",
    "--max-new-tokens": "--sampling.max-tokens",
    "--max-completion-length": "--sampling.max-tokens",
    "--temperature": "--sampling.temperature",
    "--top-p": "--sampling.top-p",
    "--max-seq-len": "--context",
    "--max-length": "--context",
    "--kl-coef": "--loss.kl",
    "--kl-weight": "--loss.kl",
    "--kl-penalty-coef": "--loss.kl",
    "--kl-loss-coef": "--loss.kl",
    "--entropy-coef": "--loss.entropy",
    "--loss-fn": "--loss.name",
    "--clip-range": "--loss.clip-high",
    "--advantage-estimator": "--credit.name",
    "--credit-assigner": "--credit.name",
    "--use-role-baseline": "--credit.name rae",
    "--role-baseline-ema-gamma": "--credit.decay",
    "--gamma": "--credit.gamma",
    "--filter-draw": "--filter.draws",
    "--max-draw-retries": "--filter.draw-retries",
    "--fsp-enabled": "--league.mode fsp",
    "--fsp-pool-size": "--league.pool",
    "--fsp-start-from": "--league.start-from",
    "--fsp-update-interval": "--league.snapshot-every",
    "--use-async-actor-learner": "--asynchronous.enabled",
    "--replay-buffer-max-staleness": "--replay.max-staleness",
    "--eval-every": "--eval.every",
    "--eval-interval": "--eval.every",
    "--save-every": "--checkpoint.every",
    "--save-steps": "--checkpoint.every",
    "--output-dir": "--run-dir",
    "--log-path": "--run-dir",
    "--load-checkpoint-path": "--resume --run-dir",
    "--env-name": "--env",
    "--env-id": "--env",
    "--game": "--env",
    "--wandb-project": "--logs.wandb",
}
"""Flags of SPIRAL, tinker-cookbook, TRL, verl and verifiers that `legos train` lacks, with our equivalents. The text
after `--arg` is a constructor argument of the environment, written NAME=VALUE. A value in capitals differs from
theirs."""

PLAYED = {
    "--model": "--policy",
    "--model-name": "--policy",
    "--model-name-or-path": "--policy",
    "--num-games": "--games",
    "--n-games": "--games",
    "--num-episodes": "--games",
    "--num-examples": "--games",
    "--num-samples": "--samples",
    "--rollouts-per-example": "--samples",
    "--max-concurrent": "--concurrency",
    "--max-concurrent-requests": "--connections",
    "--env-args": "--arg",
    "--output-dir": "--out",
}
"""The same for tools that evaluate policies or play games."""


def named_here(flag: str, known: Collection[str]) -> str | None:
    """The name of another project's flag in a command with the flags `known`; None if it has no counterpart."""
    name = flag.replace("_", "-").casefold()
    ours = FLAGS.get(name, "").partition(" ")[0]
    return next((one for one in (PLAYED.get(name), ours, f"--{ours.rpartition('.')[2]}") if one in known), None)


def translated(arguments: Sequence[str], known: Collection[str]) -> str | None:
    """A hint for the first argument that is another trainer's flag and not in `known`; None if there is none.

    Their names in our sections count too: `--optim.learning-rate`, `--sampling.max-new-tokens`.
    """
    for argument, following in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        flag, sign, value = argument.partition("=")
        value = value if sign or following.startswith("-") else following
        name = flag.replace("_", "-").casefold()
        if not name.startswith("--"):
            continue
        ours = FLAGS.get(name)
        if ours is None and "." in name and name not in known:
            ours = FLAGS.get(f"--{name.rpartition('.')[2]}")
        if ours:
            joint = "=" if ours.startswith("--arg ") else " "
            takes_one = joint == "=" or ours.rpartition(" ")[2].startswith("--")  # `--credit.name rae` has a value
            here = f"{ours}{joint}{value or 'VALUE'}" if joint == "=" or (value and takes_one) else ours
            return f"{flag} is another trainer's flag; here it is `{here}`. docs/resume_fsp.md maps the others"
    return None
