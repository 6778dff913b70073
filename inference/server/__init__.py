"""The OpenAI-compatible server: `create_app(Settings(...))`, or `legos serve` on the command line."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
