from . import crossplay as crossplay
from . import exactly as exactly
from . import leaderboard as leaderboard
from . import outcomes as outcomes
from .during_training import Course as Course
from .during_training import Measurer as Measurer
from .session import Session as Session
