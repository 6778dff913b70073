from .league import LEARNER as LEARNER
from .league import League as League
from .league_settings import LeagueSettings as LeagueSettings
from .modes import MODES as MODES
from .nash import meta_nash as meta_nash
from .payoffs import Score as Score
from .seating import mark as mark
from .seating import sides_of as sides_of
