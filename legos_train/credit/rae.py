"""Role-conditioned advantage estimation: a moving baseline per (env id, role). Other methods fall back to it.

Three things differ from the paper, which starts its moving average at 0 and updates it after every game:

* the average is divided by `1 - decay ** n` after n returns (Adam's bias correction), so that it is the weighted mean
  of what was seen instead of creeping up from 0; with n = 0 the baseline is 0;
* a whole batch is scored against the baseline from before the batch;
* then its m returns are folded in at once, `ema <- decay ** m * ema + (1 - decay ** m) * mean(returns)`. This is the
  mean of the paper's update over every order of the m returns (for m = 1 it is the update), so neither the order in
  which episodes finish nor the number of workers changes the baseline.

`bias_correction=False` and `baseline_update="game"` or `"game_first"` undo these changes, for a strict replication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from legos_envs.records import Episode
from legos_train.credit.assigner import (
    DECAY,
    GAMMA,
    Advantages,
    Decay,
    Gamma,
    check_choice,
    check_method,
    check_unit,
    mean,
    method,
    trained,
    turn_discounts,
)

Update = Literal["batch", "game", "game_first"]
Key = tuple[str, str]  # (env id, role)


class Baselines:
    """Exponential moving averages, one per (env id, role); they start at 0, which `bias_correction` corrects."""

    def __init__(self, decay: float = DECAY, bias_correction: bool = True) -> None:
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay must be at least 0 and less than 1, got {decay!r}")
        self.decay, self.bias_correction = decay, bias_correction
        self._ema: dict[Key, float] = {}
        self._count: dict[Key, int] = {}

    def __call__(self, env_id: str, role: str) -> float:
        """The baseline of a role; 0 before its first return."""
        count = self._count.get((env_id, role), 0)
        if not count:
            return 0.0
        ema = self._ema[env_id, role]
        return ema / (1.0 - self.decay**count) if self.bias_correction else ema

    def fold(self, values: Mapping[Key, Sequence[float]]) -> None:
        """Take in a batch of values per key; the order of the values does not matter."""
        for key, batch in values.items():
            if not batch:
                continue
            keep = self.decay ** len(batch)
            self._ema[key] = keep * self._ema.get(key, 0.0) + (1.0 - keep) * mean(batch)
            self._count[key] = self._count.get(key, 0) + len(batch)

    def as_dict(self) -> dict[str, dict[str, float]]:
        """env id -> role -> baseline, for logs."""
        out: dict[str, dict[str, float]] = {}
        for env_id, role in sorted(self._ema):
            out.setdefault(env_id, {})[role] = self(env_id, role)
        return out

    def state_dict(self) -> list[list[Any]]:
        return [
            [env_id, role, self._ema[env_id, role], self._count[env_id, role]] for env_id, role in sorted(self._ema)
        ]

    def load_state_dict(self, state: Sequence[Sequence[Any]]) -> None:
        self._ema = {(env_id, role): float(ema) for env_id, role, ema, _ in state}
        self._count = {(env_id, role): int(count) for env_id, role, _, count in state}


class RemembersBaselines:
    """The two state methods for credit whose only memory are its `baselines`."""

    name: str
    baselines: Baselines

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.name, "baselines": self.baselines.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_method(state, self.name)
        self.baselines.load_state_dict(state["baselines"])


@method
class RAECredit(RemembersBaselines):
    r"""Return minus a moving average of what the role has earned so far in its environment.

    The baseline carries over between batches, so episodes need not be compared with each other. A role that earns more
    than another on average, such as the first player of a game, is compared with itself.

    $$A_t = \gamma^{T-1-t}\,(R - b) \qquad b = \frac{m}{1 - d^n} \qquad m \leftarrow d^k m + (1 - d^k)\,\mathrm{mean}$$

    R is the return of a trajectory of T turns, t = 0 ... T - 1. m is the moving average of the returns of this
    environment and role with decay d, and n how many it has seen; b is 0 before the first. Every batch is scored first;
    then the mean of its k returns is folded in.

    The paper's own rule is `bias_correction = false` (b = m) with `baseline_update = "game_first"`: k = 1 game at a
    time in the order of the batch, m is updated first and then subtracted. The authors' published code subtracts the
    baseline from before the game: that is `baseline_update = "game"`. The advantages of `"game_first"` are d times
    those of `"game"`, since R - (d m + (1 - d) R) = d (R - m).

    When: roles with different payoffs, and one episode per deal. Also in a tournament, where a place in the bracket may
    have no peer. On Kuhn poker with a payoff of 2 for sitting first, a settled baseline divides the variance of the
    gradient by 3 (docs/credit.md).

    When not: much of the return is the luck of the deal. Methods that compare episodes of one deal subtract it: on
    Leduc poker `grpo` was ahead (docs/credit.md).

    Source: Liu et al. 2025, "SPIRAL", arXiv 2506.24119, section 3; here with a bias correction and one update per
    batch, unless these are switched off.

    Args:
        decay: of the moving average, in [0, 1).
        gamma: in [0, 1]; 1 gives every turn of a trajectory the same advantage.
        bias_correction: divide the moving baseline by 1 - decay^n; off, it creeps up from 0, as in the paper.
        baseline_update: when the baseline is updated: after the batch (`batch`), after every game (`game`, the authors'
            code), or with a game's own return before comparing the two (`game_first`, the paper).

    Raises:
        ValueError: a value is out of range.
    """

    name = "rae"

    def __init__(
        self,
        decay: Decay = DECAY,
        gamma: Gamma = GAMMA,
        bias_correction: bool = True,
        baseline_update: Update = "batch",
    ) -> None:
        self.baselines = Baselines(decay, bias_correction)
        self.gamma = check_unit("gamma", gamma)
        self.baseline_update = check_choice("baseline_update", baseline_update, Update)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """See `CreditAssigner.assign`; updated after every game, the advantages depend on the order of the episodes."""
        if self.baseline_update == "batch":
            return self._scored(episodes)
        if self.baseline_update == "game":
            return [advantages for episode in episodes for advantages in self._scored([episode])]
        out = []
        for episode in episodes:
            for trajectory in trained(episode):
                self.baselines.fold({(episode.env_id, trajectory.role): [trajectory.total]})
            out += self._scored([episode], fold=False)
        return out

    def _scored(self, episodes: Sequence[Episode], *, fold: bool = True) -> list[Advantages]:
        """Compares with the current baselines, then folds the returns in."""
        seen: dict[Key, list[float]] = defaultdict(list)
        out: list[Advantages] = []
        for episode in episodes:
            advantages: Advantages = {}
            for trajectory in trained(episode):
                total = trajectory.total
                seen[episode.env_id, trajectory.role].append(total)
                centred = total - self.baselines(episode.env_id, trajectory.role)
                advantages[trajectory.agent] = centred * turn_discounts(len(trajectory.turns), self.gamma)
            out.append(advantages)
        if fold:
            self.baselines.fold(seen)
        return out
