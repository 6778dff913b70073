"""Trading with talk: both sides learn, each against its own moving baseline (RAE per role).

uv run examples/train_negotiation.py --model mlx-community/Qwen2.5-1.5B-Instruct-4bit
"""

import argparse
from pathlib import Path

from legos_train import Arena, Result, TrainConfig, train


def main(steps: int = 200, run_dir: Path | None = None, model: str = "small") -> Result:
    small = model == "small"
    arena = Arena()
    arena.add_env("trade", "Negotiation-v0")
    arena.add_env("bargain", "SimpleNegotiation-v0", weight=0.5)
    config = TrainConfig(
        model=model,
        steps=steps,
        batch_size=8 if small else 64,
        run_dir=run_dir,
        context=4096,
        credit={"name": "rae"},
        sampling={"max_tokens": 16 if small else 256},
        eval={"games": 4},
    )
    return train(arena, config)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="small")
    given = parser.parse_args()
    main(given.steps, model=given.model)
