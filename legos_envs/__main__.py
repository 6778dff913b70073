"""`python -m legos_envs` lists the environments; `python -m legos_envs TextArena` lists those of that namespace."""

import os
import sys

from legos_envs.registry import NAMESPACE, catalogue

if __name__ == "__main__":
    names = sys.argv[1:] or [NAMESPACE]
    flags = any(name.startswith("-") for name in names)
    text = __doc__ if flags else "\n\n".join(map(catalogue, names))
    try:
        print(text, flush=True)
    except BrokenPipeError:  # as by `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at its end
