from . import crossplay as crossplay
from . import exactly as exactly
from . import leaderboard as leaderboard
from . import outcomes as outcomes
from .duel import head_to_head as head_to_head
from .during_training import Course as Course
from .during_training import Measurer as Measurer
from .session import Session as Session
