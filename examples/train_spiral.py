"""SPIRAL's three games at once, with its settings, against snapshots of the learner itself.

uv run examples/train_spiral.py --model mlx-community/Qwen2.5-1.5B-Instruct-4bit
"""

import argparse
from pathlib import Path

from legos_train import Result, train
from legos_train.config import from_dict, preset


def main(steps: int = 200, run_dir: Path | None = None, model: str = "tiny") -> Result:
    settings = preset("spiral_fsp", smoke=model == "tiny")
    settings |= {"model": model, "steps": steps, "run_dir": run_dir}
    return train(from_dict(settings))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="tiny")
    given = parser.parse_args()
    main(given.steps, model=given.model)
