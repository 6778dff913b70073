"""`legos play ENV`: a person in the terminal in one or more seats, any policy in the others."""

from __future__ import annotations

import asyncio
import importlib
import secrets
import shutil
import signal
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import legos_envs
from inference import InferenceError
from legos_envs import Episode
from legos_train.cli.arguments import ENV, Parser
from legos_train.cli.play_table import PlayerLeft, PlaySession
from legos_train.cli.playing_flags import add_asking, chosen
from legos_train.config import parse_assignments
from legos_train.evaluation import outcomes
from legos_train.observe import plain_text
from legos_train.rollout.players import actors, replies, words

WIDEST, LONGEST = 100, 600
"""Maximum columns of text, and maximum characters shown of an answer after the game."""
DESCRIPTION = """Play in the terminal, against any policy.

Answer with an action such as [bet], or with text. End a line with a backslash to continue on the next.
Type ? for help and /undo to take back a typo. Ctrl-C exits.

You play the first trained seat unless --seat puts you elsewhere (`--seat judge=human`)."""
EXAMPLES = """
legos play KuhnPoker-v0 --opponent optimal            # against an equilibrium, no model needed
legos play TicTacToe-v0 --seat player_1=human         # you play second
legos play Debate-v0 --seat judge=human               # any seat, by agent or role
legos play KuhnPoker-v0 --opponent runs/kuhn@best     # against a run
"""


def make_parser() -> Parser:
    p = Parser("play", DESCRIPTION, EXAMPLES)
    p.add_argument("env", nargs="?", default="KuhnPoker-v0", metavar="ENV", help=f"{ENV} (default: %(default)s)")
    p.repeated(
        "--seat",
        metavar="NAME=POLICY",
        help=f"who plays an agent or role (repeatable): {actors.listed(but=(), mark='')}",
    )
    p.value("--opponent", default="random", metavar="POLICY", help="who plays all other seats, including judges")
    p.number("--seed", metavar="S", help="replay the deal of this seed (default: random)")
    add_asking(p)
    p.env_arguments()
    return p


def run(arguments: Sequence[str]) -> int:
    p = make_parser()
    options = p.parse_args(arguments)
    args = replies.formatted(parse_assignments(options.arg, "--arg"), options.reply, options.env)
    env: Any = legos_envs.make(options.env, **args)
    env.reset(seed=0)
    roles = {agent: info.get("role", agent) for agent, info in env.infos.items()}
    seated = {str(k): str(v) for k, v in parse_assignments(options.seat, "--seat").items()}
    if unknown := set(seated) - {*roles, *roles.values()}:
        names = sorted({*roles, *roles.values()})
        p.error(f"no agent or role {', '.join(sorted(unknown))}; {options.env} has {', '.join(names)}")
    who = {agent: seated.get(agent) or seated.get(role) for agent, role in roles.items()}
    if "human" not in who.values():
        free = [agent for agent, policy in who.items() if policy is None]
        trained = [agent for agent in free if env.infos[agent].get("trainable", True)]
        if not free:
            p.error("all seats are taken by policies, and none is left for you; leave one free or write NAME=human")
        who[(trained or free)[0]] = "human"
    return _run(env, {agent: policy or options.opponent for agent, policy in who.items()}, options)


def _run(env: Any, who: dict[str, str], options: Any) -> int:
    cast = words.Cast.from_options(chosen(words.PlayerOptions, options), env)
    try:
        players = {agent: None if policy == "human" else cast.player(policy) for agent, policy in who.items()}
        seed = secrets.randbits(31) if options.seed is None else options.seed
        people = [agent for agent, policy in who.items() if policy == "human"]
        table = PlaySession(env, players, seed, write=_write, pass_on=_hand_over if _at_a_terminal() else None)
        others = ", ".join(f"{agent} is {policy}" for agent, policy in who.items() if policy != "human")
        print(f"You are {' and '.join(people)}{'; ' if others else ''}{others}. Type ? for help, /undo after a typo.\n")
        # asyncio's own handler would only cancel the game; the prompt would keep waiting for input
        before = signal.signal(signal.SIGINT, _interrupted)
        try:
            return asyncio.run(_games(table, who, cast))
        except EOFError:
            print("\nno more input: game left")
            return 1
        except PlayerLeft:
            print("game left")
        except KeyboardInterrupt:
            print("\ngame left")
            return 130
        finally:
            signal.signal(signal.SIGINT, before)
    finally:
        cast.close()
    return 0


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _at_a_terminal() -> bool:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    with suppress(ImportError):  # not on Windows; elsewhere it gives `input` arrow keys and a history
        importlib.import_module("readline")
    return True


def _write(text: str) -> None:
    """Prints text wrapped at the terminal's width; boards and short lines stay unchanged."""
    text = plain_text.clean(text)
    if not sys.stdout.isatty():
        print(text)
        return
    width = min(shutil.get_terminal_size().columns, WIDEST)
    for line in text.split("\n"):
        print(textwrap.fill(line, width, replace_whitespace=False, drop_whitespace=True) if len(line) > width else line)


def _hand_over(agent: str) -> None:
    """Another person's turn: clears what the previous one could read before showing theirs."""
    input(f"\nNow {agent}. Hand over the keyboard; Enter clears the screen and shows what {agent} may see> ")
    print("\x1b[2J\x1b[3J\x1b[H", end="", flush=True)


async def _games(table: PlaySession, who: dict[str, str], cast: words.Cast) -> int:
    """Plays and shows the result; at a terminal, then still offers to take back the last entry.

    Returns the exit code: 1 if a player could not answer and the user did not retry.
    """
    while True:
        try:
            episode = await table.play()
        except (InferenceError, OSError) as error:  # an endpoint failed; all answers so far are kept
            print(f"error: {error}", file=sys.stderr)
            if not sys.stdin.isatty() or input("Enter retries; anything else quits> ").strip():
                return 1
            cast.revive()
            continue
        _show_result(table, episode, who)
        if not sys.stdin.isatty():
            return 0
        try:
            line = input("\nEnter quits; undo takes back your last entry> ")
        except EOFError:
            return 0
        if line.strip().casefold().removeprefix("/") != "undo" or not table.take_back():
            return 0


def _show_result(table: PlaySession, episode: Episode, who: dict[str, str]) -> None:
    for answer in table.since():
        text = answer.text.strip()
        print()
        _write(f"{answer.agent}: {text if len(text) <= LONGEST else text[:LONGEST] + ' ...'}")
    for agent in [agent for agent, policy in who.items() if policy == "human"]:
        messages = table.env.observe(agent)["messages"]
        if messages and messages[-1]["role"] == "user":  # what it was shown after its last action
            print()
            _write(f"{agent} is told: {messages[-1]['content']}")
    print()
    for agent, policy in who.items():
        print(f"{agent} ({policy}): {episode.returns[agent]:+g}")
    print(f"outcome: {episode.outcome or 'ended'}{_verdict(table, episode, who)} (seed {table.seed})")


def _verdict(table: PlaySession, episode: Episode, who: dict[str, str]) -> str:
    """Whether the person has won, if only one plays and the game is competitive."""
    people = [agent for agent, policy in who.items() if policy == "human" and episode.trajectories[agent].trainable]
    if len(people) != 1 or not outcomes.competitive(table.env):
        return ""
    return {"win": ", you won", "loss": ", you lost", "draw": ", a draw"}.get(
        outcomes.outcome_of(episode, people[0]), ""
    )
