"""Credit: from finished episodes to one advantage per turn. One method per file, chosen by name.

`METHODS` holds the methods by name; the docs have a page for each, with its equation and source.
`PerEnv` and `PerRole` give individual environments or roles of a run their own method.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
