"""Self-play training: actors and envs in an arena, credit from finished episodes, LoRA weights on MLX.

    from legos_train import Actor, Arena, TrainConfig, train

    arena = Arena()
    arena.add_env("KuhnPoker-v0")
    train(arena, TrainConfig(steps=50))

Names are loaded on first use, so importing this package is cheap.
"""

import lazy_loader

from legos_train.errors import require_own_inference

require_own_inference()
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
