"""SPICE: questions about the documents in a directory, answered without them (arXiv 2510.24684).

uv run examples/train_spice.py --model mlx-community/Qwen2.5-1.5B-Instruct-4bit
"""

import argparse
from pathlib import Path

from legos_train import Arena, Result, TrainConfig, train


def main(steps: int = 200, run_dir: Path | None = None, model: str = "small", source: str = "facts") -> Result:
    small = model == "small"
    arena = Arena()
    arena.add_env("spice", "SPICE-v0", args={"num_reasoners": 4, "source": source})
    config = TrainConfig(
        model=model,
        steps=steps,
        batch_size=4 if small else 32,
        run_dir=run_dir,
        credit={"name": "hierarchical_grpo", "root_peers": "batch"},
        sampling={"max_tokens": 16 if small else 768},
        eval={"games": 4},
    )
    return train(arena, config)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="small")
    given = parser.parse_args()
    main(given.steps, model=given.model)
