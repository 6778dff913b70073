"""`TextEnv` turns rules written as a generator into a PettingZoo AEC environment. The lifecycle is handled only here.

A subclass defines `name`, `seats` and `play(self, table)`. The base class runs the generator from ask to ask, keeps
each agent's conversation, and derives the AEC attributes from it: `agent_selection`, `rewards`, `terminations`,
`infos`.

There is one addition to AEC: `ready_agents`, all agents whose observation is final now, and `select(agent)`, which
chooses the agent for the next `step`. Stepping the ready agents in any order gives the same episode. Plain AEC code can
ignore both.

A generator cannot be pickled or copied, but an episode is a function of constructor arguments, seed, options and the
list of actions. That list is `log`; pickling, copying and `restore` replay it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pettingzoo import AECEnv

from legos_envs import arguments, parsing
from legos_envs.spaces import FreeText, Replay, chat_observation
from legos_envs.table import Rules, Seat, Table, keyed_generator, strands
from legos_envs.text_env.conversations import SeatConversations
from legos_envs.text_env.invalid_moves import invalid_moves
from legos_envs.text_env.running import RulesRunner

MEMORIES = ("state", "chat")
BORN_AT_RESET = ("agents", "agent_selection", "rewards", "terminations", "truncations", "infos", "_conversations")
"""Attributes that do not exist before the first `reset`, as in PettingZoo's own environments."""


