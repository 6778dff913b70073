"""Episodes played side by side, with the tokens they were sampled as."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
