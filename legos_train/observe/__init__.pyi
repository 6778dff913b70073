from . import eval_numbers as eval_numbers
from . import plain_text as plain_text
from . import report as report
from . import viewer as viewer
from .dashboard import Progress as Progress
from .dashboard import sparkline as sparkline
from .result import Result as Result
from .trackers import trackers as trackers
