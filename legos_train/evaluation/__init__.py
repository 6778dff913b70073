"""Evaluation without training: policies in every seat, on paired seeds, with intervals."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
