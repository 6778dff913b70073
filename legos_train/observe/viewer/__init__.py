"""Viewing episodes: the lines of the rollout log, the single-file page, its live server and the terminal replay.

    rollouts.jsonl -> log.read_log -> compact.compact -> viewer_page.build_page -> DIR/view.html
                                                      -> watch.serve (the same page, asking for new lines)
                                   -> terminal.replay

No model library is needed: the log's writer stores the text of each token (`lines.rollout_line`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
