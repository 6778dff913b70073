from .league import LEARNER as LEARNER
from .league import League as League
from .league_settings import LeagueSettings as LeagueSettings
from .modes import MODES as MODES
from .nash import meta_nash as meta_nash
from .nash import role_nash as role_nash
from .payoffs import Score as Score
from .seating import mark as mark
