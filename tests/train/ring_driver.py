"""One rank of the tests of data-parallel training: `python -m tests.train.ring_driver FOLDER gradients|runs|sleep`.

`gradients` and `runs` leave what they found in `FOLDER/found.json`. With `sleep`, rank 1 dies while rank 0 does
something long that is not a collective.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from legos_train import Trainer, TrainingError, train
from legos_train.errors import RankLost
from legos_train.model import World, joined
from legos_train.model.gradients import loss_and_grad, prepare
from legos_train.model.lora import grad_norm
from legos_train.run import build
from tests.train.helpers import plain_loss, small


class Broken(Exception):
    """What ends a run in the middle."""


def gradients(world: World) -> dict[str, Any]:
    """How far the sum over the ranks is from the gradient of one process, by case, and every rank's share."""
    trainer, found = Trainer(build(small(steps=2, batch_size=16))), {}
    try:
        trainer.step()
        trainer.step()  # from now on both factors of LoRA have a gradient
        policy, whole = trainer.parts.backend.policy, trainer.batch
        for name, batch, settings in (
            ("ppo", whole, {}),
            ("gspo", whole, {"name": "gspo"}),
            ("corrected", whole, {"truncate_ratio": 2.0}),
            ("one turn", whole.select(whole.sequence == whole.sequence[0]), {}),
        ):
            chosen = plain_loss(kl=0.1, entropy=0.01, **settings)
            alone, together = prepare(policy, batch, chosen), prepare(policy, batch, chosen, world=world)
            _, own, numbers = loss_and_grad(policy, alone, chosen)
            _, ours, summed = loss_and_grad(policy, together, chosen, world=world)
            differences = {n: ours[n] - own[n] for n in own}
            found[name] = {
                "relative": grad_norm(differences) / grad_norm(own),
                "largest": max(float(np.asarray(mx.max(mx.abs(d)))) for d in differences.values()),
                "loss": abs(summed["loss"] - numbers["loss"]),
                "names": sorted(summed) == sorted(numbers),
                "tokens": len(batch),
                "shares": [int(data) for data in world.gather(str(len(world.part(batch)[0])).encode())],
            }
    finally:
        trainer.parts.close()
    return found


def compare(folder: Path) -> None:
    """The gradients, and what is said where ranks differ."""
    found: dict[str, Any] = {}
    with joined() as world:
        assert world is not None and world.size == 2
        found["gradients"] = gradients(world)
        try:
            world.agree("the rank", str(world.rank).encode())
        except TrainingError as error:
            found["differs"] = str(error)
        if world.rank == 0:
            (folder / "found.json").write_text(json.dumps(found))


def runs(folder: Path) -> None:
    """A run that breaks and goes on, and one in which rank 1 dies."""
    found: dict[str, Any] = {}
    with joined() as world:
        assert world is not None
        rank = world.rank

    def breaks(record: dict[str, Any]) -> None:
        if record["step"] == 2:
            raise Broken

    # On rank 1 the run directory is another one: nothing may be written there, and nothing read.
    config = small(
        folder / f"run_{rank}",
        steps=3,
        batch_size=24,
        checkpoint={"every": 1},
        league={"mode": "fsp", "snapshot_every": 1},
    )
    try:
        train(config, quiet=True, on_step=breaks)
    except Broken:
        found["broken"] = True
    found["steps"] = train(config, quiet=True, resume=True).steps
    found["again"] = train(config, quiet=True, resume=True).steps

    def dies(record: dict[str, Any]) -> None:
        found["died"] = time.time()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        train(small(folder / f"dies_{rank}", steps=50, batch_size=8), quiet=True, on_step=dies)
    except RankLost as error:
        found |= {"lost": str(error), "seconds": time.time() - found["died"]}
    (folder / "found.json").write_text(json.dumps(found))


def sleep(_: Path) -> None:
    with joined() as world:
        print("joined", flush=True)
        if world is not None and world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


if __name__ == "__main__":
    {"gradients": compare, "runs": runs, "sleep": sleep}[sys.argv[2]](Path(sys.argv[1]))
