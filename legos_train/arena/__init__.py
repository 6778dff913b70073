"""Decides what is played next: the arena, its requests, artifact stores and task samplers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
