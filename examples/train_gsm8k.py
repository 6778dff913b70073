"""Grade-school maths with GRPO: eight answers per problem, compared with one another.

uv run examples/train_gsm8k.py --model mlx-community/Qwen2.5-1.5B-Instruct-4bit --source hf
"""

import argparse
from pathlib import Path

from legos_train import Arena, Result, TrainConfig, train


def main(steps: int = 200, run_dir: Path | None = None, model: str = "small", source: str = "words") -> Result:
    arena = Arena()
    arena.add_env("train", "GSM8K-v0", args={"source": source})
    config = TrainConfig(
        model=model,
        steps=steps,
        batch_size=64 if model != "small" else 16,
        group_size=8,
        run_dir=run_dir,
        credit={"name": "grpo", "singleton": "zero"},
        loss={"name": "gspo", "clip_low": 3e-4, "clip_high": 4e-4, "kl": 0.0, "kl_end": None},
        optim={"lr": 4e-5, "beta1": 0.9, "grad_clip": 1.0},
        eval={"games": 16},
    )
    return train(arena, config)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="small")
    parser.add_argument("--source", default="words", help="words, hf, or a file with GSM8K's fields")
    given = parser.parse_args()
    main(given.steps, model=given.model, source=given.source)
