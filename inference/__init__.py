"""Inference with MLX: an engine serving many requests, adapters and versions over one base model, and its clients.

Importing this package does not load MLX; the first use of a name below does.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
