"""`legos envs new MyGame`: a working environment and its test, to start from."""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from pathlib import Path

import legos_envs
from legos_train.cli.arguments import Parser

NAME = re.compile(r"[A-Z][A-Za-z0-9]{0,39}")

ENVIRONMENT = '''"""One player hides a number, the other finds it: a starting point for your own rules."""

from legos_envs import Seat, TextEnv, register

NUMBERS = tuple("123456789")


class {name}(TextEnv):
    """A keeper hides a number from 1 to 9; a seeker has three guesses."""

    name = "{name}-v0"
    zero_sum = True
    hidden_information = True
    seats = {{"keeper_0": Seat("keeper"), "seeker_0": Seat("seeker")}}

    def play(self, table):
        lucky = table.rng.choice(NUMBERS)  # draw from the table only, so that a seed gives the same episode anywhere
        hidden = yield from table.ask("keeper_0", f"Hide a number; {{lucky}} pays double.", legal=NUMBERS)
        table.tell("seeker_0", "A number from 1 to 9 is hidden. You have three guesses.")
        for _ in range(3):
            guess = yield from table.ask("seeker_0", "Guess.", legal=NUMBERS)
            if guess == hidden:
                break
            table.tell("seeker_0", f"It is {{'larger' if hidden > guess else 'smaller'}} than {{guess}}.")
        found = guess == hidden
        stake = (2.0 if hidden == lucky else 1.0) * (1 if found else -1)
        table.reward("seeker_0", stake)
        table.reward("keeper_0", -stake)
        table.note(outcome="found" if found else "kept")


register("{name}-v0", {name})
'''

TEST = '''"""The rules of {name}, and every law that an environment has to obey."""

from legos_envs.testing import check_env, fuzz

from {module} import {name}


def test_it_obeys_every_law():
    check_env({name}, episodes=50, raise_on_failure=True)


def test_nothing_that_a_model_may_write_breaks_it():
    report = fuzz({name}, actions=300)
    assert report.ok, str(report)


def test_who_finds_the_number_is_paid():
    env = {name}()
    env.reset(seed=0)
    lucky = env.observe("keeper_0")["messages"][0]["content"].partition("; ")[2][0]
    env.step(f"[{{lucky}}]")
    env.step(f"[{{lucky}}]")
    assert env.rewards == {{"keeper_0": -2.0, "seeker_0": 2.0}}
    assert env.infos["keeper_0"]["outcome"] == "found"
'''


DESCRIPTION = """Write a working environment and its test, to start from.

Then prints how to check, test and play it. No existing file is overwritten."""
EXAMPLES = """
legos envs new MyGame                  # my_game.py and test_my_game.py, here
legos envs new MyGame --dir games      # the same in games/
"""


def add_arguments(p: Parser) -> None:
    p.add_argument("name", metavar="NAME", help="name of the class, such as MyGame; the id is then MyGame-v0")
    p.value(
        "--dir",
        type=Path,
        default=Path("."),
        metavar="DIR",
        help="output folder, created if missing (default: this folder)",
    )


def run(p: Parser, options: argparse.Namespace) -> int:
    name, folder = options.name, options.dir
    if not NAME.fullmatch(name) or keyword.iskeyword(name):
        p.error(f"the name must be a class name such as MyGame (letters and digits, 40 at most); got {name!r}")
    if f"{name}-v0" in legos_envs.registered():
        p.error(f"{name}-v0 is already registered; choose another name")
    module = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    if keyword.iskeyword(module) or module in sys.stdlib_module_names:
        p.error(f"{name} would be written to {module}.py, which Python already has; try {name}Game")
    files = {folder / f"{module}.py": ENVIRONMENT, folder / f"test_{module}.py": TEST}
    if there := [str(file) for file in files if file.exists()]:
        p.error(f"{' and '.join(there)} already exists; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for file, template in files.items():
        file.write_text(template.format(name=name, module=module), encoding="utf-8")
        print(f"wrote {file}")
    path = folder / f"{module}.py"
    print(
        f"\nNow change the rules, then check, test and play your game:\n"
        f"  legos envs check {path}:{name}-v0\n  pytest {folder / f'test_{module}.py'}\n"
        f"  legos play {path}:{name}-v0"
    )
    return 0
