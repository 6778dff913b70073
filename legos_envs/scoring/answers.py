r"""Finds the answer that a text states, and compares it with the true one.

    final_answer("... so it is \\boxed{1{,}234}.")   # '1{,}234'
    same_answer("$1,234.00", "1234")                # True

Numbers and words are compared here, exactly; formulas in `legos_envs.scoring.formulas`, in bounded time. Formulas that
are not polynomials or fractions of polynomials need math-verify (extra `tasks`); without it they are compared as text.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

from legos_envs.parsing import boxed
from legos_envs.scoring import formulas
from legos_envs.scoring.formulas import Budget as Budget  # noqa: PLC0414  an argument of functions here

MAX_CHARS = 400
"""Longer answers are compared only as text: no formula or number needs more characters."""
WAIT = 1.0
"""Maximum seconds that a step waits for math-verify to load."""

# Every pattern is linear: a repetition is never followed by something that it could match itself.
NUMBER = re.compile(
    r"(?:(?<![\w.)])[-\u2212])?\$?(?:[0-9]+(?:,[0-9]{3}(?![0-9]))*(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)(?:/[0-9]+)?%?"
)
"""A number inside a text, as in `$1,234.50`, `-3/4` or `12%`."""
LABEL = re.compile(r"\banswer[*\s]*:", re.IGNORECASE)
DECIMAL = re.compile(
    r"([+-]?)(?:([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([eE][+-]?[0-9]{1,3})?(%?)"
)
SCIENTIFIC = re.compile(
    r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*(?:\\times|\\cdot|[x*\u00d7\u00b7])\s*10\s*\^\s*(?:\{\s*([+-]?[0-9]{1,3})\s*\}|([+-]?[0-9]{1,3}))"
)
"""A number as in `5 \\times 10^{-5}`."""
INLINE = re.compile(r"\\\((?P<round>.*)\\\)\.?|\\\[(?P<square>.*)\\\]\.?", re.DOTALL)
"""A text that is one formula between LaTeX's delimiters."""
SHARP = re.compile(r"(?<=[A-Za-z])#(?![0-9A-Za-z#])")
"""The sharp sign of a language or a note, as in `C#`; not the sign of a heading."""
FRACTION = re.compile(r"([+-]?[0-9]+)\s*/\s*([0-9]+)(%?)")
MIXED = re.compile(r"([+-]?)([0-9]+)\s+([0-9]+)/([0-9]+)(%?)")
"""A whole number and a fraction, as in `1 1/2`."""
LATEX_FRACTION = re.compile(r"([+-]?)([0-9]*)\s*\\frac(?:\{(-?[0-9]+)\}\{(-?[0-9]+)\}|([0-9])([0-9]))(%?)")
WITH_UNIT = re.compile(r"([-+]?[0-9.][0-9.,/]*)[\s-]*([A-Za-z][A-Za-z./ ]+)")
NAMED = re.compile(r"[A-Za-z](?:_?[0-9A-Za-z])?\s*=\s*")
GROUPED = re.compile(r"(?<![0-9.,])[0-9]{1,3}(?: [0-9]{3})+(?![0-9/])|\\(?:frac|binom)\s*[0-9]\s+[0-9]")
"""Digits that belong together despite spaces between them: `12 500`, and LaTeX's `\\frac 1 2`."""
SPACE = re.compile(r"(?<=[0-9])(\s+)(?=[0-9])|\s+")
"""The group is a space between digits, whose removal would turn `1 1/2` into `11/2`."""
OPENING = "<>=+\N{RIGHTWARDS ARROW}\N{RIGHTWARDS DOUBLE ARROW}\N{THEREFORE} "
"""Symbols that merely precede words, as in `=> Paris`."""
POWER = re.compile(r"(?<=[0-9A-Za-z)}\]])(?:\*\*| \*\* )(?=[-({0-9A-Za-z])")
"""Two asterisks that are not Markdown, as in `x**2`."""
PRIMED = re.compile(r"(?<![A-Za-z'])[a-z]['!]+(?![A-Za-z])")
"""A derivative or a factorial, as in `y'` and `n!`; not in `It's` and `Yes!`."""
IN_BASE = re.compile(r"([0-9A-F]+)_(?:\{([0-9]+)\}|([0-9]))")
"""A number in another base, as in `1010_2`."""
CLOCK = re.compile(r"([0-9]{1,2})(?::([0-9]{2}))?(?::([0-9]{2}))?\s*([AaPp])\.?\s*[Mm]\.?")
"""A time of day, as in `5:30 p.m.`, which math-verify would read as a ratio."""
DATE = re.compile(r"([12][0-9]{3})-(0?[1-9]|1[0-2])(?:-(0?[1-9]|[12][0-9]|3[01]))?")
"""A day or a month, as in `2024-06`, which is not a subtraction."""
MOLECULE = re.compile(r"(?=.*[0-9])(?:[A-Z][a-z]?[0-9]*){2,}")
"""As in `H2O`, which math-verify would read as a product."""
RELATION = re.compile(r"(<=|>=|[<>\u2264\u2265]|\\(?:[lg]e(?:q|qslant)?|[lg]t)(?![A-Za-z]))(?!.*>$)\s*")
"""An inequality without a left side, as in `< 5`; not a vector `<1, 2>`."""
NOT = re.compile(r"\u00ac|(?<![\w}).,\s~])~(?=[A-Za-z(])|(?<=\s)~(?=[A-Za-z(])")
"""Negations, which LaTeX writes as a command; a tilde after a letter or a digit is a non-breaking space."""
COMMAND = re.compile(r"\\[A-Za-z]+")
WORD = re.compile(r"[A-Za-z]{3,}")
_FUNCTIONS = "sin cos tan cot sec csc log exp sqrt min max mod gcd lcm det inf pmod arcsin arccos arctan"
FUNCTIONS = frozenset(_FUNCTIONS.split())
_MULTIPLES = (
    "or and plus minus times divided to negative less more score pi hundred hundreds thousand thousands million "
    "millions billion billions trillion trillions dozen dozens tens half halves third thirds quarter quarters fourths "
    "fifths sixths sevenths eighths ninths tenths hundredths thousandths"
)
MULTIPLES = frozenset(_MULTIPLES.split())
"""Words after a number that change its value, as opposed to units."""
POWERS = frozenset(("squared", "cubed", "factorial"))
"""The same, but only right after the number: `5 meters squared` has a unit."""
DROPPED = "\\left", "\\right", "\\$", "$", "€", "£", "\\!", "\\,", "\\;", "\\:", "^\\circ", "^{\\circ}", "°", "`", "**"
REPLACED = {
    "{,}": ",",
    "\\%": "%",
    "\\dfrac": "\\frac",
    "\\tfrac": "\\frac",
    "\\ ": " ",
    "~": " ",
    "\N{MINUS SIGN}": "-",
    " percent": "%",
    " %": "%",
}
RELATIONS = {"\u2264": "<=", "\u2265": ">=", "le": "<=", "ge": ">=", "lt": "<", "gt": ">"}
"""Relations as LaTeX and Unicode write them."""
WRAPPERS = re.compile(r"\\(?:text|textbf|mathrm|mbox|mathbf|textit)\{([^{}]*)\}")


