"""A proposer writes arithmetic, eight solvers try; good problems are stored and given to later solvers.

uv run examples/train_proposer_solver.py --model mlx-community/Qwen2.5-1.5B-Instruct-4bit
"""

import argparse
from pathlib import Path

from legos_train import Arena, ArtifactStore, Result, TrainConfig, train
from legos_train.arena import SAMPLERS


def main(steps: int = 200, run_dir: Path | None = None, model: str = "small") -> Result:
    arena = Arena()
    arena.add_env("problems", "ProposerSolver-v0", args={"num_solvers": 8, "proposer_reward": "goldilocks"})
    store = ArtifactStore(":memory:")  # part of every checkpoint
    arena.add_store("problems", store)
    config = TrainConfig(
        model=model,
        steps=steps,
        batch_size=4 if model == "small" else 32,
        run_dir=run_dir,
        # Solvers are compared with their siblings, proposers with the other proposers of the batch.
        credit={"name": "hierarchical_grpo", "root_peers": "batch"},
        curriculum={"share": 0.3, "low": 0.1, "high": 0.9},
        eval={"games": 4},
    )
    arena.add_sampler(SAMPLERS["proposed_problems"](config.curriculum, store, arena))
    result = train(arena, config)
    print(f"{len(store)} problems kept")
    store.close()
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="small")
    given = parser.parse_args()
    main(given.steps, model=given.model)
