"""Players without a model: random, scripted, tabular (minimax, Nash) and human. Each maps a `Decision` to text.

All randomness comes from `decision.seed`, so a policy's answer never depends on what else is being played.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from legos_envs import exact, parsing
from legos_envs.game import ExactPolicy, GameEnv
from legos_envs.play import Decision, Policy

SENTENCE = "I have nothing to add."


class NoInput(EOFError):
    """The human's input ended while an action was awaited."""


class RandomPolicy:
    """Uniform over the legal actions; a fixed sentence if any text is legal."""

    def __init__(self, sentence: str = SENTENCE):
        self.sentence = sentence

    def __call__(self, decision: Decision) -> str:
        legal = decision.legal_actions
        return legal[decision.seed % len(legal)] if legal else self.sentence


class ScriptedPolicy:
    """Plays the answers of a function, or the lines of a list, one per turn.

    The name of a legal move, such as `bet`, is converted to the env's action format; anything else is passed on
    verbatim.

    Args:
        script: `Decision -> str`, or the lines for turns 0, 1, 2 ... (every action of the agent is a turn, including
            retries after an invalid one).

    Raises:
        IndexError: when called, if the list is exhausted.
    """

    def __init__(self, script: Callable[[Decision], str] | Sequence[str]):
        if isinstance(script, str):
            raise TypeError(f"script must be a function or a list of lines; got the str {script!r}")
        self.script = script

    def __call__(self, decision: Decision) -> str:
        if callable(self.script):
            return written(self.script(decision), decision)
        if decision.turn >= len(self.script):
            raise IndexError(
                f"the script of {decision.agent!r} has {len(self.script)} lines, but turn {decision.turn} needs another"
            )
        return written(self.script[decision.turn], decision)


class TabularPolicy:
    """Plays a policy over information sets in the env, by recognising the prompt of every information set.

    Prompts are recognised with `memory="state"`, and with `"chat"` if the view alone determines the information set.

    Args:
        env: a `GameEnv`, wrapped or not.
        policy: probabilities of legal moves by information set; read once, here.

    Raises:
        TypeError: the env is no `GameEnv`.
        ValueError: the policy is malformed, or the game is too large for exact evaluation or played for several rounds.
        LookupError: when called, if the prompt matches no information set.
    """

    def __init__(self, env: Any, policy: ExactPolicy):
        bare = game_env(env)
        _refuse_rounds(bare)
        graph = exact.graph_of(bare.game)
        self.name = bare.name
        self._seats = {agent: i for i, agent in enumerate(bare.possible_agents)}
        self._table: dict[tuple[int, str], tuple[tuple[str, ...], list[float]]] = {}
        for infoset, played in zip(graph.infosets, graph.probabilities(policy)):
            entry = tuple([parsing.write_action(move, bare.action_format) for move in infoset.legal]), played
            prompt = bare.observation_in(infoset)["messages"][-1]["content"]
            self._table[infoset.player, prompt] = entry
            if bare.memory == "chat":  # after the first turn the rules are not repeated
                self._table[infoset.player, prompt.removeprefix(f"{bare.rules_text(infoset.player)}\n")] = entry

    def __call__(self, decision: Decision) -> str:
        seat = self._seats.get(decision.agent.rpartition("/")[2], self._seats.get(decision.role))
        prompt = decision.messages[-1]["content"]
        entry = None if seat is None else self._table.get((seat, prompt))
        if entry is None:
            raise LookupError(
                f"the prompt of {decision.agent!r} matches no information set of {self.name}: {prompt!r}. "
                f"A tabular policy plays the env it was made for (same constructor arguments), one game per episode."
            )
        moves, played = entry
        draw, total = decision.seed / 2**63, 0.0
        for move, probability in zip(moves, played):
            total += probability
            if draw < total:
                return move
        return max(zip(played, moves))[1]  # due to rounding, the draw exceeds the sum


def optimal(env: Any) -> TabularPolicy:
    """The best known policy: an equilibrium, or minimax play that chooses uniformly among the optimal moves.

    Raises:
        TypeError: the env is no `GameEnv`.
        ValueError: its game has no known solution.
    """
    bare = game_env(env)
    _refuse_rounds(bare)
    return TabularPolicy(bare, exact.nash(bare.game))


def _refuse_rounds(env: GameEnv) -> None:
    """Raises ValueError if a game is played for several rounds; `num_rounds` is None if their number is open."""
    rounds = getattr(env, "num_rounds", 1)
    if rounds is None:
        exact.graph_of(env.game)  # raises if it is merely too large
    if rounds != 1:
        often = "as many rounds as it takes here" if rounds is None else f"{rounds} rounds here (num_rounds)"
        raise ValueError(f"{env.name} is played for {often}, but its exact solution covers a single round")


