"""Looking at episodes: the rollout log's lines, the self-contained page, its live server and the terminal replay.

    rollouts.jsonl -> log.read_log -> compact.compact -> page.build -> DIR/view.html
                                                      -> watch.serve (the same page, asking for new lines)
                                   -> terminal.replay

Nothing here needs a model library: whoever writes the log puts the tokens' texts into it (`lines.rollout_line`).
"""

from __future__ import annotations

from legos_train.observe.viewer.lines import rollout_line, seat_outcomes
from legos_train.observe.viewer.log import LOG, LogError, LogLine, read_log
from legos_train.observe.viewer.terminal import replay
from legos_train.observe.viewer.truth import exact_values
from legos_train.observe.viewer.viewer_page import build, write_page
from legos_train.observe.viewer.watch import serve

__all__ = [
    "LOG",
    "LogError",
    "LogLine",
    "build",
    "exact_values",
    "read_log",
    "replay",
    "rollout_line",
    "seat_outcomes",
    "serve",
    "write_page",
]
