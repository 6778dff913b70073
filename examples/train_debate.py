"""A debate judged by the base model: the judge answers at temperature 0 and is never trained.

uv run examples/train_debate.py --model mlx-community/Qwen2.5-1.5B-Instruct-4bit
"""

import argparse
from pathlib import Path

from legos_train import Actor, Arena, Result, TrainConfig, train


def main(steps: int = 200, run_dir: Path | None = None, model: str = "small") -> Result:
    small = model == "small"
    arena = Arena()
    arena.add_env("debate", "Debate-v0", args={"rounds": 1})
    words = 16 if small else 512
    for side in ("pro", "con"):
        arena.add_actor(Actor(side, system_prompt=f"You argue the {side} side. Be concrete.", max_tokens=words))
    # The judge could also be an endpoint, model="http://127.0.0.1:8000/v1#judge", or a function of the decision.
    arena.add_actor(Actor("judge", model="base", temperature=0.0, max_tokens=words, trainable=False))
    config = TrainConfig(
        model=model,
        steps=steps,
        batch_size=4 if small else 64,
        run_dir=run_dir,
        credit={"name": "rae"},  # zero-sum: the mean over both sides would not be a baseline
        sampling={"max_tokens": words},
        eval={"games": 4},
    )
    return train(arena, config)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="small")
    given = parser.parse_args()
    main(given.steps, model=given.model)
