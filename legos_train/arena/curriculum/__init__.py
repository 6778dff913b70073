"""Task samplers: they choose what an episode is about and pass it to `reset` as options."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
