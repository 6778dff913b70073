"""A chat renderer is one row of `RENDERERS`: settings, help, docs and training find it there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROW = """
import inference.text.templates as templates

templates.RENDERERS["terse"] = templates.NamedTemplate(
    "{% for message in messages %}{{ message.role[0] + ' ' + message.content + eos_token + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'a ' }}{% endif %}",
    (),
)
"""
FOUND = """
import contextlib, io, sys
from legos_train.cli.main import main

def help_of(*words):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([*words, "--help"])
    return text.getvalue()

assert "terse" in help_of("train") and "terse" in help_of("eval")
sys.path.insert(0, "docs")
from make_cli_pages import page
assert "terse" in page("train") and "terse" in page("eval")
from legos_train.config import from_dict
assert from_dict({"renderer": "terse"}).renderer == "terse"
"""
RUN = """
import sys
from legos_train import train
from legos_train.config import from_dict
small = {"steps": 2, "batch_size": 8, "lora": {"rank": 4}, "eval": {"every": 0, "games": 8}}
train(from_dict({"renderer": "terse", "run_dir": sys.argv[1], **small}))
"""


def after_the_row(code: str, *arguments: str) -> None:
    command = [sys.executable, "-c", ROW + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_help_docs_and_settings_name_a_new_renderer() -> None:
    after_the_row(FOUND)


@pytest.mark.slow
def test_a_run_renders_with_a_new_renderer(tmp_path: Path) -> None:
    after_the_row(RUN, str(tmp_path / "run"))
    assert 'renderer = "terse"' in (tmp_path / "run" / "config.toml").read_text()
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) >= 2
