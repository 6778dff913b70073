"""Requests in, tokens out: the engine, its scheduler, its samplers and the thread that runs it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
