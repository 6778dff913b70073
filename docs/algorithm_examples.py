"""Small worked examples for the pages of algorithms: a few episodes and tokens made by hand, and what the code makes
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from page_parts import table

from legos_envs.records import Episode, Trajectory, Turn
from legos_train import make_credit
from legos_train.config import sections as settings
from legos_train.credit import PerEnv, PerLearner, PerRole
from legos_train.league import LeagueSettings

Seat = tuple[str, list[tuple[str, float]]]
"""A role, and of each of its turns what it read and what it was paid after it."""


def episode(seats: Mapping[str, Seat], group: int, env: str = "Cards-v0") -> Episode:
    """An episode from its seats, by agent."""
    made = {
        agent: Trajectory(agent, role, True, [Turn(({"role": "user", "content": c},), "x", r) for c, r in turns])
        for agent, (role, turns) in seats.items()
    }
    return Episode(env, group, {}, made, group=group)


def game(group: int, card: str, raised: float, ended: float, env: str = "Cards-v0") -> Episode:
    """A game for two: `dealer` reads its card, is paid `raised`, and has a second turn; `guest` has one."""
    dealer = [(f"card {card}", raised), (f"card {card}, raised", ended)]
    total = raised + ended
    return episode({"dealer": ("dealer", dealer), "guest": ("guest", [("raised", -total)])}, group, env)


GAMES = (game(0, "K", 0.0, 2.0), game(0, "K", 0.0, -1.0), game(1, "Q", 1.0, 2.0), game(1, "Q", 0.0, -1.0))
"""Two deals, each played twice: a group for each."""
TABLES = tuple(
    episode(
        {f"problem_0/solver_{i}": ("solver", [("3 + 4", paid)]) for i, paid in enumerate(rewards)}
        | {"proposer": ("proposer", [("Propose.", reward)])},
        number,
    )
    for number, (rewards, reward) in enumerate([((1.0, 0.0, 0.0), 0.9), ((1.0, 1.0, 0.0), 0.9)])
)
"""Two episodes of a proposer, and of three solvers at one table."""
ANSWERS = tuple(
    episode({"solver": ("solver", [(f"problem {group}", paid)])}, group)
    for group, rewards in enumerate([(1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 0.0)])
    for paid in rewards
)
"""A hard problem and an easy one, four answers to each."""
SOLVERS = "Two episodes in which three solvers answer what a proposer has written."


def credit_example(name: str) -> str:
    """What a credit method makes of a few episodes, as text and a table."""
    if name == "per_env":
        batch = (*GAMES[:2], *(game(2, "K", 0.0, ended, "Dice-v0") for ended in (2.0, -1.0)))
        routed = {"rae; Dice-v0: grpo": lambda: PerEnv(make_credit("rae"), {"Dice-v0": _grpo()})}
        return f"One deal of each of two environments, played twice.\n\n{credit_table(batch, routed)}"
    if name == "per_learner":
        for one in GAMES:
            for trajectory in one.trajectories.values():
                trajectory.info["learner"] = trajectory.role
        apart = {"dealer: grpo; guest: rae": lambda: PerLearner({"dealer": _grpo(), "guest": make_credit("rae")})}
        return f"A dealer and a guest who are two learners.\n\n{credit_table(GAMES, apart)}"
    if name == "per_role":
        both = {"hierarchical_grpo; proposer: rae": lambda: PerRole(_siblings(), {"proposer": make_credit("rae")})}
        return f"{SOLVERS}\n\n{credit_table(TABLES, both)}"
    if name == "hierarchical_grpo":
        siblings = {"hierarchical_grpo": _siblings, "std": lambda: _siblings(std=True)}
        return f"{SOLVERS} It is alone with its role in its group.\n\n{credit_table(TABLES, siblings)}"
    if name == "maxrl":
        text = "Four answers to a hard problem and four to an easy one."
        return f"{text}\n\n{credit_table(ANSWERS, {name: lambda: make_credit(name), 'grpo': _grpo})}"
    text = "Two deals, each played twice by a dealer, who has two turns, and a guest, who has one. Rewards and\n"
    text += "advantages are those of the turns in their order."
    if name in ("rae", "same_prompt"):
        text += " *Later* is the same batch once more: the baselines have now seen the first one."
    methods = {label: _maker(name, options) for label, options in VARIANTS.get(name, {name: {}}).items()}
    return f"{text}\n\n{credit_table(GAMES, methods)}"


def _grpo() -> Any:
    return make_credit("grpo")


def _siblings(**options: Any) -> Any:
    return make_credit("hierarchical_grpo", **options)


def _maker(name: str, options: Mapping[str, Any]) -> Callable[[], Any]:
    def make() -> Any:
        chosen = dict(options)
        again = chosen.pop("later", False)
        method = make_credit(name, **chosen)
        if again:
            method.assign(GAMES)
        return method

    return make


VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "rae": {"first batch": {}, "later": {"later": True}, "later, gamma 0.5": {"gamma": 0.5, "later": True}},
    "grpo": {"grpo": {}, "std": {"std": True}, "per_role off": {"per_role": False}},
    "same_prompt": {
        "first batch": {"pseudo_count": 2.0},
        "later": {"pseudo_count": 2.0, "later": True},
        "pseudo_count 0": {"pseudo_count": 0.0},
    },
    "turn_level": {"turn_level": {}, "gamma 0.5": {"gamma": 0.5}},
    "agent_turn": {"agent_turn": {}, "std": {"std": True}},
    "gigpo": {"gigpo": {}, "step_weight 0": {"step_weight": 0.0}},
    "reinforce": {"reinforce": {}, "gamma 0.5": {"gamma": 0.5}},
}
"""Columns of an example, with their options; a method that is not here has one column, with its defaults."""


def credit_table(batch: Sequence[Episode], methods: Mapping[str, Callable[[], Any]]) -> str:
    """Rewards and advantages, a row per trajectory and a column per method."""
    columns = [make().assign(batch) for make in methods.values()]
    several = len({one.env_id for one in batch}) > 1
    rows = []
    for number, one in enumerate(batch):
        for agent, trajectory in one.trajectories.items():
            read = "; ".join(turn.observation[-1]["content"] for turn in trajectory.turns)
            where = [one.env_id] if several else []
            paid = numbers([turn.reward for turn in trajectory.turns])
            told = [str(number + 1), str(one.group), agent, read, paid]
            rows.append([*where, *told, *(numbers(column[number][agent]) for column in columns)])
    head = [*(["env"] if several else []), "episode", "group", "agent", "it read", "reward", *methods]
    return table(head, rows)


def numbers(values: Any) -> str:
    """Numbers with signs and two decimals, without what rounding leaves of a minus."""
    return ", ".join(f"{value + 0.0:+.2f}".replace("-0.00", "+0.00") for value in np.atleast_1d(values).tolist())


def league_example(mode: str) -> str:
    """How likely three snapshots and a script are to be drawn, from results made by hand."""
    from legos_train.league import MODES
    from legos_train.league.modes import Population
    from legos_train.league.payoffs import Against, Pairs

    options, row = LeagueSettings(mode=mode, opponents=("random",)), MODES[mode]
    names = [*(("step_0", "step_5", "step_10") if row.keeps_snapshots else ()), *(("random",) if row.draws else ())]
    against, pairs = Against(), Pairs()
    wins = {"step_0": 9, "step_5": 6, "step_10": 3, "random": 8}
    for name in names:
        for number in range(10):
            paid = 1.0 if number < wins[name] else -1.0
            against.add(name, "first", paid, -paid, False)
    # step_0 beats step_5, step_5 beats step_10, step_10 beats step_0, and all beat random
    beats = {("step_0", "step_5"): 0.5, ("step_5", "step_10"): 0.5, ("step_10", "step_0"): 1.0}
    for a in names:
        for b in names:
            paid = beats.get((a, b), -beats.get((b, a), 0.0)) + (b == "random") * 1.0 - (a == "random") * 1.0
            pairs.add(a, b, [(paid, -paid)])
    if not names:
        return ""
    first, _ = row.function(Population(options.pfsp_power, names, against, pairs, True))
    facts = {
        "fsp": "Three snapshots and a script, whatever the results.",
        "pfsp": "The learner won so many of its last ten games against each.",
        "psro": "`step_0` gets +0.5 from `step_5`, that +0.5 from `step_10`, that +1 from `step_0`,\n"
        "and all +1 from `random`.",
        "fixed": 'With `league.opponents = ["random"]`.',
    }
    wide = row.follows_results
    rows = [[f"`{m}`", *([f"{wins[m]} of 10"] if wide else []), f"{share:.2f}"] for m, share in first.items()]
    fact = facts.get(mode, "Three snapshots and a script.")
    return f"{fact}\n\n{table(['member', *(['won'] if wide else []), 'drawn with probability'], rows)}"


def curriculum_example() -> str:
    """The odds of items by what is known of them, with the default gate."""
    from legos_train import ArtifactStore
    from legos_train.arena.curriculum.items import LearnabilitySampler

    seen = ((0, 0), (0, 8), (1, 8), (4, 8), (7, 8), (8, 8))
    with ArtifactStore() as store:
        for number, (right, tried) in enumerate(seen):
            at = store.add({"index": number}, pool="problems", key=str(number), step=1)
            if tried and at is not None:
                store.record(at, right, tried, step=1)
        sampler = LearnabilitySampler(
            settings.CurriculumSettings(), store, {"problems": [str(i) for i in range(len(seen))]}
        )
        odds = sampler.odds("problems", step=1)
    said = [f"{right} of {tried}" if tried else "never tried" for right, tried in seen]
    rows = [[what, f"{one:.3f}" if one else "0: outside of the gate"] for what, one in zip(said, odds.tolist())]
    return table(["right", "drawn in proportion to"], rows)


def filter_example() -> str:
    """Who is trained on, by `filter.keep`, in a decided game, a draw, and one in which all lost."""
    from legos_train.rollout.filters import keep_best

    rules = ("all", "winners", "success", "positive")
    rows = []
    for number, returns in enumerate([(2.0, -2.0), (0.5, 0.5), (-1.0, -1.0), (-1.0, -3.0)], 1):
        row = [str(number), numbers(returns)]
        for rule in rules:
            one = episode({f"player_{i}": ("player", [("?", paid)]) for i, paid in enumerate(returns)}, 0)
            keep_best([one], rule)
            row.append(", ".join(a for a, t in one.trajectories.items() if t.trainable) or "nobody")
        rows.append(row)
    return table(["episode", "returns", *(f"`{rule}`" for rule in rules)], rows)