class HumanPolicy:
    """Shows new messages and reads an action; asks again until it is legal. Blocks while it waits.

    A move may be typed without its format, in upper or lower case (`bet` for `[bet]`). If any text is legal, a line
    that ends with a backslash continues on the next one.

    Args:
        read: takes a prompt, returns a line; may raise `EOFError`.
        write: prints one text.
        command: called with every first line and the decision; if it returns True, the line was a command, and the
            action is asked for again.

    Raises:
        NoInput: when called, if the input has ended.
    """

    def __init__(
        self,
        read: Callable[[str], str] = input,
        write: Callable[[str], Any] = print,
        command: Callable[[str, Decision], bool] | None = None,
    ):
        self.read, self.write, self.command = read, write, command
        self._shown: dict[str, tuple[dict[str, str], ...]] = {}

    def __call__(self, decision: Decision) -> str:
        shown, messages = self._shown.get(decision.agent, ()), decision.messages
        new = messages[len(shown) :] if decision.turn and messages[: len(shown)] == shown else messages
        for message in new or messages:  # a fresh prompt is shown even if it repeats the last one
            if message["role"] != "assistant":
                self.write(message["content"])
        self._shown[decision.agent] = messages
        legal = decision.legal_actions
        while True:
            try:
                text = self.read(f"{decision.agent}> ")
                if self.command is not None and self.command(text, decision):
                    continue
                while text.endswith("\\") and not legal:
                    text = f"{text[:-1]}\n{self.read('... ')}"
            except EOFError as error:
                raise NoInput(
                    f"the input ended while {decision.agent!r} was to act at turn {decision.turn}; "
                    f"give it {' '.join(legal) if legal else 'a line of text'}"
                ) from error
            reply = written(text.strip(), decision)
            if reply in legal if legal else reply:
                return reply
            self.write(f"Not understood: {text!r}. {'Legal: ' + ' '.join(legal) if legal else 'Say something.'}")


def written(text: str, decision: Decision) -> str:
    """The legal action that a text names, in the env's format; the text itself if it names none."""
    wanted = text.casefold()
    for action in decision.legal_actions or ():
        for name in (action, *(parsing.action(action, form) for form in parsing.FORMATS)):
            if name is not None and name.casefold() == wanted:
                return action
    return text


def _first(decision: Decision) -> str:
    return (decision.legal_actions or (SENTENCE,))[0]


def _last(decision: Decision) -> str:
    return (decision.legal_actions or (SENTENCE,))[-1]


def make_policy(name: str, env: Any) -> Policy:
    """A policy by name, for an env.

    `"random"`, `"optimal"`, `"human"`, or `"scripted:NAME"`, where `first` and `last` take the first or last legal
    action in any env. An env adds more with an attribute `scripted_players` (names to functions of a `Decision`), a
    `Game` with an attribute `scripted` (names to policies over information sets).

    Raises:
        ValueError: the name is unknown; the message names the nearest one.
        TypeError: `"optimal"` for an env without a `Game`.
    """
    makers: dict[str, Callable[[], Policy]] = {
        "random": RandomPolicy,
        "optimal": lambda: optimal(env),
        "human": HumanPolicy,
        "scripted:first": lambda: ScriptedPolicy(_first),
        "scripted:last": lambda: ScriptedPolicy(_last),
    }
    bare = env.unwrapped
    for key, exact_policy in getattr(getattr(bare, "game", None), "scripted", {}).items():
        makers[f"scripted:{key}"] = partial(TabularPolicy, bare, exact_policy)
    for key, script in getattr(bare, "scripted_players", {}).items():
        makers[f"scripted:{key}"] = partial(ScriptedPolicy, script)
        if key in ("random", "optimal"):  # the env's own, if it has one
            makers[key] = makers[f"scripted:{key}"]
    if name in makers:
        return makers[name]()
    full = {key.partition(":")[2] or key: key for key in makers} | {key: key for key in makers}
    near = difflib.get_close_matches(name, full, 1, cutoff=0.5)
    hint = f" Did you mean {full[near[0]]!r}?" if near else ""
    raise ValueError(f"policy {name!r} is unknown.{hint} Accepted: {', '.join(map(repr, makers))}.")


def game_env(env: Any) -> GameEnv:
    """The `GameEnv` inside wrappers.

    Raises:
        TypeError: there is none.
    """
    bare = env.unwrapped
    if not isinstance(bare, GameEnv):
        raise TypeError(
            f"{getattr(bare, 'name', type(bare).__name__)} has no exact solution: its rules are not written as a Game. "
            f"Accepted: envs that derive from GameEnv, such as KuhnPoker-v0, LeducPoker-v0, MatrixGame-v0, Nim-v0, "
            "TicTacToe-v0"
        )
    return cast(GameEnv, bare)