class TextEnv(RulesRunner, AECEnv[str, dict, str]):
    r"""Base class of all environments.

    Args:
        render_mode: `"ansi"` (render returns text), `"human"` (prints it) or None.
        memory: `"state"`: every prompt is self-contained; `"chat"`: prompts extend the dialogue.
        action_format: `"bracket"` (`[bet]`) or `"boxed"` (`\boxed{bet}`).
        preset: `"spiral"` for invalid moves as in SPIRAL (Liu et al., 2025): no retry, -1.5 and +0.5; None for the
            defaults.
        invalid_retries: number of retries after an invalid move (default 1).
        invalid_reward: reward of the offender when its retries are used up and the episode ends as `"invalid"` (default
            -1; games where giving up can cost more say so on their page).
        invalid_opponent_reward: reward of each opponent in that case; None makes the sum zero in a zero-sum env and
            pays nothing in others.
        max_turns: maximum number of actions in an episode, over all agents; reaching it truncates everybody.

    Raises:
        ValueError: an option is out of range; the message says what is accepted.
    """

    zero_sum: ClassVar[bool] = False
    hidden_information: ClassVar[bool] = False
    """Whether seats know things that others must not see; if set, `check_env` looks for leaks."""
    default_memory: ClassVar[str] = "chat"
    default_invalid_reward: ClassVar[float] = -1.0
    """An invalid move must cost at least as much as legally giving up (such as a fold); else garbage pays better."""
    default_max_turns: ClassVar[int] = 200
    max_asks: int | None = None
    """Maximum number of asks in an episode without invalid moves, if known; the default `max_turns` allows for it."""
    reset_options: ClassVar[Mapping[str, str]] = {}
    """Names and one-line descriptions of the `options` of `reset`."""
    scripted_players: ClassVar[Mapping[str, Callable[[Any], str]]] = {}
    """Players without a model, as functions of a `Decision`, for any seat whose role they know. The policy `random`,
    `check_env` and the golden transcripts use the one called `random`."""
    slow_steps: ClassVar[bool] = False
    """Whether steps compare formulas or run programs, and so may take a second: code that plays many episodes at once
    may step such an env in a thread."""
    max_action_chars: ClassVar[int] = 65536
    _shown: Any = None
    """What has the same rewards, infos and ends, if envs share it; a `Runner`, which only reads, spares the copies."""
    seats: Mapping[str, Seat]

    def __new__(cls, *args: Any, **kwargs: Any) -> TextEnv:
        self = super().__new__(cls)
        self._made_with = (args, kwargs)
        return self

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.metadata = {"name": cls.name, "render_modes": ["ansi", "human"], "is_parallelizable": False}

    def __init__(
        self,
        *,
        render_mode: str | None = None,
        memory: str | None = None,
        action_format: str = "bracket",
        preset: str | None = None,
        invalid_retries: int | None = None,
        invalid_reward: float | None = None,
        invalid_opponent_reward: float | None = None,
        max_turns: int | None = None,
    ):
        super().__init__()
        self.render_mode = arguments.one_of("render_mode", render_mode, (None, "ansi", "human"))
        self.memory = arguments.one_of("memory", memory or self.default_memory, MEMORIES)
        self.action_format = arguments.one_of("action_format", action_format, parsing.FORMATS)
        invalid = invalid_moves(
            preset,
            self.default_invalid_reward,
            retries=invalid_retries,
            reward=invalid_reward,
            opponent_reward=invalid_opponent_reward,
        )
        self.invalid_retries, self.invalid_reward, self.invalid_opponent_reward = invalid
        limit = self.default_max_turns if self.max_asks is None else self.max_asks * (self.invalid_retries + 1)
        self.max_turns = arguments.whole("max_turns", limit if max_turns is None else max_turns, 1)
        if not isinstance(self.seats, Mapping) or not all(isinstance(seat, Seat) for seat in self.seats.values()):
            wanted = "a mapping such as {'player_0': Seat('player')}"
            raise TypeError(f"{type(self).__name__}.seats must be {wanted}; got {self.seats!r}")
        self.possible_agents = list(self.seats)
        self._order = {agent: i for i, agent in enumerate(self.possible_agents)}
        self._alive = dict.fromkeys(self.possible_agents, False)
        self.observation_spaces = {agent: chat_observation() for agent in self.seats}
        self.action_spaces = {agent: FreeText(self.max_action_chars) for agent in self.seats}
        self.state_space: Any = Replay()
        self._zeros = dict.fromkeys(self.possible_agents, 0.0)
        self._seat_facts: dict[str, dict[str, Any]] = {
            agent: {"role": seat.role, "trainable": seat.trainable, "legal_actions": None}
            | ({} if seat.entrant is None else {"entrant": seat.entrant})
            for agent, seat in self.seats.items()
        }
        self.agents: list[str]  # from the first reset on
        self.ended = True
        self.seed = None
        self.options: dict[str, Any] = {}
        self._waiting = {}
        self._stream: tuple[int, int] | None = None  # the last given seed, and the number of resets without one since

    # --- what a subclass defines -------------------------------------------------------------------------------------

    def play(self, table: Table) -> Rules[Any]:
        """The rules. `table.options` holds the options from `reset`, or from rules that play this env inside theirs."""
        raise NotImplementedError(f"{type(self).__name__} must define play(self, table)")

    # --- the AEC interface -------------------------------------------------------------------------------------------

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[self._known(agent)]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[self._known(agent)]

    def _known(self, agent: str) -> str:
        if agent not in self._order:
            raise KeyError(f"{agent!r} is not an agent of {self.name}; its agents are {self.possible_agents}")
        return agent

    def observe(self, agent: str) -> dict[str, tuple[dict[str, str], ...]]:
        """`{"messages": (...)}`: the agent's conversation so far, user and assistant alternating. Do not mutate."""
        return {"messages": self._conversations.read(self._known(agent))}

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward since its last action, terminated, truncated and info of `agent_selection`.

        Raises:
            AttributeError: no episode has begun; `reset` comes first.
            RuntimeError: every agent has left the episode.
        """
        if not self.agents:
            raise RuntimeError(
                f"{self.name}: last() after the end: every agent has left the episode; call reset() for the next one"
            )
        return super().last(observe)

    def select(self, agent: str) -> None:
        """Chooses which of the `ready_agents` takes the next `step`."""
        if agent not in self._waiting:
            raise ValueError(f"{self.name}: agent {agent!r} cannot act now; ready agents are {self.ready_agents}")
        self.agent_selection = agent

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Starts an episode. Without a seed, the stream of the last seed (or of entropy) continues."""
        if seed is not None:
            seed = arguments.whole("seed", seed, 0)
            self._stream = (seed, 0)
        else:
            first, count = self._stream or (secrets.randbits(31), 0)
            self._stream = (first, count + 1)
            seed = int(keyed_generator(first, f"reset {count + 1}").integers(2**31))
        self._begin(seed, options)

    def _begin(self, seed: int, options: Mapping[str, Any] | None) -> None:
        waiting, self._waiting = self._waiting, {}
        strands.abandon(waiting.values())
        self.seed = seed
        self.options = dict(options or {})
        self.options.pop("options", None)  # PettingZoo's api_test passes {"options": 1} to every env
        for key in self.options:
            if key not in self.reset_options:
                raise ValueError(arguments.unknown(f"{self.name}: reset option", key, list(self.reset_options)))
        self._open()

    def _open(self) -> None:
        """Runs the rules of a new episode to their first asks."""
        self.agents = self.possible_agents.copy()
        self.rewards = self._zeros.copy()
        self._cumulative_rewards = self._zeros.copy()
        self.terminations, self.truncations = self._alive.copy(), self._alive.copy()
        self._facts = {agent: facts.copy() for agent, facts in self._seat_facts.items()}
        self.infos = {agent: facts.copy() for agent, facts in self._seat_facts.items()}
        self.log = []
        self.ended = False
        self._conversations = SeatConversations(self.agents, self.memory == "state")
        self._returns = {}
        self._unasked = 0
        rules = self.play(Table(self, "", self.options))
        if not hasattr(rules, "send"):
            raise TypeError(f"{self.name}: play() asks nobody: it must ask with `yield from table.ask(...)`")
        self._run(strands.Strand(rules))
        self._choose()
        if self.ended:
            self._accumulate_rewards()
        else:  # AEC has no reward at reset: rewards before the first ask count with the first step
            self._early, self.rewards = self.rewards, self._zeros.copy()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Explains that `reset` must come first; raises AttributeError, as `hasattr` and `copy` expect."""
            why = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in BORN_AT_RESET:
                why = f"{type(self).name}: call reset(seed=...) first; {why}"
            if name == "seats":
                raise AttributeError(f"{why}: the class must declare them, as seats = {{'player_0': Seat('player')}}")
            raise AttributeError(why, name=name, obj=self)

    def step(self, action: str | None) -> None:
        """Plays a text as the action of `agent_selection`. A dead agent takes one `None`, as AEC requires."""
        if self.ended:
            if self.seed is None or not self.agents:
                when = "before reset()" if self.seed is None else "after the end: every agent has left the episode"
                raise RuntimeError(f"{self.name}: step() {when}; call reset() first")
            self._was_dead_step(action)
            return
        agent = self.agent_selection
        if not isinstance(action, str):
            raise TypeError(f"{self.name}: the action of {agent!r} must be a str, got {type(action).__name__}")
        action = parsing.clean(action)
        strand = self._waiting.pop(agent, None)
        if strand is None:
            raise RuntimeError(f"{self.name}: the rules failed in an earlier step; call reset()")
        self._cumulative_rewards[agent] = 0.0
        self.rewards = self._zeros.copy() if self.log else self._early
        self.log.append((agent, action))
        self._conversations.answer(agent, action)
        self.infos[agent] = self._facts[agent].copy()
        self._run(strand, action)
        if not self.ended and len(self.log) >= self.max_turns:
            self._truncate()
        self._choose()
        self._accumulate_rewards()
        if self.render_mode == "human":
            self.render()

    def render(self) -> str | None:
        """The transcript of the episode so far: actions in order, then the outcome.

        With `render_mode="human"` it is printed line by line during the episode: `step` calls this.
        """
        lines = [f"{self.name}, seed {self.seed}"]
        lines += [f"[{agent}] {parsing.public(text)}" for agent, text in self.log]
        if self.ended:
            lines.append(f"outcome: {next((f['outcome'] for f in self._facts.values() if 'outcome' in f), 'ended')}")
        if self.render_mode == "human":
            print("\n".join(lines[-2:] if self.ended and self.log else lines[-1:]))  # the end comes with its action
            return None
        return "\n".join(lines)

    def state(self) -> dict[str, Any]:  # type: ignore[override]
        """Everything needed to return to this point, as JSON values if the options are JSON."""
        if self.seed is None:
            raise RuntimeError(f"{self.name}: there is no state before reset()")
        return {"seed": self.seed, "options": dict(self.options), "log": [list(entry) for entry in self.log]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Returns to a `state()` by replaying its actions."""
        self._stream = self._stream or (state["seed"], 0)
        mode, self.render_mode = self.render_mode, None
        try:
            self._begin(state["seed"], state["options"])
            for agent, action in state["log"]:
                self.select(agent)
                self.step(action)
        finally:
            self.render_mode = mode

    def _was_dead_step(self, action: str | None) -> None:
        """PettingZoo's rule for dead agents, several times cheaper since all agents die at once."""
        if action is not None:
            raise ValueError("when an agent is dead, the only valid action is None")
        agent = self.agent_selection
        for kept in (self.terminations, self.truncations, self.rewards, self._cumulative_rewards, self.infos):
            del kept[agent]
        self.agents.remove(agent)
        self.rewards = dict.fromkeys(self.rewards, 0.0)
        if self.agents:
            self.agent_selection = self.agents[0]

    def close(self) -> None:
        """Does nothing: an env holds no resources."""

    def __reduce__(self) -> tuple[Any, ...]:
        args, kwargs = self._made_with
        if self.seed is None:
            return _rebuild, (type(self), args, kwargs, None, None, 0, None)
        left = len(self.possible_agents) - len(self.agents)
        chosen = self.agent_selection if self.agents else None
        return _rebuild, (type(self), args, kwargs, self.state(), self._stream, left, chosen)


def _rebuild(
    cls: type[TextEnv],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: Mapping[str, Any] | None,
    stream: tuple[int, int] | None,
    left: int,
    chosen: str | None,
) -> TextEnv:
    env = cls(*args, **kwargs)
    if state is not None:
        env.restore(state)
        env._stream = stream
        for _ in range(left):
            env.step(None)
        if chosen is not None and not env.ended:
            env.select(chosen)
    return env
