"""What leaves Legos: adapters for PEFT and the hub, rollouts as data sets, environments for verifiers.

`legos export FORMAT ...` (cli_export.py) is the command line of these functions.

    peft.py        mlx-lm adapter <-> PEFT adapter
    hub.py         a folder with adapter and model card (card.py), and pushing it when asked to
    rows.py        rollouts.jsonl -> JSONL or Parquet, one row per turn or per episode
    verifiers.py   an environment as a package for verifiers v1 (prime-rl)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
