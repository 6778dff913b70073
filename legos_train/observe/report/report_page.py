"""The HTML around figures and tables: one file without scripts, links or anything to load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from legos_train.observe.report.svg import STYLE, Figure, line_chart

SECTIONS = ("Evaluation", "Learning", "Health", "Speed", "League")
"""The sections of figures, in order."""
CSS = """
:root { color-scheme: light dark; --paper: #fbfaf8; --card: #fff; --sunk: #f3f1ed; --ink: #1c1e21; --soft: #5b6067;
  --line: #dedad3; --accent: #1f5fbf; --bad: #a8231c; --good: #11693a; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171a; --card: #1d2024; --sunk: #24282d; --ink: #e7e5e1;
  --soft: #a3a8af; --line: #363b42; --accent: #7fb2ff; --bad: #ff9188; --good: #6fd39a; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: var(--ink);
  background: var(--paper); max-width: 1180px; margin: 0 auto; padding: 1.5rem 1rem 5rem; }
h1 { font-size: 1.35rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .7rem; }
h3 { font-size: .95rem; margin: .4rem 0; } p { margin: .3rem 0; } .soft, figcaption { color: var(--soft); }
.bad { color: var(--bad); } .wide { overflow-x: auto; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .6rem 0; } a { color: var(--accent); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left; vertical-align: top; }
th { color: var(--soft); font-weight: 600; } td.n, th.n { text-align: right; white-space: nowrap; }
td.s { white-space: nowrap; }
td.v, th.v { min-width: 7.5rem; } td.v { white-space: pre-line; overflow-wrap: anywhere; }
.verdict { font-size: 1.12rem; font-weight: 600; margin: .5rem 0; }
.deal { font-size: .88rem; } .deal b { font-weight: 600; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)); gap: .9rem; }
figure { min-width: 0; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .4rem .5rem; }
.below { margin-top: .9rem; }
figure svg { display: block; max-width: 100%; height: auto; }
figure.row { overflow-x: auto; } figure.row svg { max-width: none; }
figcaption { font-size: .8rem; padding: 0 .4rem .3rem; }
article { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .4rem .8rem; }
article { margin-bottom: .7rem; } article p { margin: .25rem 0; }
q { font-family: ui-monospace, "DejaVu Sans Mono", monospace; }
q { white-space: pre-wrap; overflow-wrap: anywhere; quotes: none; }
.ends { border-top: 1px solid var(--line); padding-top: .25rem; }
summary { cursor: pointer; color: var(--soft); font-size: .88rem; }
pre { font: .82rem/1.45 ui-monospace, "DejaVu Sans Mono", monospace; background: var(--sunk); padding: .6rem .8rem;
  border-radius: 8px; white-space: pre-wrap; overflow-wrap: anywhere; margin: .4rem 0; }
.bar { display: inline-block; height: .6rem; background: var(--accent); border-radius: 2px; margin-right: .4rem;
  vertical-align: middle; opacity: .75; }
@media (max-width: 620px) { body { padding: 1rem .7rem 4rem; } td, th { padding-right: .6rem; font-size: .86rem; }
  table.facts, table.facts tr, table.facts td { display: block; } table.facts tr:first-child { display: none; }
  table.facts td { border: 0; padding: .1rem 0; white-space: normal; text-align: left; }
  table.facts tr { border-bottom: 1px solid var(--line); padding: .4rem 0; }
  table.facts td.n::before { content: attr(data-name) ": "; color: var(--soft); }
  table.facts td:empty { display: none; } }
@media print { body { max-width: none; } figure, article { break-inside: avoid; } }
"""


def page(title: str, lead: Sequence[str], sections: Iterable[tuple[str, str]]) -> str:
    """A page.

    Args:
        title: plain text.
        lead: paragraphs below the title, plain text; the first is a summary of the page.
        sections: (heading as plain text, body as HTML); empty bodies are left out.
    """
    kept = [(head, body) for head, body in sections if body]
    names = [f"s{k}" for k in range(len(kept))]
    nav = " ".join(f'<a href="#{name}">{escape(head)}</a>' for name, (head, _) in zip(names, kept))
    body = "\n".join(f'<h2 id="{name}">{escape(head)}</h2>\n{text}' for name, (head, text) in zip(names, kept))
    kinds = ["verdict", *["soft"] * len(lead)]
    intro = "".join(f"<p class={kind}>{escape(text)}</p>" for kind, text in zip(kinds, lead))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{CSS}{STYLE}</style></head><body>
<h1>{escape(title)}</h1>{intro}<nav>{nav}</nav>
{body}
</body></html>
"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: bool = False) -> str:
    """A table of plain text; with `numeric`, all columns but the first are right-aligned."""
    if not rows:
        return ""

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = ["n" if numeric and k else "v" for k in range(len(row))]
        named = [f' data-name="{escape(name)}"' if tag == "td" and k else "" for k, name in enumerate(head)]
        parts = (f"<{tag} class={c}{n}>{escape(v)}</{tag}>" for c, n, v in zip(kinds, named, row))
        return f"<tr>{''.join(parts)}</tr>"

    kind = " class=facts" if numeric else ""
    return f"<div class=wide><table{kind}>{cells('th', head)}{''.join(cells('td', row) for row in rows)}</table></div>"


def grid(figures: Sequence[Figure]) -> str:
    """Line charts side by side, with their notes below."""
    if not figures:
        return ""
    return f"<div class=grid>{''.join(picture(line_chart(f), f.note) for f in figures)}</div>"


def picture(svg: str, note: str = "", kind: str = "") -> str:
    caption = f"<figcaption>{escape(note)}</figcaption>" if note else ""
    return f"<figure{f' class={kind}' if kind else ''}>{svg}{caption}</figure>"


def bar_table(head: Sequence[str], rows: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    """A table of shares between 0 and 1, each with a bar; a repeated first cell is left empty."""
    out, before = [], None
    for first, second, shares in rows:
        cells = "".join(
            f'<td class=s><span class=bar style="width: {max(0.0, min(1.0, s)) * 4:.2f}rem"></span>{s:.3f}</td>'
            for s in shares
        )
        out.append(
            f"<tr><td class=v>{escape(first) if first != before else ''}</td><td>{escape(second)}</td>{cells}</tr>"
        )
        before = first
    titles = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<div class=wide><table><tr>{titles}</tr>{''.join(out)}</table></div>" if out else ""
