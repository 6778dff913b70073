"""What a run shows at its end: a table on the terminal, `report.html` with its figures, and runs compared.

`report.html` is one file without scripts or links; its figures are also in `figures/*.svg`, as PNG with `--png`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