def final_answer(text: str) -> str | None:
    r"""The answer in a text: the last `\boxed{...}`, else the text after the last `####`, else after the last
    `Answer:`, else its last number; None if it has none of them. Takes linear time.
    """
    stated = stated_answer(text)
    if stated is not None:
        return stated
    last = None
    for last in NUMBER.finditer(text):  # noqa: B007
        pass
    return None if last is None else last.group()


def stated_answer(text: str) -> str | None:
    r"""The answer that a text marks as such, by `\boxed{...}`, `####` or `Answer:`; None if it marks none.

    Words after `####` with an `Answer:` below count as a heading.
    """
    result = boxed(text, escapes=True)
    if result:
        return result
    last = None
    for last in LABEL.finditer(text):  # noqa: B007
        pass
    _, mark, rest = text.rpartition("####")
    if mark and (result := _first_line(rest)):
        heading = last is not None and last.start() >= len(text) - len(rest) and WORD.search(result)
        if not heading:
            return result
    return (_first_line(text[last.end() :]) or None) if last else None


def _first_line(text: str) -> str:
    """The first nonempty line, without surrounding Markdown."""
    line = text.lstrip("*_ \t\r\n").partition("\n")[0]
    return line.strip("*_` \t\r").removesuffix(".").strip()


def same_number(given: str, truth: str) -> bool:
    """Whether both texts are numbers and equal: `$1,234.0` and `1234`, `3/4` and `0.75`, `50%` and `50` or `0.5`.

    An unevaluated sum, such as `2 + 3`, is not a number.
    """
    one, other = _number(_plain(given)), _number(_plain(truth))
    return one is not None and other is not None and _equal(one, other)


