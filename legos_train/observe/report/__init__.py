"""What a run shows at its end: a table on the terminal, `report.html` with its figures, and runs compared.

`report.html` is one file without scripts or links; its figures also stand as `figures/*.svg`. PNG of them is drawn by a
browser on this machine when asked for: `python -m legos_train.observe.report DIR --png`.
"""

from legos_train.observe.report.compare import compare, write_comparison
from legos_train.observe.report.figures import figures
from legos_train.observe.report.png import write_pngs
from legos_train.observe.report.result_table import print_table, summary_rows
from legos_train.observe.report.svg import Figure, Line, heat_map, line_chart, standalone
from legos_train.observe.report.write import report_again, write_report

__all__ = [
    "Figure",
    "Line",
    "compare",
    "figures",
    "heat_map",
    "line_chart",
    "print_table",
    "report_again",
    "standalone",
    "summary_rows",
    "write_comparison",
    "write_pngs",
    "write_report",
]
