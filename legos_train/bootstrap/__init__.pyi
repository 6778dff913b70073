from .env_scores import report_played as report_played
from .measure import report_evenness as report_evenness
from .recipe import RECIPES as RECIPES
from .recipe import bootstrap as bootstrap
