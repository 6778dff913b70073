"""Forward passes over a KV cache: MLX, row by row, and numpy on a CPU."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
