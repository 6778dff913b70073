"""`python -m legos_train ARGUMENTS`: what `mlx.launch` starts on every rank. Without a verb it trains."""

from __future__ import annotations

import sys

from legos_train.cli.main import VERBS, main

if __name__ == "__main__":
    arguments = sys.argv[1:]
    known = arguments[:1] and (arguments[0] in VERBS or arguments[0] in ("-h", "--help", "-V", "--version"))
    sys.exit(main(arguments if known else ["train", *arguments]))
