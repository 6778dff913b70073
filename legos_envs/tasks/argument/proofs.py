"""Proofs in propositional logic: formulas, a checker of numbered steps, a small prover, random theorems.

A proof is a list of lines such as `4. q (1,3 MP)`: number, formula, the lines it follows from and the rule. There are
no assumptions to discharge, so every line follows from the premises, and a proof that `check` accepts shows that its
goal is true whenever the premises are. Everything takes time linear in the text, and formulas are bounded in size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

Formula = tuple
"""`("p",)`, `("~", a)`, `("&", a, b)`, `("|", a, b)` or `("->", a, b)`."""
MAX_FORMULA = 120
"""Maximum number of characters of a written formula."""
MAX_LINES = 40
LETTERS = "pqrstuvw"
_TOKEN = re.compile(r"\s*(->|[~&|()]|[a-z])")
_SPELLED = str.maketrans({"¬": "~", "∧": "&", "∨": "|", "→": " -> ", "!": "~"})
_STRENGTH = {"->": 1, "|": 2, "&": 3, "~": 4}
_JOINING = re.compile(r"\b([0-9]+) and (?=[0-9])", re.IGNORECASE)
"""An "and" between two numbers, as opposed to the rule of that name."""
_LINE = re.compile(r"\s*(\d{1,3})\s*[.):]\s*(.*)")


class BadFormula(ValueError):
    """The text is not a formula; the message says why."""


def read(text: str) -> Formula:
    """The formula in a text. `~` binds tightest, then `&`, `|`, `->`; `&` and `|` group to the left, `->` to the right.

    Raises:
        BadFormula: the text is too long or not a formula.
    """
    if len(text) > MAX_FORMULA:
        raise BadFormula(f"a formula has at most {MAX_FORMULA} characters; this has {len(text)}")
    text, at = text.translate(_SPELLED).rstrip(), 0
    values: list[Formula] = []
    waiting: list[str] = []
    value_next = True

    def reduce(least: int) -> None:
        while waiting and waiting[-1] != "(" and _STRENGTH[waiting[-1]] >= least:
            joint = waiting.pop()
            right = values.pop()
            values.append((joint, right) if joint == "~" else (joint, values.pop(), right))

    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadFormula(f"{text[at:].strip()[:1]!r} is not a letter, ~, &, |, -> or parenthesis")
        sign, at = match.group(1), match.end()
        if value_next:
            if sign.isalpha():
                values.append((sign,))
                value_next = False
            elif sign in "(~":
                waiting.append(sign)
            else:
                raise BadFormula(f"a letter is missing before {sign!r}")
        elif sign == ")":
            reduce(1)
            if not waiting:
                raise BadFormula("a ')' closes nothing")
            waiting.pop()
        elif sign in ("&", "|", "->"):
            reduce(_STRENGTH[sign] + (sign == "->"))
            waiting.append(sign)
            value_next = True
        else:
            raise BadFormula(f"a sign is missing before {sign!r}")
    if value_next:
        raise BadFormula("it ends where a letter should stand")
    reduce(1)
    if waiting:
        raise BadFormula("a '(' is not closed")
    return values[0]


def write(formula: Formula, outer: int = 0) -> str:
    """A formula as text, with parentheses around every inner binary one: `read(write(f)) == f`."""
    if len(formula) == 1:
        return formula[0]
    if formula[0] == "~":
        return f"~{write(formula[1], 1)}"
    text = f"{write(formula[1], 1)} {formula[0]} {write(formula[2], 1)}"
    return f"({text})" if outer else text


# --- rules -----------------------------------------------------------------------------------------------------------


def _mt(made: Formula, a: Formula, b: Formula) -> bool:
    return len(made) == 2 and a[0] == "->" and made == ("~", a[1]) and b == ("~", a[2])


def _hs(made: Formula, a: Formula, b: Formula) -> bool:
    return a[0] == b[0] == "->" and a[2] == b[1] and made == ("->", a[1], b[2])


def _ds(made: Formula, a: Formula, b: Formula) -> bool:
    return a[0] == "|" and ((b == ("~", a[1]) and made == a[2]) or (b == ("~", a[2]) and made == a[1]))


def _dn(made: Formula, a: Formula) -> bool:
    return a == ("~", ("~", made)) or made == ("~", ("~", a))


class Rule(NamedTuple):
    """A rule of inference; `allows(made, *used)` says whether `made` follows; if a rule uses two lines, both orders are
    tried.
    """

    lines: int
    allows: Callable[..., bool]
    words: str
    name: str


RULES: Mapping[str, Rule] = {
    "MP": Rule(2, lambda made, a, b: b == ("->", a, made), "from a and a -> b: b", "modus ponens"),
    "MT": Rule(2, _mt, "from a -> b and ~b: ~a", "modus tollens"),
    "HS": Rule(2, _hs, "from a -> b and b -> c: a -> c", "hypothetical syllogism"),
    "DS": Rule(2, _ds, "from a | b and ~a: b; from a | b and ~b: a", "disjunctive syllogism"),
    "AND": Rule(2, lambda made, a, b: made == ("&", a, b), "from a and b: a & b", "conjunction"),
    "SIMP": Rule(1, lambda made, a: a[0] == "&" and made in a[1:], "from a & b: a; b", "simplification"),
    "ADD": Rule(1, lambda made, a: made[0] == "|" and a in made[1:], "from a: a | b; b | a", "addition"),
    "DN": Rule(1, _dn, "from ~~a: a; from a: ~~a", "double negation"),
}
_NAMES = {key.casefold(): key for key in RULES} | {rule.name: key for key, rule in RULES.items()}


class Theorem(NamedTuple):
    """Premises, which are lines 1 to n of every proof, and the goal."""

    premises: tuple[Formula, ...]
    goal: Formula

    @property
    def text(self) -> str:
        """The numbered premises, one per line."""
        return "\n".join(f"{i}. {write(premise)} (premise)" for i, premise in enumerate(self.premises, 1))

    @property
    def letters(self) -> list[str]:
        """The letters that occur, sorted."""
        return sorted(set().union(*map(_letters, (*self.premises, self.goal))))

    @property
    def valid(self) -> bool:
        """Whether the goal is true whenever all premises are, determined by a truth table of 2^letters rows."""
        letters = self.letters
        for values in product((False, True), repeat=len(letters)):
            row = dict(zip(letters, values))
            if all(truth(premise, row) for premise in self.premises) and not truth(self.goal, row):
                return False
        return True

    @property
    def consistent(self) -> bool:
        """Whether the premises can all be true."""
        return not Theorem(self.premises, ("&", ("p",), ("~", ("p",)))).valid


def truth(formula: Formula, row: Mapping[str, bool]) -> bool:
    """The truth value of a formula, given one for each letter."""
    if len(formula) == 1:
        return row[formula[0]]
    if formula[0] == "~":
        return not truth(formula[1], row)
    a, b = truth(formula[1], row), truth(formula[2], row)
    return (a and b) if formula[0] == "&" else (a or b) if formula[0] == "|" else (not a or b)


def _letters(formula: Formula) -> set[str]:
    return {formula[0]} if len(formula) == 1 else set().union(*map(_letters, formula[1:]))


# --- checking --------------------------------------------------------------------------------------------------------


def steps(text: str) -> list[str]:
    """The numbered lines of a text, stripped; all others are prose and not part of a proof."""
    return [line.strip() for line in text.splitlines() if _LINE.match(line)]


class Checked(NamedTuple):
    """Whether a proof is valid, and what is wrong with it if not."""

    valid: bool
    reason: str = ""


def check(theorem: Theorem, text: str) -> Checked:
    """Checks every numbered line of a proof, and that the last one is the goal.

    The premises may be repeated or omitted; numbering continues after them.
    """
    known: list[Formula] = list(theorem.premises)
    lines = steps(text)
    if len(lines) > MAX_LINES:
        return Checked(False, f"a proof has at most {MAX_LINES} lines; this has {len(lines)}")
    premises = len(known)
    for line in lines:
        number, formula, reason = _read_line(line)
        if isinstance(formula, str):
            return Checked(False, f"line {number}: {formula}")
        if number <= premises and len(known) == premises:  # a repeated premise
            if number == 0 or known[number - 1] != formula:
                return Checked(False, f"line {number} is not that premise")
            continue
        if number != len(known) + 1:
            return Checked(False, f"line {number} comes after line {len(known)}")
        wrong = _why_not(formula, reason, known)
        if wrong:
            return Checked(False, f"line {number}: {wrong}")
        known.append(formula)
    if len(known) == premises:
        return Checked(False, "there is no step")
    if known[-1] != theorem.goal:
        return Checked(False, f"the last line is {write(known[-1])}, not the goal {write(theorem.goal)}")
    return Checked(True)


def _read_line(line: str) -> tuple[int, Formula | str, str]:
    """Number, formula (or what is wrong with it) and reason."""
    match = _LINE.match(line)
    assert match is not None
    head, opened, reason = match.group(2).rstrip(" .;").rpartition("(")
    if not opened or not reason.endswith(")"):
        return int(match.group(1)), "no reason in parentheses ends it", ""
    try:
        return int(match.group(1)), read(head), reason[:-1]
    except BadFormula as error:
        return int(match.group(1)), f"{error}", ""


def _why_not(made: Formula, reason: str, known: Sequence[Formula]) -> str:
    """Why a formula does not follow for the given reason; empty if it does."""
    words = reason.replace(",", " ").replace(":", " ").split()
    cited = [int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 4]
    name = " ".join(word for word in _JOINING.sub(r"\1 ", " ".join(words)).split() if not word.isdigit()).casefold()
    rule = RULES.get(_NAMES.get(name, ""))
    if rule is None:
        return f"{name[:40]!r} is not a rule"
    if len(cited) != rule.lines or not all(1 <= number <= len(known) for number in cited):
        return f"the rule takes {rule.lines} earlier line{'s' * (rule.lines > 1)}"
    used = [known[number - 1] for number in cited]
    if rule.allows(made, *used) or rule.allows(made, *used[::-1]):
        return ""
    return f"{write(made)} does not follow by {name.upper()[:40]}"


# --- proving and making ----------------------------------------------------------------------------------------------


@lru_cache(1024)
def prove(theorem: Theorem) -> str | None:
    """A proof, found by applying all rules to the known formulas, round by round, within the theorem's subformulas.

    None if the goal is a premise, or is not reached in this way (it may still follow).
    """
    if theorem.goal in theorem.premises:
        return None
    universe = [f for top in (*theorem.premises, theorem.goal) for f in _parts(top)]
    known = list(theorem.premises)
    why: dict[Formula, tuple[tuple[Formula, ...], str]] = {}
    while theorem.goal not in known:
        fresh = []
        for made in dict.fromkeys(universe):
            result = None if made in known else _reason_for(made, known)
            if result:
                why[made] = result
                fresh.append(made)
        if not fresh:
            return None
        known += fresh
    return _spelled(theorem, why)


def _reason_for(made: Formula, known: Sequence[Formula]) -> tuple[tuple[Formula, ...], str] | None:
    for key, rule in RULES.items():
        for used in product(known, repeat=rule.lines):
            if rule.allows(made, *used):
                return used, key
    return None


def _spelled(theorem: Theorem, why: Mapping[Formula, tuple[tuple[Formula, ...], str]]) -> str:
    """The steps that the goal needs, each after those it uses."""
    number = {formula: i for i, formula in reversed(list(enumerate(theorem.premises, 1)))}
    lines: list[str] = []

    def add(made: Formula) -> None:
        if made in number:
            return
        used, rule = why[made]
        for formula in used:
            add(formula)
        number[made] = len(theorem.premises) + len(lines) + 1
        lines.append(f"{number[made]}. {write(made)} ({','.join(str(number[f]) for f in used)} {rule})")

    add(theorem.goal)
    return "\n".join(lines)


def _parts(formula: Formula) -> list[Formula]:
    return [formula, *(part for inner in formula[1:] if isinstance(inner, tuple) for part in _parts(inner))]


def make(rng: np.random.Generator, length: int) -> Theorem:
    """A theorem whose proof by `prove` takes `length` steps (1 to 8), with premises that do not contradict each other.

    It is built backwards: a formula to be shown is replaced by one or two formulas from which a rule derives it.
    """
    for _ in range(1000):
        names = [LETTERS[i] for i in rng.permutation(len(LETTERS))]
        goal: Formula = (names.pop(),) if rng.random() < 0.7 or length < 2 else ("&", (names.pop(),), (names.pop(),))
        leaves = [goal]
        for _ in range(length):
            leaves += _expand(leaves.pop(int(rng.integers(len(leaves)))), names, rng)
        order = rng.permutation(len(leaves))
        theorem = Theorem(tuple([leaves[i] for i in order]), goal)
        sizes = [len(write(leaf)) for leaf in leaves]
        if len(set(leaves)) < len(leaves) or max(sizes) > 40 or goal in leaves or not theorem.consistent:
            continue
        proof = prove(theorem)
        if proof is not None and proof.count("\n") + 1 == length:
            return theorem
    raise RuntimeError(f"no theorem of {length} steps was found in 1000 attempts")


def _expand(goal: Formula, names: list[str], rng: np.random.Generator) -> list[Formula]:
    """Formulas from which one rule derives the goal; they use new letters as long as there are any left."""

    def new() -> Formula:
        letter: Formula = (names.pop() if names else LETTERS[int(rng.integers(len(LETTERS)))],)
        return ("~", letter) if rng.random() < 0.25 else letter

    if goal[0] == "&" and rng.random() < 0.8:
        return [goal[1], goal[2]]
    a = new()
    ways: list[list[Formula]] = [[a, ("->", a, goal)], [("|", a, goal), ("~", a)], [("&", goal, a)]]
    if goal[0] == "~":
        ways.append([("->", goal[1], a), ("~", a)])
    if goal[0] == "->":
        ways += [[("->", goal[1], a), ("->", a, goal[2])]] * 2
    if goal[0] == "|":
        ways.append([goal[1 + int(rng.integers(2))]])
    return ways[int(rng.integers(len(ways)))]
