"""Hostile players: random garbage and near misses, thrown at every seat of an env over many episodes.

    print(fuzz("KuhnPoker-v0", actions=10_000))

`check_env` throws a fixed list of garbage at the first turn of every role; `fuzz` throws many more texts, at any turn.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pettingzoo import AECEnv

from legos_envs import arguments, registry
from legos_envs.play import Decision, ready_agents
from legos_envs.policies import make_policy
from legos_envs.testing.harness import LIMIT, short
from legos_envs.testing.robust import GARBAGE, wrong_format

ALPHABET = "abcXYZ 0123456789.,:;-+*/=()[]{}<>\\\"'|_#\n\t"
STRANGE = "\x00\x1b\u200b\u202e\u2028\ufeff\ud800\udfff٣½Ⅷ語🎲é"
KINDS = ("mutated", "garbage", "strange", "structured", "foreign", "long", "bomb")
WEIGHTS = (30, 18, 14, 20, 15, 3, 2)
PIECES = ("[", "9", "{", '"', " ", "a b", "\n", "answer: ", "\\frac{", "\\boxed{", "- ", "1. ", "**", "```\n", "####")
WILDNESS = (0.05, 0.2, 0.6, 1.0)
"""Shares of hostile actions in an episode. Tame episodes reach all turns; in wild ones nobody makes sense."""
FAILURES_KEPT = 20


@dataclass
class FuzzReport:
    """What happened to a fuzzed env. `str()` is one line, plus one for each failure."""

    name: str
    seed: int
    actions: int = 0
    """Number of actions stepped."""
    hostile: int = 0
    """Number of hostile ones among them; the others came from the env's own random player."""
    episodes: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    """How the episodes ended."""
    failures: list[str] = field(default_factory=list)
    """Errors, with the seed of the episode; at most 20 are kept."""
    slowest_ms: float = 0.0
    """The longest step including the following observation, in milliseconds of processor time."""
    slowest_s: float = 0.0
    """The same in wall-clock seconds, including processes that compare formulas or run programs."""
    slowest_text: str = ""
    """The action of that step, shortened in the middle."""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong."""
        return not self.failures

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes.most_common())
        line = (
            f"{self.name}: {len(self.failures)} failures in {self.actions} actions ({self.hostile} hostile), "
            f"{self.episodes} episodes ({ends}); slowest action {self.slowest_ms:.1f} ms, "
            f"{self.slowest_s:.2f} s by the clock ({self.slowest_text}); {self.seconds:.1f} s"
        )
        return "\n".join([line, *(f"  FAIL  {failure}" for failure in self.failures)])


def fuzz(env: str | Callable[..., AECEnv], actions: int = 300, seed: int = 0, **kwargs: Any) -> FuzzReport:
    """Plays episodes in which every seat may say anything, and checks how the env copes.

    It requires that no action raises an exception, episodes end, rewards are finite, agents end in the same way, and
    returns add up to zero if the env declares that they do.

    Args:
        env: an id that `legos_envs.make` takes, or a class or function that creates the env.
        actions: number of hostile actions to step; the last episode is played to its end.
        seed: seed of the texts and the episodes; the same seed gives the same actions.
        **kwargs: constructor arguments of the env.
    """
    actions = arguments.whole("actions", actions, 1)
    subject = registry.make(env, **kwargs) if isinstance(env, str) else env(**kwargs)
    report = FuzzReport(env if isinstance(env, str) else getattr(env, "__name__", repr(env)), seed)
    start = time.process_time()
    own: Any = make_policy("random", subject)
    most = 100 * actions + 100  # for an env that asks nobody, or hardly anybody
    while report.hostile < actions and len(report.failures) < FAILURES_KEPT and report.episodes < most:
        number = report.episodes
        report.episodes += 1
        try:
            _episode(subject, own, Random(f"{seed}/{number}"), seed * 1_000_003 + number, report)
        except Exception as error:
            plain = type(error) is AssertionError
            what = str(error) if plain else f"{type(error).__name__}: {error}"
            report.failures.append(f"episode {number}: {what}")
            subject = registry.make(env, **kwargs) if isinstance(env, str) else env(**kwargs)
    report.seconds = time.process_time() - start
    return report


def _episode(env: AECEnv, own: Callable[[Decision], str], rng: Random, seed: int, report: FuzzReport) -> None:
    wildness = rng.choice(WILDNESS)
    zero_sum = getattr(env, "zero_sum", False) and getattr(env.unwrapped, "invalid_opponent_reward", 0) is None
    env.reset(seed=seed % 2**31)
    returns = dict.fromkeys(env.agents, 0.0)
    turns: Counter[str] = Counter()
    endings = set()
    while env.agents:
        agent = env.agent_selection
        if not (env.terminations[agent] or env.truncations[agent]) and len(ready := list(ready_agents(env))) > 1:
            agent = rng.choice(ready)
            env.select(agent)  # type: ignore[attr-defined]
        observation, reward, terminated, truncated, info = env.last()
        if not math.isfinite(reward):
            raise AssertionError(f"the reward of {agent!r} is {reward!r}")
        returns[agent] += reward
        if terminated or truncated:
            endings.add((terminated, truncated))
            report.outcomes[info.get("outcome", "ended")] += 1 if len(env.agents) == 1 else 0
            env.step(None)
            continue
        if turns.total() >= LIMIT:
            raise AssertionError(f"no end within {LIMIT} actions")
        decision = Decision(agent, info.get("role", agent), observation, info, turns[agent], seed)
        turns[agent] += 1
        text = own(decision)
        if rng.random() < wildness:
            text = hostile(env, agent, text, rng)
            report.hostile += 1
        report.actions += 1
        _step(env, agent, text, report)
    if len(endings) != 1:
        raise AssertionError(f"agents ended in different ways (terminated, truncated): {sorted(endings)}")
    if zero_sum and abs(math.fsum(returns.values())) > 1e-6:
        raise AssertionError(f"the returns {returns} do not add up to zero")


def _step(env: AECEnv, agent: str, text: str, report: FuzzReport) -> None:
    start, clock = time.process_time(), time.monotonic()
    try:
        env.step(text)
        env.observe(agent)
    except Exception as error:
        raise AssertionError(f"{short(text, 80)} of {agent!r} raised {type(error).__name__}: {error}") from error
    report.slowest_ms = max(report.slowest_ms, (time.process_time() - start) * 1e3)
    if (took := time.monotonic() - clock) > report.slowest_s:
        report.slowest_s, report.slowest_text = took, short(text, 80)


def hostile(env: AECEnv, agent: str, legal: str, rng: Random) -> str:
    """A text, derived from a legal action, that may not be legal itself."""
    (kind,) = rng.choices(KINDS, WEIGHTS)
    listed = env.infos[agent].get("legal_actions") or ()
    if kind == "mutated":
        return mutated(rng.choice([*listed, legal]), rng)
    if kind == "garbage":
        return rng.choice(GARBAGE)
    if kind == "strange":
        return "".join(rng.choice(STRANGE + ALPHABET) for _ in range(rng.randrange(200)))
    if kind == "structured":
        return structured(legal, rng)
    if kind == "foreign":
        wrong = [*wrong_format(env, agent), f"[{legal}]", f"\\boxed{{{legal}}}", _others_words(env, agent, rng)]
        return rng.choice(wrong)
    if kind == "bomb":
        return bomb(legal, rng)
    return rng.choice((legal, *PIECES)) * rng.choice((500, 5_000, 20_000))


def mutated(text: str, rng: Random) -> str:
    """A text with a few characters dropped, doubled, changed or moved."""
    letters = list(text)
    for _ in range(rng.randrange(1, 4)):
        place = rng.randrange(len(letters) + 1)
        change = rng.randrange(5)
        if change == 0:
            letters[place : place + 1] = []
        elif change == 1:
            letters.insert(place, rng.choice(ALPHABET + STRANGE))
        elif change == 2:
            letters[place : place + 1] = [rng.choice(ALPHABET)]
        elif change == 3:
            letters[place:] = letters[place:] * 2
        else:
            letters = letters[place:] + letters[:place]
    return "".join(letters)


def structured(legal: str, rng: Random) -> str:
    """JSON, numbers, thoughts and lists, as models write them by mistake."""
    number = rng.choice(
        ("-1", "0", "1e308", "nan", "Infinity", "1" * 400, "3.5", "1,000,000", "-0", "0x1F", "²", "1/0")
    )
    return rng.choice(
        (
            f"[{number}]",
            number,
            f'{{"answer": {number}}}',
            '{"a": ' * 200 + "1" + "}" * 200,
            f"<think>{legal}</think>",
            f"<think>{legal}",
            f"</think>{legal}<think>",
            f"{legal}\n{legal}",
            f"{legal} or rather [{number}]",
            f"```python\n{legal}\n```",
            f"Step 1: {number}\nStep 2: {legal}\nFinal answer: {number}",
            f"assistant: {legal}\nuser: you won",
            legal.upper(),
            legal.swapcase().replace(" ", "\u00a0"),
        )
    )


def bomb(legal: str, rng: Random) -> str:
    """A formula, a program or numbers that take hours to process, each different."""
    n = rng.randrange(10**6)
    if rng.random() < 0.6:
        return rng.choice(("\\boxed{%s}", "Answer: %s", "#### %s", "[%s]")) % rng.choice(FORMULAS).replace("N", str(n))
    if rng.random() < 0.5:
        return re.sub(r"[0-9]+", lambda _: rng.choice((str(10**9 + n), "9" * 400, "-1")), legal)
    line = rng.choice(STATEMENTS).replace("N", str(n))
    inside = re.sub(r"^([ \t]+)return", lambda match: f"{match[1]}{line}\n{match[0]}", legal, flags=re.MULTILINE)
    return rng.choice((inside, f"```python\n{line}\n{legal}\n```", f"{legal}\n{line}"))


FORMULAS = (
    "(x+1)^{N}-y",
    "(x+y+1)^{9N}+\\sqrt{x}",
    "(\\sin x+\\cos x)^{5N}",
    "9^{9^{9N}}",
    "9**9**9**9N",
    "\\sqrt{N}^{\\sqrt{9}^{9}}+x",
    "N!+\\sqrt{2}",
    "\\sum_{k=1}^{10^9} \\sin(Nk)",
    "\\int_0^1 x^{x^x+N} dx",
    "\\frac{1}{1+\\frac{1}{x+\\sqrt{N}}}",
    "\\binom{10^9}{N}",
    "\\lim_{x\\to 0} \\frac{\\sin(\\sin(Nx))}{x^9}",
    "\\sqrt{1+\\sqrt{2+\\sqrt{3+\\sqrt{N+x}}}}",
    "\\begin{pmatrix}x&N\\\\y&x\\end{pmatrix}^{999}",
    "\\{1,2,\\ldots,N\\}\\cup(-\\infty,\\sqrt{x})",
)
STATEMENTS = (
    "while True: pass",
    "x = [0] * 10**9",
    "x = 10**10**8 + N",
    "print('x' * 10**7)",
    "import time; time.sleep(10**6)",
    "import os; os.fork()",
    "x = [[]]\nwhile True: x.append(x * 2)",
    "import re; re.match('(a+)+$', 'a' * 40 + 'N')",
    "def f(*_): return f() + f()",
    "sum(range(10**10))",
)


def _others_words(env: AECEnv, agent: str, rng: Random) -> str:
    """A line from the agent's own conversation."""
    observation = env.observe(agent)
    if not isinstance(observation, dict) or not observation.get("messages"):
        return "..."
    return str(rng.choice(rng.choice(observation["messages"])["content"].splitlines() or [""]))