def same_answer(given: str | None, truth: str, budget: Budget | None = None, *, known: bool = True) -> bool:
    """Whether an answer is the true one.

    Compared in this order: as numbers, ignoring a unit that only one side names (`18 dollars` is `18`); as text,
    ignoring case, spaces and articles; as formulas, by math-verify if values do not settle it and it is installed. If
    the true answer is a number, only a number matches it: `2 + 3` is not `5`.

    Thread-safe. A formula on which math-verify spends more than 0.4 seconds counts as wrong. If it is not loaded yet
    (`prepare`), a formula that needs it counts as wrong after half a second.

    Args:
        given: the given answer; None is never right.
        truth: the true answer.
        budget: the episode's budget, if it compares more than once.
        known: whether the truth comes from data, as opposed to another player.

    Raises:
        RuntimeError: math-verify is installed but cannot be started.
    """
    found = settled(given, truth)
    if found is not None or given is None:
        return bool(found)
    return formulas.same(_side(given, truth), _plain(truth), budget or Budget(), known=known)


def settled(given: str | None, truth: str) -> bool | None:
    """Like `same_answer`, but None if only a comparison of formulas is left: math-verify's processes are not asked."""
    if given is None or not given.strip():
        return False
    if len(given) > MAX_CHARS or len(truth) > MAX_CHARS:
        return given.strip() == truth.strip()
    one, other = _side(given, truth), _plain(truth)
    if _words(one) == _words(other):
        return True
    times = [CLOCK.fullmatch(side) for side in (one, other)]
    if times[0] and times[1]:
        read = [(*(int(part or 0) for part in time.groups()[:3]), time[4].casefold()) for time in times if time]
        return read[0] == read[1]
    if date := DATE.fullmatch(other):
        same = DATE.fullmatch(one)
        return same is not None and [int(n or 0) for n in same.groups()] == [int(n or 0) for n in date.groups()]
    opening, wanted = RELATION.match(one), RELATION.match(other)
    if (opening or wanted) and _formula(one) and _formula(other):
        if opening is None or wanted is None or _relation(opening) != _relation(wanted):
            return False
        return settled(one[opening.end() :], other[wanted.end() :])
    quantity = _quantity(other)
    if quantity is not None:
        result = _quantity(one)
        return result is not None and _equal(result[0], quantity[0]) and _units_agree(result[1], quantity[1])
    if not (_formula(one) and _formula(other)):
        return False
    # Aspects that math-verify ignores: primes, the base of a number, and that letters may stand for elements.
    if MOLECULE.fullmatch(one) and MOLECULE.fullmatch(other):
        return False
    if "=" not in one + other and one[:1] != "'" and one.count("'") != other.count("'"):
        return False
    bases = [IN_BASE.fullmatch(side) for side in (one, other)]
    if bases[0] and bases[1]:
        written = [(match[1].lstrip("0"), match[2] or match[3]) for match in bases if match]
        return written[0] == written[1]
    return formulas.by_value(one, other)


def agree(one: str, other: str, budget: Budget | None) -> bool | None:
    """Whether two answers, neither of which is known to be right, are equal; their order does not matter.

    Without a budget, math-verify's processes are not asked: returns None if only a comparison of formulas is left.
    """
    if _quantity(_plain(other)) is None and (_quantity(_plain(one)) is not None or one < other):
        one, other = other, one
    return settled(one, other) if budget is None else same_answer(one, other, budget, known=False)


def prepare(*truths: str, seconds: float = formulas.START) -> None:
    """Loads math-verify if it is installed and a true answer may need it; without truths, unconditionally.

    Call it before the first action of an episode, so that no step has to wait. In mid-episode, call it with
    `seconds=WAIT`.
    """
    if not truths or any(len(t) <= MAX_CHARS and _formula(_plain(t)) and not _quantity(_plain(t)) for t in truths):
        formulas.prepare(seconds)


# --- reading ---------------------------------------------------------------------------------------------------------


def _side(given: str, truth: str) -> str:
    """The answer in the form that is compared: `x = 5` is 5, unless the truth also has a name."""
    one = _plain(given)
    return one if "=" in _plain(truth) or not (match := NAMED.match(one)) else one[match.end() :]


def _plain(text: str) -> str:
    r"""The text without decoration: dollar signs, spacing commands, `\text{}` around words, a full stop at the end."""
    if len(text) > MAX_CHARS:
        return ""
    if match := INLINE.fullmatch(text.strip()):
        text = match["round"] if match["square"] is None else match["square"]
    if not text.lstrip().startswith("**"):
        text = POWER.sub("^", text)
    text = NOT.sub(r"\\neg ", text)
    for old in DROPPED:
        text = text.replace(old, "")
    for old, new in REPLACED.items():
        text = text.replace(old, new)
    return WRAPPERS.sub(r" \1 ", text).strip().removesuffix(".").strip()


