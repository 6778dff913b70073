"""The tables of the dashboard: the learners of a run, and the facts at the bottom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legos_train.observe.dashboard_text import memory, milliseconds, number, shown
from legos_train.observe.eval_numbers import Z95


def learners_table(learners: Mapping[str, Mapping[str, Any]], most: int, wide: bool) -> Any:
    """Rewards and learning metrics of the first `most` learners; in a narrow terminal only rewards."""
    from rich.text import Text

    table = grid("learner", "reward", "wins", wide)
    for name in ("KL", "entropy", "gradient", "updates") if wide else ():
        table.add_column(name, justify="right")
    for name, own in list(learners.items())[:most]:
        cells = [shown(own.get("reward"), "+.3f"), shown(own.get("win_rate"), ".0%")]
        if wide:
            cells += [number(own, key, ".3f") for key in ("kl", "entropy", "grad_norm")]
            cells.append(number(own, "updates", ".0f"))
        table.add_row(Text(name), *cells)
    if len(learners) > most:
        table.add_row(Text(f"and {len(learners) - most} more", style="dim"))
    return table


def facts_table(record: Mapping[str, Any], wide: bool) -> Any:
    """Two columns of name and number, or one in a narrow terminal."""
    from rich.table import Table
    from rich.text import Text

    facts = [
        ("invalid games", number(record, "invalid_rate", ".2%")),
        ("speed", f"{number(record, 'tokens_per_second', ',.0f')} tok/s"),
        ("entropy", f"{number(record, 'entropy', '.3f')} nats"),
        ("step", f"{number(record, 'seconds', '.2f')} s"),
        ("KL", f"{number(record, 'kl', '.3f')} nats"),
        ("play, learn", f"{number(record, 'seconds_play', '.2f')} s, {number(record, 'seconds_learn', '.2f')} s"),
        ("gradient", number(record, "grad_norm", ".3f")),
        ("weight swap", milliseconds(record)),
        (
            "staleness",
            f"{number(record, 'staleness_mean', '.1f')}, most {number(record, 'staleness_max', '.0f')}",
        ),
        ("memory", memory()),
    ]
    league = record.get("league") or {}
    if league:
        several = league.get("learners") or {}
        wins = "" if several else f", wins {number(league, 'win_rate', '.0%')}"
        facts.append(("league", f"{number(league, 'members', '.0f')} members{wins}"))
        for name, own in several.items() or [("rating", league)]:
            sigma = own.get("rating_sigma")
            spread = f" ± {Z95 * sigma:.1f}" if isinstance(sigma, int | float) else ""
            facts.append((f"rating {name}" if several else name, number(own, "rating", ".1f") + spread))
    table = Table.grid(padding=(0, 2, 0, 0))
    for k in range(0, len(facts), 2 if wide else 1):
        shown_here = facts[k : k + (2 if wide else 1)]
        cells = [cell for name, value in shown_here for cell in (Text(name, style="dim"), Text(value))]
        table.add_row(*cells)
    return table


def grid(name: str, left: str, right: str, wide: bool) -> Any:
    """A table of names with two numbers."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=30 if wide else 16)
    table.add_column(left, justify="right")
    table.add_column(right, justify="right")
    return table
