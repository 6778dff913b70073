"""Settings of the documentation site: uv run --group docs sphinx-build -W docs docs/_build"""

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import make_algorithm_pages  # noqa: E402
import make_api_pages  # noqa: E402
import make_cli_pages  # noqa: E402
import make_env_pages  # noqa: E402
import mathml  # noqa: E402

import legos_envs  # noqa: E402

project = "Legos"
version = release = legos_envs.__version__
extensions = ["myst_nb"]
nb_execution_mode = "off"  # notebooks are shown with the outputs they have; a test compares those with a new execution
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Legos {version}"
html_copy_source = False
html_show_copyright = False

html_math_renderer = "mathml"

make_env_pages.write(HERE / "_generated")
make_algorithm_pages.write(HERE / "_generated/algorithms")
make_cli_pages.write(HERE / "_generated/commands")
make_api_pages.write(HERE / "_generated/api")

notebooks = HERE / "_generated/notebooks"
notebooks.mkdir(exist_ok=True)
for notebook in sorted((HERE.parent / "examples/notebooks").glob("*.ipynb")):
    shutil.copy2(notebook, notebooks)


def setup(app: Sphinx) -> None:
    mathml.setup(app)
