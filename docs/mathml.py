"""Equations as MathML, which browsers draw by themselves: a page of ours loads nothing from elsewhere."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))


def inline(page: Any, node: nodes.math) -> None:
    page.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def block(page: Any, node: nodes.math_block) -> None:
    """Wider equations than the page scroll in their own box."""
    page.body.append(f'<div class="math" style="overflow-x: auto">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode
