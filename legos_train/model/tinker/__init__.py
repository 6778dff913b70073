"""The learner and the sampler behind the Tinker API: the hosted service, or any server that speaks it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
