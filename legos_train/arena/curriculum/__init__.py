"""Task samplers: what an episode is about, decided between episodes and passed to it by reset options."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
