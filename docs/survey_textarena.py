"""Plays every game of the installed TextArena and writes which of them are registered: `games.json` and a page.

    python docs/survey_textarena.py [ID ...] [--page docs/textarena.md] [--only-page]

Every game gets a process of its own and a time limit. One that can be made offline and that passes the checks of
`legos_envs.testing` is listed with its numbers of players, the longest of its random episodes, and whether their
rewards always add up to zero; any other with the reason. Games whose source an older Python cannot read are found by
running this on the older one first. With ids, the other rows of the file stay as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from legos_envs.table import Forfeit
from legos_envs.testing import check_env
from legos_envs.testing.harness import Subject, drive, rejected, require
from legos_envs.textarena import ids as textarena_ids
from legos_envs.textarena.ids import Facts

FILE = Path(textarena_ids.__file__).with_name("games.json")
LIMIT_S = 240
EPISODES = 20
LONGEST = 1500
"""Actions after which a random episode is cut."""
CHECKED = 60
"""The same while it is being checked, since every check plays many."""
SLOW_S = 0.05
"""Games that take longer to make get only the quick checks."""
QUICK = (
    "play.ends",
    "play.one_ending",
    "rewards.finite",
    "infos.plain",
    "infos.legal",
    "spaces.same",
    "observation.chat",
    "observe.pure",
    "seed.fresh",
    "rng.untouched",
)
NOT_HERE = ("seed.process", "play.outcomes")
"""The first needs a registered id, the second whole episodes: it is made here, with the long ones."""
ALIKE = (
    *(f"2048-v0{size}" for size in ("-ultra-easy", "-mega-easy", "-super-easy", "-6x6", "-8x8", "-10x10")),
    "Checkers-v0",
    "UltimateTexasHoldem-v0",
)
"""Games in which random play always, or nearly, gets the same, which is not the fault of theirs."""


def base_ids() -> list[str]:
    """TextArena's ids without those that only add wrappers."""
    from textarena.envs.registration import ENV_REGISTRY

    return [game for game in ENV_REGISTRY if not game.endswith(("-raw", "-train"))]


def counts(game: str) -> tuple[list[int], float]:
    """The numbers of players with which a game begins, and the seconds that takes."""
    from legos_envs.textarena.guest import Guest

    found, seconds, why = [], 0.0, None
    for number in range(1, 16):
        try:
            guest = Guest(game, number, 1)
        except (AssertionError, ValueError, TypeError, KeyError, IndexError) as error:
            why = why or error
            continue
        if guest.state.num_players == number:
            found.append(number)
            start = time.process_time()  # some puzzles look long for a good one, with some seeds
            for seed in range(3):
                Guest(game, number, seed)
            seconds = (time.process_time() - start) / 3
    if not found:
        raise why or ValueError("it begins with no number of players")
    return found[1:] if found[:2] == [1, 2] else found, seconds  # games for several that do not look


def pays_winners(game: str, number: int) -> bool:
    """Whether rewards come from TextArena's `set_winner` and `set_draw` for two alone, which add up to zero."""
    import textarena

    from legos_envs.textarena.guest import Guest

    guest = Guest(game, number, 0)
    source = inspect.getsource(type(guest.env))
    return isinstance(guest.state, textarena.TwoPlayerState) and ".rewards" not in source


def survey(game: str) -> Facts:
    """What is to be known of a game that passes.

    Raises:
        Exception: whatever the game raises when it is made.
        AssertionError: it fails checks; the message lists them.
    """
    from legos_envs.textarena.env import TextArena

    numbers, seconds = counts(game)
    slow = seconds > SLOW_S
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    require(numbers == list(range(numbers[0], numbers[-1] + 1, step)), f"it takes {numbers} players")
    facts = Facts(numbers[0], numbers[-1], step, CHECKED, False)
    textarena_ids.REFUSED.pop(game, None)
    textarena_ids.GAMES[game] = facts

    def make(**kwargs: Any) -> TextArena:
        return TextArena(game, **{"max_turns": CHECKED, **kwargs})

    def scored(number: int) -> bool:
        records = Subject(make, {"max_turns": LONGEST, "num_players": number}, 2, None).records
        return any(record.outcome != "unscored" for record in records)

    ends = [number for number in numbers if number == numbers[0] or scored(number)]
    textarena_ids.GAMES[game] = facts = facts._replace(most=ends[-1])
    require(ends == [*facts.players], f"it comes to an end with {ends} players")
    records = Subject(make, {"max_turns": LONGEST}, 6 if slow else EPISODES, None).records
    turns = max(len(record.steps) for record in records)
    zero = pays_winners(game, numbers[0]) and all(abs(sum(record.returns.values())) < 1e-9 for record in records)
    textarena_ids.GAMES[game] = facts = facts._replace(turns=turns, zero_sum=zero)
    alike = len({tuple(record.returns.values()) for record in records}) == 1
    require(not alike or game in ALIKE, f"all {len(records)} episodes end with {records[0].returns}")
    report = check_env(make, episodes=3 if slow else 6, only=QUICK if slow else (), skip=NOT_HERE)
    failures = dict(report.failures)
    try:
        no_trace(make)
    except AssertionError as error:
        failures["refused.no_trace"] = str(error)
    require(not failures, "; ".join(f"{name}: {why}" for name, why in failures.items()))
    return facts


