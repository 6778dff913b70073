from .measure import report_evenness as report_evenness
from .recipe import bootstrap as bootstrap
