"""All runs and evaluations below a folder in one page: list, filter, sort, compare, even while they run.

catalog.Catalog -> folder_page.write_folder_page -> FOLDER/browse.html
                -> folder_server.serve_folder    (the same page, live, with the episodes of each run behind it)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