def _relation(match: re.Match[str]) -> str:
    sign = match[1].lstrip("\\")[:2]
    return RELATIONS.get(sign, sign)


def _number(text: str) -> tuple[Fraction, bool] | None:
    """The value of a text that is a number, and whether it has a percent sign."""
    text = text.replace("- ", "-", 1) if text.startswith("- ") else text
    if match := SCIENTIFIC.fullmatch(text):
        return Fraction(f"{match[1]}e{match[2] or match[3]}"), False
    if match := DECIMAL.fullmatch(text):
        sign, whole, part, bare, exponent, percent = match.groups()
        digits = f"{(whole or '0').replace(',', '')}.{part or bare or '0'}{exponent or ''}"
        return Fraction(f"{sign}{digits}"), bool(percent)
    if match := FRACTION.fullmatch(text):
        top, bottom, percent = match.groups()
        return (Fraction(int(top), int(bottom)), bool(percent)) if int(bottom) else None
    if match := MIXED.fullmatch(text):
        sign, whole, top, bottom, percent = match.groups()
        if int(top) >= int(bottom):
            return None
        value = int(whole) + Fraction(int(top), int(bottom))
        return (-value if sign == "-" else value), bool(percent)
    if match := LATEX_FRACTION.fullmatch(text):
        sign, whole, top, bottom, short_top, short_bottom, percent = match.groups()
        over, under = int(top or short_top), int(bottom or short_bottom)
        if not under:
            return None
        value = int(whole or 0) + Fraction(over, under)
        return (-value if sign == "-" else value), bool(percent)
    return None


def _equal(one: tuple[Fraction, bool], other: tuple[Fraction, bool]) -> bool:
    """Whether values are equal; if only one has a percent sign, `50%` equals both 50 (ignoring the unit) and 0.5."""
    (a, a_percent), (b, b_percent) = one, other
    if a_percent == b_percent:
        return a == b
    percent, number = (a, b) if a_percent else (b, a)
    return number in (percent, percent / 100)


def _quantity(text: str) -> tuple[tuple[Fraction, bool], str] | None:
    """A number and its unit, which may be empty."""
    value = _number(text)
    if value is not None:
        return value, ""
    match = WITH_UNIT.fullmatch(text)
    if match is None:
        return None
    unit = match.group(2).casefold().strip(" .")
    words = unit.replace("/", " ").replace(".", " ").split()
    value = _number(match.group(1))
    if value is None or not words or len(words[0]) < 2 or words[0] in POWERS or (MULTIPLES | FUNCTIONS) & {*words}:
        return None
    return value, " ".join(words)


def _units_agree(one: str, other: str) -> bool:
    return not one or not other or one.rstrip("s") == other.rstrip("s")


def _words(text: str) -> str:
    """The form compared as text. For formulas: everything but spaces that separate no digits. For words: letters,
    digits and symbols of mathematics and logic, without articles.
    """
    lettered = len(text) == 3 and text[0] == "(" and text[2] == ")"  # (B), as in a multiple choice
    if not lettered and ("\\" in text or _formula(text)):
        return SPACE.sub(lambda space: " " if space.group(1) else "", GROUPED.sub(_joined, text))
    words = "".join(map(_told, SHARP.sub(" sharp", text).casefold().lstrip(OPENING))).split()
    kept = [_bare(word) for word in words if word not in ("the", "a", "an")] if len(words) > 1 else words
    return _bare(" ".join(kept)) or text


@lru_cache(1 << 12)
def _told(character: str) -> str:
    """A character as used to compare words: symbols of mathematics and logic become words, others are dropped."""
    if character.isalnum() or character in ".,-:%":
        return character
    kind = unicodedata.category(character)
    if kind in ("Mn", "Mc") and not "\ufe00" <= character <= "\ufe0f":  # vowels of Hindi; variation marks mean nothing
        return character
    return f" {character} " if kind == "Sm" and character not in "|~" else " "


def _bare(word: str) -> str:
    """A word without surrounding stops and commas; the point of `.5` is kept."""
    word = word.rstrip(".,")
    bare = word.lstrip(".,")
    return f".{bare}" if bare[:1].isdigit() and word.endswith(f".{bare}") else bare


def _joined(match: re.Match[str]) -> str:
    return "".join(match.group().split())


def _formula(text: str) -> bool:
    """Whether the text is mathematics, not words, which math-verify would parse as products of their letters."""
    bare = COMMAND.sub(" ", text)
    prose = any(word.casefold() not in FUNCTIONS for word in WORD.findall(bare))
    return not prose and (
        bare != text or PRIMED.search(text) is not None or any(c.isdigit() or c in "^_=+-*/<>|(){}[]" for c in bare)
    )
