"""The gradient microscope: how far a language model's sampled policy gradient is from the exact one, and why.

    python -m benchmarks.microscope                     # credit methods, losses, staleness, batch sizes, layers
    python -m benchmarks.microscope --faults            # seeded bugs are flagged, clean runs are not

A solvable game has few distinct actions (24 in Kuhn poker), so the gradient of any batch is a sum over their tokens of
a coefficient times the gradient of that token's log-probability. These gradients, the Jacobian, are computed once, by
the trainer's own backward pass; a batch then reduces to its coefficients, which come from the project's own credit,
packing and loss on games drawn from the policy's exact probabilities. Thousands of batches cost seconds.

Columns, with 95 % intervals from 300 bootstrap resamples of the batches:

- cosine: between the mean gradient (its length corrected for noise) and the exact one;
- length: of the mean gradient along the exact one, over the exact one's;
- noise: mean squared distance of a batch's gradient from the mean, over the squared component of the mean along the
  exact gradient, times the number of games: the number of games at which signal equals noise.

The exact gradient is the one of `loss.name = "expected"`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from legos_envs import Episode, exact
from legos_envs.records import Trajectory, Turn
from legos_train import Trainer
from legos_train.config import from_dict
from legos_train.credit import Advantages, make_credit
from legos_train.evaluation import exact_values
from legos_train.loss import LossSettings
from legos_train.loss.batch import Batch, pack
from legos_train.loss.batch_loss import policy_objective
from legos_train.loss.penalties import distribution
from legos_train.run import build

Floats = NDArray[np.float64]
Policy = list[list[exact_values.ScoredAction]]
"""By information set, the actions with the probabilities of their tokens."""
GROUP = 8


class Microscope:
    """A policy under the microscope.

    Args:
        env: id of a game that can be solved.
        lead: exact steps that are taken first, so that every LoRA matrix has a gradient and older policies exist.
        seed: of LoRA's first weights.

    Attributes:
        past: the policy after each step; the last is looked at.
        tokens: (bytes of what is read, token id) -> its row among the T distinct ones.
        jacobian: gradients of the tokens' log-probabilities, (T, P).
        layers: name of a layer -> its columns of the Jacobian.
        exact: coefficients of the exact gradient, (T,).
    """

    def __init__(self, env: str = "KuhnPoker-v0", *, lead: int = 5, seed: int = 0):
        loss = {"name": "expected", "aggregation": "constant", "kl": 0.0, "kl_end": None}
        settings = {"env": env, "seed": seed, "batch_size": 1, "steps": 1000, "credit": {"return_scale": "none"}}
        config = from_dict({**settings, "lora": {"rank": 4}, "loss": loss, "optim": {"lr": 2e-4, "lr_end": 1.0}})
        self.trainer = Trainer(build(config))
        ((_, self.task),) = self.trainer.parts.measurer.tasks.items()
        self.env: Any = self.task.env
        self.graph = exact.graph_of(self.env.game)
        self.past = [self._policy()]
        for _ in range(lead):
            self.trainer.step()
            self.past.append(self._policy())
        self.tokens: dict[tuple[bytes, int], int] = {}
        self.jacobian, self.layers = self._jacobian()
        self.gram = self.jacobian @ self.jacobian.T
        self.exact = self.coefficients(self.expected_batch(), LossSettings(name="expected", aggregation="constant"))

    def _policy(self) -> Policy:
        measurer = self.trainer.parts.measurer
        said: dict[Any, list[exact_values.ScoredAction]] = {}
        for number, agent in enumerate(self.env.possible_agents):
            infos = [info for info in self.graph.infosets if info.player == number]
            said |= exact_values.scored_answers(self.env, measurer.player(self.task, agent, "policy"), infos)
        return [said[info] for info in self.graph.infosets]

    def expected_batch(self) -> Batch:
        """What the next exact step would train on."""
        step = self.trainer.learner.step
        self.trainer.assign_credit(self.trainer.play(step + 1), step)
        fresh, _ = self.trainer.parts.replay.take(step)
        self.decisions = fresh.decisions
        return self.trainer.pack(fresh)

    def assign(self, episodes: Sequence[Episode]) -> list[Advantages]:
        """Credit without luck: what each action is worth on average under the policy that is looked at."""
        assert self.decisions is not None
        return [self.decisions.advantages_of(episode) for episode in episodes]

    def _jacobian(self) -> tuple[Floats, dict[str, NDArray[np.int64]]]:
        policy: Any = self.trainer.parts.backend.policy  # type: ignore[attr-defined]
        rows: list[Floats] = []
        for action in (action for choices in self.past[-1] for action in choices):
            batch = pack([_alone(action)], [{"a": np.zeros(1)}])
            for place, token in enumerate(action.tokens):
                key = _bytes([*action.prompt, *action.tokens[:place]]), int(token)
                if key not in self.tokens:
                    self.tokens[key] = len(rows)
                    _, grads = policy.value_and_grad(
                        batch, lambda states, b=batch, p=place: (_logprob(states.logits(), b, p), {})
                    )
                    names = sorted(grads)
                    rows.append(np.concatenate([np.array(grads[n], dtype=np.float64).ravel() for n in names]))
        layers: dict[str, list[int]] = {}
        start = 0
        for name in names:
            layers.setdefault(_layer(name), []).extend(range(start, start + grads[name].size))
            start += grads[name].size
        return np.stack(rows), {layer: np.array(places) for layer, places in layers.items()}

    def coefficients(self, batch: Batch, settings: LossSettings) -> Floats:
        """The direction of ascent of a batch, in units of the tokens' own gradients, (T,)."""
        place = np.array([self.tokens[batch.keys[site], int(t)] for site, t in zip(batch.position, batch.target)])
        change = mx.grad(lambda new: policy_objective(new, batch, settings)[0])(mx.array(self.logprobs(batch)))
        return -np.bincount(place, np.array(change, dtype=np.float64), len(self.tokens))

    def logprobs(self, batch: Batch) -> NDArray[np.float32]:
        """Of the sampled tokens under the policy that is looked at, (M,)."""
        known = {
            (_bytes([*a.prompt, *a.tokens[:place]]), int(token)): float(a.logprobs[place])
            for choices in self.past[-1]
            for a in choices
            for place, token in enumerate(a.tokens)
        }
        pairs = zip(batch.position, batch.target)
        return np.array([known[batch.keys[site], int(token)] for site, token in pairs], dtype=np.float32)

    def play(self, games: int, rng: np.random.Generator, *, age: int = 0, heat: float = 1.0) -> list[Episode]:
        """Games by the policy of `age` steps ago, in groups of `GROUP` from one deal, at temperature `heat`."""
        policy = self.past[-1 - age]
        masses = [np.array([action.probability for action in choices]) ** (1 / heat) for choices in policy]
        table = [mass / mass.sum() for mass in masses]
        chances = np.array([chance for chance, _ in self.graph.starts])
        version = len(self.past) - 1 - age
        episodes = []
        for group in range(games // GROUP):
            start = int(rng.choice(len(chances), p=chances / chances.sum()))
            for _ in range(GROUP):
                turns: list[list[Turn]] = [[] for _ in self.env.possible_agents]
                node = self.graph.starts[start][1]
                while (at := self.graph.where[node]) >= 0:
                    info = self.graph.infosets[at]
                    move = int(rng.choice(len(table[at]), p=table[at]))
                    turns[info.player].append(self._turn(at, move, policy[at][move], version))
                    node = self.graph.children[node][move]
                for own, value in zip(turns, self.graph.returns[node]):
                    own[-1].reward = value
                seats = zip(self.env.possible_agents, turns)
                trajectories = {agent: Trajectory(agent, agent, turns=own) for agent, own in seats}
                episodes.append(Episode("game", start, {}, trajectories, group=group))
        return episodes

    def _turn(self, at: int, move: int, action: exact_values.ScoredAction, version: int) -> Turn:
        info = self.graph.infosets[at]
        return Turn(
            ({"role": "user", "content": info.view},),
            info.legal[move],
            legal_actions=tuple(info.legal),
            prompt_tokens=action.prompt,
            action_tokens=action.tokens,
            logprobs=action.logprobs.tolist(),
            policy_version=version,
        )

    def batches(
        self, count: int, games: int, credit: Any, settings: LossSettings, seed: int, *, age: int = 0
    ) -> Floats:
        """The coefficients of many batches, (count, T), after a moving baseline has settled."""
        rng = np.random.default_rng(seed)
        for _ in range(10):
            credit.assign(self.play(games, rng, age=age))
        rows = []
        for _ in range(count):
            episodes = self.play(games, rng, age=age)
            batch = pack(episodes, credit.assign(episodes))
            if settings.needs_start:
                batch = batch.with_start(self.logprobs(batch))
            rows.append(self.coefficients(batch, settings))
        return np.stack(rows)


def measure(rows: Floats, truth: Floats, gram: Floats, games: int, seed: int = 0) -> dict[str, Any]:
    """Cosine, length and noise of batches' coefficients (R, T) against the exact ones (T,), with intervals."""
    rng = np.random.default_rng(seed)
    samples = [_numbers(rows[rng.integers(len(rows), size=len(rows))], truth, gram, games) for _ in range(300)]
    names = ("cosine", "length", "noise")
    ends = np.percentile(np.array(samples), [2.5, 97.5], axis=0)
    return {
        name: [value, float(low), float(high)]
        for name, value, low, high in zip(names, _numbers(rows, truth, gram, games), *ends)
    }


def _numbers(rows: Floats, truth: Floats, gram: Floats, games: int) -> tuple[float, float, float]:
    mean = rows.mean(axis=0)
    apart = rows - mean
    spread = float(np.einsum("rt,ts,rs->", apart, gram, apart)) / (len(rows) - 1)
    square, along = float(truth @ gram @ truth), float(mean @ gram @ truth)
    own = max(float(mean @ gram @ mean) - spread / len(rows), 1e-30)
    return along / (own * square) ** 0.5, along / square, spread * square / along**2 * games


def _alone(action: exact_values.ScoredAction) -> Episode:
    turn = Turn((), "", 0.0, None, list(action.prompt), list(action.tokens), action.logprobs.tolist())
    return Episode("", 0, {}, {"a": Trajectory("a", "a", turns=[turn])})


def _logprob(logits: mx.array, batch: Batch, place: int) -> mx.array:
    logprobs, _ = distribution(logits.astype(mx.float32))
    return logprobs[int(batch.position[place]), int(batch.target[place])]


def _bytes(tokens: Sequence[int]) -> bytes:
    return np.array(tokens, dtype=np.int32).tobytes()


def _layer(name: str) -> str:
    return ".".join(name.split(".")[1:3])


PPO = LossSettings(name="ppo", aggregation="constant", kl=0.0)
CREDITS: dict[str, dict[str, Any]] = {
    "reinforce": {},
    "rae": {},
    "same_prompt": {},
    "grpo": {},
    "grpo, std": {"std": True},
    "grpo, joint": {"per_role": False},
    "hierarchical_grpo": {},
    "rloo": {},
    "agent_turn": {},
    "gigpo": {},
    "per_role_norm": {},
    "turn_level": {},
    "maxrl": {},
}


def cells(quick: bool) -> list[tuple[str, str, str, dict[str, Any], LossSettings, int, int]]:
    """(table, row, credit, its options, loss, age, games) of everything that is measured."""
    out = []
    for label, options in CREDITS.items():
        out.append(("credit (ppo, fresh, 256 games)", label, label.split(",")[0], options, PPO, 0, 256))
    for name in ("importance_sampling", "ppo", "cispo", "gspo"):
        for age in (0, 1, 4):
            loss = PPO.model_copy(update={"name": name})
            out.append((f"loss, {age} versions old (rae, 256 games)", name, "rae", {}, loss, age, 256))
    truncated = PPO.model_copy(update={"truncate_ratio": 2.0})
    masked = PPO.model_copy(update={"mask_ratio": (0.5, 2.0)})
    out += [
        ("loss, 4 versions old (rae, 256 games)", "ppo, truncate_ratio 2", "rae", {}, truncated, 4, 256),
        ("loss, 4 versions old (rae, 256 games)", "ppo, mask_ratio (0.5, 2)", "rae", {}, masked, 4, 256),
        ("loss, 4 versions old (rae, 256 games)", "ppo, exact advantages", "exact", {}, PPO, 4, 256),
    ]
    for kind in ("sequence", "token"):
        loss = PPO.model_copy(update={"aggregation": kind})
        out.append(("aggregation (ppo, rae, fresh, 256 games)", kind, "rae", {}, loss, 0, 256))
    for games in (64, 512, 2048):
        out.append(("games of a batch (ppo, rae, fresh)", str(games), "rae", {}, PPO, 0, games))
    return out[:3] if quick else out


def study(quick: bool, count: int, seed: int) -> dict[str, Any]:
    """Everything that is measured: tables of rows, and the layers of one cell."""
    scope = Microscope(seed=seed)
    tables: dict[str, dict[str, Any]] = {}
    for table, row, credit, options, loss, age, games in cells(quick):
        given: Any = scope if credit == "exact" else make_credit(credit, **options)
        rows = scope.batches(count, games, given, loss, seed, age=age)
        tables.setdefault(table, {})[row] = measure(rows, scope.exact, scope.gram, games)
        print(_line(table, row, tables[table][row]), flush=True)
    rows = scope.batches(count, 256, make_credit("rae"), PPO, seed)
    for layer, places in scope.layers.items():
        part = scope.jacobian[:, places]
        numbers = measure(rows, scope.exact, part @ part.T, 256)
        tables.setdefault("layer (ppo, rae, fresh, 256 games)", {})[layer] = numbers
        print(_line("layer", layer, numbers), flush=True)
    scope.trainer.parts.close()
    return {"tokens": len(scope.tokens), "parameters": scope.jacobian.shape[1], "batches": count, "tables": tables}


def _line(table: str, row: str, numbers: dict[str, Any]) -> str:
    values = "  ".join(f"{name} {v:.3f} ({low:.3f} to {high:.3f})" for name, (v, low, high) in numbers.items())
    return f"{table}: {row}: {values}"


def main(argv: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", action="store_true", help="plant bugs and check that they are detected")
    parser.add_argument("--quick", action="store_true", help="only a few cells")
    parser.add_argument("--batches", type=int, default=100, help="batches per cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    args = parser.parse_args(argv)
    if args.faults:
        from benchmarks.microscope_faults import report

        result = report(args.seed)
    else:
        result = study(args.quick, args.batches, args.seed)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
