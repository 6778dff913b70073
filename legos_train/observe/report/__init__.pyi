from . import figures as figures
from . import svg as svg
from .compare import compare as compare
from .compare import write_comparison as write_comparison
from .png import write_pngs as write_pngs
from .result_table import print_table as print_table
from .write import report_again as report_again
from .write import write_report as write_report
