"""Looking at episodes: the rollout log's lines, the self-contained page, its live server and the terminal replay.

    rollouts.jsonl -> log.read_log -> compact.compact -> page.build -> DIR/view.html
                                                      -> watch.serve (the same page, asking for new lines)
                                   -> terminal.replay

Nothing here needs a model library: whoever writes the log puts the tokens' texts into it (`lines.rollout_line`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
