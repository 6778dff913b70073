"""Notes printed at the start of a run about settings that do something other than one may think."""

from __future__ import annotations

from legos_train.config import TrainConfig
from legos_train.evaluation import Measurer
from legos_train.loss import LossSettings


def rising_kl(config: TrainConfig) -> list[str]:
    """A note if only `loss.kl` is set, below the default of `kl_end`: the KL weight then grows unintentionally."""
    default = LossSettings().kl_end or 0.0
    losses = [one.loss for one in (config.learners.values() or [config])]
    rising = dict.fromkeys(loss.kl for loss in losses if loss.kl < default == loss.kl_end)
    return [
        f"the KL weight rises from {kl:g} to {default:g}, the default of loss.kl_end; --loss.kl-end none stops it"
        for kl in rising
    ]


def rarely_measured(config: TrainConfig, measurer: Measurer) -> list[str]:
    """A note about envs that ignore `eval.every`, because evaluating all positions of a large game takes long."""
    tasks = measurer.tasks.values() if config.eval.every else ()
    return [
        f"{task.slot.name} is measured only before the first step and after the last: it has {len(task.info_sets):,} "
        "positions, and all are evaluated; a table [[eval.env]] with its own `every` measures it in between"
        for task in tasks
        if not task.every and task.info_sets is not None and not task.again
    ]