def no_trace(make: Any) -> None:
    """A refused action changes nothing: the same actions get everybody the same, with or without it before each."""
    plain = Subject(make, {}, 1, None)
    record = plain.play(0)
    env = plain.begin(0, plain.make(max_turns=2 * CHECKED, invalid_retries=1))
    for step in record.steps:
        if env.ended:
            return  # the first run was cut in the middle of a second try
        env.step("[nonsense]")
        if not rejected(env, step.agent):
            return  # the game takes any text
        require(env.agent_selection == step.agent, f"{step.agent} was refused, {env.agent_selection} is next")
        env.step(step.action)
    if record.outcome not in ("invalid", "truncated"):
        rest = drive(env, plain.player(0))
        require(rest.returns == record.returns, f"returns are {rest.returns} after refusals, else {record.returns}")


def reason(error: BaseException, game: str) -> str:
    """Why a game is refused, in a line."""
    text = " ".join(str(error).split())
    if isinstance(error, LookupError) and "NLTK" in text:
        return "it needs word lists of NLTK, which it downloads"
    if "OpenRouter API key" in text:
        return "a language model behind an OpenRouter key plays in it"
    if isinstance(error, FileNotFoundError):
        return "a data file is missing from TextArena's package"
    if isinstance(error, SyntaxError):
        return f"Python 3.{sys.version_info.minor} cannot read its source"
    if isinstance(error, ImportError):
        return f"it imports what is not there ({text.rpartition('Error: ')[2]})"
    if isinstance(error, TimeoutError):
        return f"it was not made, played and checked within {LIMIT_S} s"
    if isinstance(error, Forfeit | AssertionError):
        return f"it fails checks: {text[:300]}"
    return f"an error in its code ({type(error).__name__}: {text[:120]})"


def _child(game: str, pipe: Any) -> None:
    import nltk

    nltk.data.path.clear()  # what this machine happens to have is not what others have
    nltk.download = lambda *args, **kwargs: False
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            pipe.send(("passes", tuple(survey(game))))
        except BaseException as error:
            pipe.send(("refused", reason(error, game)))


def surveyed(games: list[str]) -> Iterator[tuple[str, str, Any]]:
    """(game, "passes" or "refused", facts or reason) of each."""
    import textarena  # noqa: F401  # once, before the processes fork: it takes seconds

    context = multiprocessing.get_context("fork")
    for game in games:
        here, there = context.Pipe()
        process = context.Process(target=_child, args=(game, there))
        process.start()
        if here.poll(LIMIT_S):
            verdict, found = here.recv()
        else:
            verdict, found = "refused", reason(TimeoutError(), game)
            process.kill()
        process.join()
        yield game, verdict, found


def merge(old: dict[str, Any], game: str, verdict: str, found: Any) -> None:
    """Puts one result into the contents of the file."""
    before, was = old["games"].pop(game, None), old["refused"].pop(game, "")
    if verdict == "refused":
        if "cannot read its source" in found and before is not None and Facts(*before).python > sys.version_info.minor:
            old["games"][game] = before  # a newer Python can
        else:
            old["refused"][game] = found
        return
    facts = Facts(*found)
    python = sys.version_info.minor if "cannot read its source" in was else Facts(*(before or facts)).python
    old["games"][game] = [*facts._replace(python=python)]


def write(found: dict[str, Any]) -> None:
    """One game a line, in TextArena's order."""
    order = {game: i for i, game in enumerate(base_ids())}
    parts = []
    for key in ("games", "refused"):
        rows = sorted(found[key].items(), key=lambda item: order.get(item[0], len(order)))
        parts.append(f'"{key}": {{\n' + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rows) + "\n}")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("ids", nargs="*", help="TextArena's ids; all by default")
    parser.add_argument("--page", type=Path, help="also write the tables into this Markdown file")
    parser.add_argument("--only-page", action="store_true", help="play nothing, write the page from games.json")
    options = parser.parse_args()
    found = json.loads(FILE.read_text()) if FILE.exists() else {"games": {}, "refused": {}}
    if not options.only_page:
        for game, verdict, result in surveyed(options.ids or base_ids()):
            merge(found, game, verdict, result)
            print(f"{game:40} {verdict:8} {result}", flush=True)
            write(found)
    if options.page:
        from textarena_page import written

        options.page.write_text(written(found))


if __name__ == "__main__":
    main()
