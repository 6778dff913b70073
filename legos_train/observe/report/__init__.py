"""The output at the end of a run: a table on the terminal, `report.html` with figures, and comparisons.

`report.html` is one file without scripts or links; its figures are also in `figures/*.svg`, as PNG with `--png`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
