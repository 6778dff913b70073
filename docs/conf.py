"""Settings of the documentation site: uv run --group docs sphinx-build -W docs docs/_build"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import make_env_pages  # noqa: E402

import legos_envs  # noqa: E402

project = "Legos"
version = release = legos_envs.__version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Legos {version}"
html_copy_source = False

make_env_pages.write(HERE / "_generated")
