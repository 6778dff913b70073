"""Two answers to one prompt, compared by a judge in both orders. Here code is the judge: longer is better.

uv run examples/train_head_to_head.py --model mlx-community/Qwen2.5-1.5B-Instruct-4bit
"""

import argparse
from pathlib import Path

from legos_envs import Decision, make
from legos_envs.policies import make_policy
from legos_train import Actor, Arena, Result, TrainConfig, train


def main(steps: int = 200, run_dir: Path | None = None, model: str = "small") -> Result:
    small = model == "small"
    longer = make_policy("scripted:longer", make("HeadToHead-v0"))

    def judge(decision: Decision) -> str:
        return longer(decision)  # any function from a decision to text can sit in a seat

    arena = Arena()
    arena.add_env("answers", "HeadToHead-v0")
    arena.add_actor(Actor("judge", model=judge, trainable=False))
    config = TrainConfig(
        model=model,
        steps=steps,
        batch_size=16 if small else 64,
        run_dir=run_dir,
        credit={"name": "rae"},
        sampling={"max_tokens": 16 if small else 384},
        eval={"games": 4},
    )
    return train(arena, config)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--model", default="small")
    given = parser.parse_args()
    main(given.steps, model=given.model)
