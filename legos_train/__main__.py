"""`python -m legos_train ARGUMENTS`: the program that `mlx.launch` starts on every rank. Without a verb it trains."""

from __future__ import annotations

import sys

from legos_train.cli import launch

if __name__ == "__main__":
    sys.exit(launch())
