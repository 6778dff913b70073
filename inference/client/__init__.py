"""Request completions and publish adapters: in this process, over HTTP, or across several servers.

Importing this package loads neither MLX nor an HTTP library.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
