"""`python -m legos_envs` lists the environments; `python -m legos_envs TextArena` lists those of that namespace."""

import sys

from legos_envs.registry import NAMESPACE, catalogue

if __name__ == "__main__":
    names = sys.argv[1:] or [NAMESPACE]
    if any(name.startswith("-") for name in names):
        print(__doc__)
    else:
        print("\n\n".join(map(catalogue, names)))
