"""What `legos train` does, in Python: a short run on Kuhn poker, then the exact numbers before and after."""

from pathlib import Path

from legos_train import train
from legos_train.config import from_dict


def main(steps: int = 30, run_dir: Path | None = None) -> None:
    config = from_dict({"env": "KuhnPoker-v0", "steps": steps, "run_dir": run_dir, "optim": {"lr": 3e-4}})
    result = train(config)
    print(f"NashConv {result.start['nash_conv']:.3f} -> {result.average['nash_conv']:.3f}, see {result.run_dir}")


if __name__ == "__main__":
    main()
