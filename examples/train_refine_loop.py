"""Draft, criticism, revision: generator and critic are each compared with their role in the group.

uv run examples/train_refine_loop.py --model mlx-community/Qwen2.5-1.5B-Instruct-4bit
"""

import argparse
from pathlib import Path

from legos_train import Arena, Result, TrainConfig, train


def main(steps: int = 200, run_dir: Path | None = None, model: str = "small") -> Result:
    small = model == "small"
    arena = Arena()
    arena.add_env("refine", "RefineLoop-v0", args={"rounds": 1, "domain": "checked"})
    config = TrainConfig(
        model=model,
        steps=steps,
        batch_size=8 if small else 64,
        group_size=4 if small else 8,
        run_dir=run_dir,
        credit={"name": "grpo"},
        sampling={"max_tokens": 16 if small else 512},
        eval={"games": 4},
    )
    return train(arena, config)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="small")
    given = parser.parse_args()
    main(given.steps, model=given.model)
