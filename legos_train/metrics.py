"""What a run says while it works: one JSON line per step, a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from legos_envs import Episode
from legos_train.metrics_file import MetricsFile

__all__ = ["MetricsFile", "Progress", "episode_metrics", "sparkline"]


def episode_metrics(episodes: Sequence[Episode], *, by_env: bool = False) -> dict[str, Any]:
    """Reward by role, how episodes ended, and the length and variety of what was said.

    `invalid_rate` is the share of trained actions with a list of legal ones that stated none of them, by exact text;
    `prompts` the number of distinct prompts. `by_env`: roles are called `ENV/ROLE`, for runs with several envs.
    """
    rewards: dict[str, list[float]] = {}
    outcomes: Counter[str] = Counter()
    prompts = set()
    tokens = actions = listed = invalid = unscored = 0
    for episode in episodes:
        outcomes[episode.outcome or "ended"] += 1
        for trajectory in episode.trajectories.values():
            if "unscored" in (episode.outcome, trajectory.info.get("ending")):
                unscored += 1
                continue  # its zero is no return
            role = f"{episode.env_id}/{trajectory.role}" if by_env else trajectory.role
            rewards.setdefault(role, []).append(trajectory.total)
            for turn in trajectory.turns:
                if turn.action_tokens is None or not trajectory.trainable:
                    continue
                actions += 1
                tokens += len(turn.action_tokens)
                prompts.add(hash(tuple(turn.prompt_tokens or ())))
                if turn.legal_actions:
                    listed += 1
                    invalid += turn.action not in turn.legal_actions
    return {
        "reward": {role: float(np.mean(values)) for role, values in sorted(rewards.items())},
        "outcomes": dict(sorted(outcomes.items())),
        "episodes": len(episodes),
        "unscored_trajectories": unscored,
        "turns": actions,
        "tokens_per_turn": tokens / actions if actions else 0.0,
        "prompts": len(prompts),
        "invalid_rate": invalid / listed if listed else 0.0,
    }


class Progress:
    """Live view of a run: a rich table on a terminal, one plain line every few steps otherwise."""

    def __init__(self, title: str, steps: int, start: int = 0, every: int = 10, quiet: bool = False):
        self.title, self.steps, self.start, self.every, self.quiet = title, steps, start, every, quiet
        self.live: Any = None
        self.began = time.monotonic()
        self.history: list[tuple[str, float]] = []

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stdout.isatty():
            from rich.live import Live

            self.live = Live(refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def note(self, text: str) -> None:
        """One line that stays."""
        if self.quiet:
            return
        if self.live is not None:
            self.live.console.print(text, highlight=False)
        else:
            print(text, flush=True)

    def update(self, record: Mapping[str, Any]) -> None:
        """Shows a step: its metrics record with `step` and, after an evaluation, `eval`."""
        if self.quiet:
            return
        for name, value in (record.get("eval") or {}).items():
            if isinstance(value, float):
                self.history.append((name, value))
        step = record["step"]
        if self.live is not None:
            self.live.update(self._table(record))
        elif step == self.start + 1 or step % self.every == 0 or step == self.steps:
            print(self._line(record), flush=True)

    def _left(self, step: int) -> str:
        done = step - self.start
        seconds = (time.monotonic() - self.began) / max(done, 1) * (self.steps - step)
        return f"{int(seconds // 60)}:{int(seconds % 60):02d}"

    def _line(self, record: Mapping[str, Any]) -> str:
        step = record["step"]
        reward = " ".join(f"{role} {value:+.3f}" for role, value in record["reward"].items())
        shown = " ".join(f"{k} {v:.3f}" for k, v in (record.get("eval") or {}).items() if isinstance(v, float))
        return (
            f"step {step}/{self.steps}  reward {reward}  invalid {record['invalid_rate']:.1%}  "
            f"entropy {record['entropy']:.3f}  kl {record['kl']:.3f}  {record['seconds']:.2f} s/step  "
            f"left {self._left(step)}" + (f"  | {shown}" if shown else "")
        )

    def _table(self, record: Mapping[str, Any]) -> Any:
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        step = record["step"]
        grid = Table.grid(padding=(0, 2))
        grid.add_row("step", f"{step} / {self.steps}", ProgressBar(self.steps, step, width=40))
        grid.add_row(
            "time left", self._left(step), f"{record['seconds']:.2f} s/step, {record['tokens_per_second']:.0f} tok/s"
        )
        for role, value in record["reward"].items():
            grid.add_row("reward", role, f"{value:+.3f}")
        grid.add_row("invalid moves", f"{record['invalid_rate']:.2%}", f"{record['prompts']} distinct prompts")
        grid.add_row("entropy", f"{record['entropy']:.3f}", f"KL to base {record['kl']:.3f}")
        grid.add_row("gradient norm", f"{record['grad_norm']:.3f}", f"learning rate {record['lr']:.1e}")
        latest: dict[str, list[float]] = {}
        for name, value in self.history:
            latest.setdefault(name, []).append(value)
        for name, values in latest.items():
            grid.add_row(name, f"{values[-1]:.3f}", sparkline(values))
        return Panel(grid, title=self.title, expand=False)


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """A row of eight-step bars."""
    shown = np.asarray(values, float)[-width:]
    low, high = float(shown.min()), float(shown.max())
    levels = np.zeros(len(shown), int) if high == low else ((shown - low) / (high - low) * 7).round().astype(int)
    return "".join("▁▂▃▄▅▆▇█"[level] for level in levels)
