"""One agent writes a function, another writes tests for it, both from the same description, without seeing each other's
work. Both are run in a sandbox: a hidden reference determines which results are right, and hidden programs that are
almost right measure how good the tests are.

| | |
|---|---|
| seats | `coder_0` (role `coder`), `tester_0` (role `tester`) |
| horizon | 2 actions, both at once |
| sum of rewards | not constant: 0 to 2 |
| sample action | `"def f(x): return x" if info["role"] == "coder" else "assert f(1) == 1"` |

## What each seat is told

Both: the function's name, its arguments and what it must do. Neither sees the other's text, the reference, or any
test.

## Actions

Coder: a program, in the last Markdown fence of three backticks, or the whole reply. It may contain more than the
function; `legos_envs.scoring.sandbox` documents which Python is accepted. Any text is a legal action: code that does
not run fails.

Tester: lines such as `assert f([1, 2], 3) == [2, 1]` (or `assert f(1)`, `assert not f(1)` for True and False), with
nothing but literals as arguments and result. The first `max_tests` lines that begin with `assert` count; everything
else is ignored. A reply without such a line is an invalid move.

## Rewards

At the end, each from 0 to 1.

Coder: the share of calls on which the function returns the right result. The calls are the exercise's hidden ones,
about six; with `coder_scored_by="tester"` they are the tester's, right or wrong, and the reward is 0 if there are none.

Tester: (right tests / tests) x (programs caught / 3). A test is right if the reference passes it; a line that cannot be
parsed, or whose call makes the reference fail, is a wrong test. A repeated test counts twice. Each of the three hidden
programs is wrong on some call, and is caught if it fails a right test. So one wrong test in five costs a fifth, and
tests that catch nothing are worth nothing.

An agent with an invalid move (for the coder: saying nothing) gets `invalid_reward`; the other one is paid as usual. But
a coder scored by a tester that made no valid move gets 0 and ends with `info["trainable"]` False, so that nothing is
learned from it.

A program that crashes, or takes more than `seconds` or 64 MiB for all calls together, fails them all. All runs of the
coder's program share one budget of `seconds`. The three hidden programs share another; one that does not get to run is
not caught. The reference has the same budget for the tester's calls. No action takes more than three times `seconds`,
plus interpreter starts with `sandbox="os"`.

## End

After both have answered. `info["item"]` is the name of the function, `info["index"]` the index of a generated exercise;
the coder's info has `passed` (0 to 1), `correct` (whether that is 1) and `error` (why the program did not run, or
None), the tester's has `tests`, `right` and `caught`. `info["outcome"]` is `"solved"` if the coder's function is right
on all hidden calls, else `"failed"`; `"unscored"`, without any reward, if the reference could not be run.

## Arguments

`source="generated"`, the default, provides 10,000 one-line functions from 24 families, such as "n times 3, plus 7" or
"the first 4 of the values", with random names and constants. `source="written"` provides 24 harder, handwritten ones.

`split="train"` and `split="test"` keep training and test apart: a fifth of the exercises, chosen by a hash of the
description (not of the function's name), is for testing.

Any other `source` is your own data set: a `.jsonl`, `.json` or `.parquet` file, `"hf:NAME"`, or a list of mappings,
with a description (`prompt`), a right program (`code`) and tests (`tests`: lines `assert f(1) == 2`). `fields="mbpp"`
and `fields="humaneval"` read these data sets as they are; for others, a mapping such as `{"prompt": "text"}` gives the
field names. The program is run on its tests when the env is created; rows whose program fails, or whose tests are not
such lines, are bad rows. Programs that are almost right are derived by changing one operator, constant or function of
the right one; if there are none, the tester is paid nothing and `info["trainable"]` is False for it.

Needs `pip install "legos-selfplay[tasks]"`.

## Scripted players

They know the exercises. Coders: `good` writes the reference, `almost` the first of the wrong programs, `poor` a
function that returns None. Testers: `good` tests the first five hidden calls, `single` the first one, `poor` expects
'b' from each of them. `random` is one of these, chosen each time; on your own source it is the only player: its
function returns its first argument, and its test is a guess.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:good` | `coder +1, tester +1` | | `+0.03` |
| `coder=scripted:good tester=scripted:poor` | `coder +1, tester 0` | |
| `coder=scripted:almost tester=scripted:single` | `coder +0.6190, tester +0.4861` | `source="written"` |
| `*=scripted:single` | `coder +1, tester +1` | |
| `coder=scripted:good tester=scripted:poor` | `coder 0, tester 0` | `coder_scored_by="tester"` |

## Source

Coder and tester that learn from each other: Wang et al., 2025, "Co-evolving LLM coder and unit tester via reinforcement
learning" (arXiv:2506.03136). Tests judged by the wrong programs they catch: mutation testing, DeMillo, Lipton and
Sayward, 1978. The exercises are this project's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from legos_envs import arguments
from legos_envs.scoring import sandbox
from legos_envs.table import InvalidMove, Rules, Seat, Table
from legos_envs.tasks.code import generated, source_items
from legos_envs.tasks.code.code_gen_players import PLAYERS
from legos_envs.tasks.code.code_items import ITEMS, Item
from legos_envs.tasks.code.mutants import mutants
from legos_envs.tasks.code.sandboxed_calls import SECONDS, TimeLeft, reference_results, results_of, same
from legos_envs.tasks.code.unit_tests import UnitTest, read_tests
from legos_envs.tasks.given_items import without_source
from legos_envs.tasks.problems.sources import choose
from legos_envs.tasks.splits import SPLITS, of_split
from legos_envs.text_env import TextEnv

KINDS, check_installed = sandbox.KINDS, sandbox.check_installed  # the constructor has an argument of that name
GENERATED = "generated"
SOURCES = (GENERATED, "written")
SCORERS = ("reference", "tester")


class CodeGen(TextEnv):
    """A coder and a tester work from the same description; programs run in a sandbox.

    Args:
        source: `"generated"`, `"written"`, or your own data set.
        split: `"all"`, `"train"` or `"test"`; for a Hugging Face data set, its own split.
        coder_scored_by: whose calls test the coder's function: `"reference"` or `"tester"`.
        max_tests: maximum number of the tester's lines that count, 1 to 20.
        seconds: time limit of the coder's program over all its calls, and of the others on the tester's calls, 0.05 to
            30.
        sandbox: `"monty"`, or `"os"`: full Python behind bubblewrap or sandbox-exec (see `legos_envs.scoring`).
        fields: your source's names for the task's fields: a mapping, `"mbpp"` or `"humaneval"`.
        config: configuration of a Hugging Face data set.
        bad_rows: `"refuse"` or `"skip"`.
    """

    slow_steps = True
    name = "CodeGen-v0"
    default_max_turns = 20
    seats = {"coder_0": Seat("coder"), "tester_0": Seat("tester")}
    reset_options = {
        "item": "the name of a handwritten exercise",
        "index": "index of a generated exercise, or of one in your source, from 0",
    }

    scripted_players = PLAYERS

    def __init__(
        self,
        source: Any = GENERATED,
        split: str = "all",
        coder_scored_by: str = "reference",
        max_tests: int = 5,
        seconds: float = SECONDS,
        sandbox: str = "monty",
        fields: str | Mapping[str, str] | None = None,
        config: str | None = None,
        bad_rows: str = "refuse",
        **kwargs: Any,
    ):
        self.coder_scored_by = arguments.one_of("coder_scored_by", coder_scored_by, SCORERS)
        self.max_tests = arguments.whole("max_tests", max_tests, 1, 20)
        self.seconds = arguments.real("seconds", seconds, 0.05, 30)
        self.sandbox = arguments.one_of("sandbox", sandbox, KINDS)
        if self.sandbox == "monty":
            check_installed()
        self.items: Sequence[Item] | None = None
        if isinstance(source, str) and source in SOURCES:
            arguments.one_of("split", split, SPLITS)
            without_source(fields=fields, config=config)
            if source == "written":
                self.items = of_split(tuple(ITEMS.values()), split, lambda item: item.spec)
        else:
            self.items = source_items.open_items(source, fields, split, config, bad_rows, self.sandbox, SOURCES)
        self.split = split
        super().__init__(**kwargs)

    def play(self, table: Table) -> Rules[None]:
        """Code and tests are written concurrently; nothing runs before both are complete."""
        item = self._item(table)
        expected = reference_results(item, self.sandbox)
        wrong = item.wrong or mutants(item, self.sandbox)  # created here: it may take seconds, which no step should
        branches: list[Rules[Any]] = [self._code(table, item), self._tests(table, item)]
        code, tests = yield from table.gather(branches)
        passed = 0.0
        if code is not None:
            left = TimeLeft(self.seconds)
            results, error = results_of(code, item.name, item.calls, left, self.sandbox)
            passed = sum(map(same, results, expected)) / len(expected)
            by_tests = self.coder_scored_by == "tester"
            table.reward("coder_0", self._by_tests(code, item, tests or [], left) if by_tests else passed)
            if by_tests and tests is None:  # nothing may be learned from a zero without tests
                table.note("coder_0", trainable=False)
            table.note("coder_0", passed=passed, correct=passed == 1, error=error)
        if tests is not None:
            right, caught = self._worth(item, tests, wrong)
            table.reward("tester_0", right / len(tests) * caught / max(len(wrong), 1))
            if not wrong:  # a zero that no test could have changed
                table.note("tester_0", trainable=False)
            table.note("tester_0", tests=len(tests), right=right, caught=caught)
        table.note(item=item.name, outcome="solved" if passed == 1 else "failed")

    def _item(self, table: Table) -> Item:
        name, index = table.options.get("item"), table.options.get("index")
        if name is not None:
            if name not in ITEMS:
                raise ValueError(arguments.unknown("option item:", str(name), list(ITEMS)))
            return ITEMS[name]
        if self.items is not None:
            return self.items[choose(table, len(self.items), "seed")]
        index = generated.draw_index(table.rng, self.split) if index is None else index
        item = generated.exercise(index).item
        table.note(index=index)
        return item

    def _code(self, table: Table, item: Item) -> Rules[str | None]:
        subset = f"\n{sandbox.SUBSET}" if self.sandbox == "monty" else ""
        prompt = (
            f"Write a Python function.\n{item.signature}\n{item.spec}{subset}\n"
            "Reply with the code in a Markdown fence of three backticks."
        )
        text = yield from table.attempt(table.ask("coder_0", prompt))
        return None if text is None else sandbox.program(text)

    def _tests(self, table: Table, item: Item) -> Rules[list[UnitTest | None] | None]:
        prompt = (
            f"Write tests for a Python function that you cannot see.\n{item.signature}\n{item.spec}\n"
            "They should be right, and fail for functions that are almost right. Reply with 1 to "
            f"{self.max_tests} lines of this form, with plain values for the dots:\nassert {item.name}(...) == ..."
        )

        def parse(reply: str) -> list[UnitTest | None]:
            tests = read_tests(reply, item.name, self.max_tests)
            if not tests:
                raise InvalidMove(f"no line begins with 'assert {item.name}('.")
            return tests

        return (yield from table.attempt(table.ask("tester_0", prompt, parse=parse)))

    def _passes(self, code: str, item: Item, cases: list[UnitTest], left: TimeLeft) -> list[bool]:
        """Whether a program passes each case."""
        results, _ = results_of(code, item.name, [case.call for case in cases], left, self.sandbox)
        return [same(result, case.result) for result, case in zip(results, cases)]

    def _by_tests(self, code: str, item: Item, tests: list[UnitTest | None], left: TimeLeft) -> float:
        cases = [case for case in tests if case is not None]
        return sum(self._passes(code, item, cases, left)) / len(cases) if cases else 0.0

    def _worth(self, item: Item, tests: list[UnitTest | None], wrong: Sequence[str]) -> tuple[int, int]:
        """The number of right tests, and the number of wrong programs that fail at least one of them."""
        cases = [case for case in tests if case is not None]
        passes = self._passes(item.reference, item, cases, TimeLeft(self.seconds))
        right = [case for case, passed in zip(cases, passes) if passed]
        left, caught = TimeLeft(self.seconds), 0
        for code in wrong if right else ():
            caught += not (left.over or all(self._passes(code, item, right, left)))
        return len(right), caught
