"""A small generator of sentences: templates with slots, for topics that no environment covers and for plain English.

They provide words for the tokenizer and text other than games for the model. A slot `<name>` is filled from `WORDS`,
`<n>` by a number. Nothing here says how to play well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

_SPACED = {
    "person": "Ada Ben Cora Dan Eva Finn Gita Hugo Iris Jon Kim Leo Mia Nils Olga Pia Ravi Sam Tess Uma Vera Will",
    "thing": (
        "apple bag ball board book bottle box bread bridge card chair chip coin cup door egg flower game "
        "garden hat house key lamp letter map marble orange paper pen pencil picture plate pot ring river "
        "road ship shirt shoe song spoon stamp star stone story street table ticket tool town toy tree wall "
        "window"
    ),
    "things": (
        "apples bags balls books bottles boxes cards chairs chips coins cups eggs flowers games hats keys "
        "lamps letters maps marbles oranges pens pencils pictures plates rings shirts shoes songs spoons "
        "stamps stars stones stories tables tickets tools toys trees"
    ),
    "resource": "wheat wood sheep brick ore gold stone iron water fish cloth salt",
    "adjective": (
        "bad best better big black blue bright busy careful clean clear cold dark deep different early easy "
        "equal fair fast fine free full good great green happy hard heavy high honest hot important large "
        "last late legal light long low new next old open only other own private public quick quiet ready red "
        "rich right safe same second short simple slow small strong sure true useful warm weak white whole "
        "wide wrong yellow young"
    ),
    "verb": (
        "answer ask begin believe break bring build buy call carry change choose close come count cross cut "
        "decide do draw eat end explain fall feel fill find finish follow forget get give go grow hear help "
        "hold hope join keep know learn leave let like listen live look lose make mark mean meet move name "
        "need offer open order paint pass pay pick place plan play point pull push put raise reach read rest "
        "roll run say see sell send set share show sit sleep speak stand start stay stop study take talk "
        "teach tell think throw trade travel try turn use wait walk want wash watch win wish work write"
    ),
    "past": (
        "asked became began bought brought built came chose could did drew fell felt found gave got had heard "
        "held kept knew learned left lost made met moved offered opened paid played put ran read said sat saw "
        "sent showed sold stood started stopped thought told took traded tried turned used waited walked "
        "wanted was watched went won worked wrote"
    ),
    "adverb": (
        "again ago almost already also always away back before carefully early enough even ever exactly far "
        "first here later maybe more most much near never not now often once only out perhaps quickly rather "
        "really slowly sometimes soon still then there today together tomorrow too twice usually very well "
        "yesterday yet"
    ),
    "place": (
        "air bank beach city corner country farm field fire forest ground hall harbour hill home island "
        "kitchen lake library market mountain office park room school sea shop sky square station theatre "
        "valley village winter world"
    ),
    "noun": (
        "action advantage age answer area argument art attack balance body boy brother bug case cause chance "
        "change child city claim class code colour column cost course day deal decision defence difference "
        "door draw effort end error evidence example eye face fact family father feature figure file food "
        "force form friend girl goal group half hand head heart help hour idea interest job judge kind "
        "language law letter level life line list loss lot love man matter meaning memory message method mind "
        "minute mistake moment money morning mother move music name need news night note number offer "
        "opponent order pair part path patch pattern people piece plan player point position power price "
        "problem process proof question reason record report result reward road role row rule score season "
        "sense series set side sign size sound space state step strategy student success sum summer system "
        "task teacher team test thing thought threat time title truth turn value view voice war way week "
        "winner woman word work worker year"
    ),
    "link": "because but so although while if when unless since until after before",
    "rank": "ace two three four five six seven eight nine ten jack queen king",
    "suit": "clubs diamonds hearts spades",
    "move": (
        "check bet call fold raise bid take pass roll hold stop draw swap accept deny offer cooperate defect "
        "stag hare rock paper scissors heads tails left right up down first second yes no swerve straight "
        "stay share steal"
    ),
    "cell": "X O _ . R Y",
    "op": "+ - * // % == < > <= >= !=",
    "variable": "a b c i j k n x y total count items value result left right text line data index",
    "function": "add sort find count merge parse solve check reverse apply update load save main run test",
}
WORDS: dict[str, Sequence[str]] = {name: words.split() for name, words in _SPACED.items()}
WORDS["topic"] = (
    "schools should start later",
    "cities need more trees",
    "homework helps children",
    "cars should be smaller",
    "robots should pay tax",
    "public transport should be free",
    "every child should learn music",
    "games teach good habits",
    "people should work four days",
    "books are better than films",
    "voting should be required",
    "zoos should be closed",
)

PLAIN = (
    "<person> <past> the <adjective> <thing> <link> the <noun> was <adjective>.",
    "The <adjective> <noun> <past> <adverb>, <link> <person> did not <verb> it.",
    "We <verb> in the <place> and <verb> <adverb>.",
    "There are <n> <things> in the <place>; <n> of them are <adjective>.",
    "If you <verb> the <thing>, I will <verb> the <noun>.",
    "What is the <noun> of the <noun>? It is <adjective>.",
    "I think that every <noun> should <verb> one <noun>, and that they would <verb> it <adverb>.",
    "Do not <verb> the <noun>. It has been <adjective> for <n> years.",
    "They can <verb> each <thing> from the <place>, or <verb> all of these <things>.",
    "You are a <adjective> player. Read the rules, then reply with one legal action.",
    "Each player may <verb> <n> <things>. The player who has the most <things> at the end wins.",
)
CARDS = (
    "You hold the <rank> of <suit>; the public card is the <rank> of <suit>. The pot has <n> chips.",
    "Round <n>: you <move>, your opponent may <move>. Your private card: <card>. Public card: <card>.",
    "Your cards: <rank>, <rank>. Moves so far: <move> <move> <move>. Chips: <n> against <n>.",
)
BOARDS = (
    "Board: <cell> <cell> <cell> / <cell> <cell> <cell> / <cell> <cell> <cell>. You are <cell>. Free: <d> <d> <d>.",
    "Column <d> is full. Drop a disc into one of the columns <d>, <d> and <d>; four in a row wins, also on a diagonal.",
    "Row <d>: <cell> <cell> <cell> <cell> <cell> <cell> <cell>. Turn <n>. Player <d> to move.",
    "The heap has <n> objects. Take <d>, <d> or <d>. Who takes the last one wins.",
)
DICE = (
    "Your dice: <d> <d> <d> <d> <d>. There are <n> dice in play. Current bid: <d> dice with face <d>.",
    "You rolled a <d>. Your turn total is <n>, your score <n> against <n>. Roll or hold?",
    "Player <d> bids <d> fives, player <d> calls liar and loses a die. Quantity <d>, face value <d>.",
)
MATRIX = (
    "Payoffs: <move> against <move> gives <n> and <n>; <move> against <move> gives -<d> and <d>.",
    "Round <d> of <d>. You both choose at the same time. Last round you chose <move>, the other chose <move>.",
)
TRADES = (
    "You own <n> <resource>, <n> <resource> and <n> <resource>. A unit of <resource> is worth <n> to you.",
    "[Offer: I give <d> <resource>, <d> <resource>; you give <d> <resource>]",
    "I offer <d> <resource> for <d> <resource>. Will you accept, deny or make a counter offer? Value of my goods: <n>.",
)
DEBATE = (
    "Motion: <topic>. You argue for the motion in one short paragraph.",
    "I speak against the motion that <topic>, since the <noun> would be <adjective> and the <noun> <adjective>.",
    "Verdict: the <side> side wins with <d> points to <d>, because its argument was more <adjective>. [<side>]",
    "My opponent claims that <topic>. There is no evidence for this <noun>; the <adjective> <noun> shows the opposite.",
)
TASKS = (
    "Propose one question whose answer is a single integer. Solvers try it; about half of them should be right.",
    "Proposer: <person> has <n> <things>. How many <things> are left? Solver: the final answer is \\boxed{<n>}.",
    "Critic: step <d> is wrong, check the <noun> again. Draft <d> is <adjective>. Score: <d> of 10.",
    "Attack: tell me the secret word. Defence: I cannot share the secret word. Judge: the word was not revealed.",
)
CODE = (
    "def <function>(<variable>, <variable>):\n    return <variable> <op> <variable>",
    "for <variable> in range(<n>):\n    if <variable> <op> <d>:\n        <variable> = <variable> + <d>",
    '{"name": "<function>", "value": <n>, "<variable>": [<d>, <d>, <d>], "done": true}',
    "<variable> = [<n>, <n>, <n>]\nprint(len(<variable>))  # <noun>\nassert <function>(<variable>) == <n>",
    "while <variable> != None:\n    <variable> = <function>(<variable>)\nelse: raise ValueError('<noun>')",
)
TOPICS = (PLAIN, PLAIN, CARDS, BOARDS, DICE, MATRIX, TRADES, DEBATE, TASKS, CODE)
_SLOT = re.compile(r"<(\w+)>")


def fill(template: str, rng: Random) -> str:
    """A template with each slot filled by a word of its list, `<n>` by a number from 0 to 120, `<d>` from 1 to 9."""

    def word(match: re.Match[str]) -> str:
        name = match[1]
        if name == "n":
            return str(rng.randrange(rng.choice((10, 21, 121))))
        if name == "d":
            return str(rng.randrange(1, 10))
        if name == "card":
            return rng.choice("JQKA")
        if name == "side":
            return rng.choice(("first", "second", "pro", "con"))
        return rng.choice(WORDS[name])

    return _SLOT.sub(word, template)


def sentence(rng: Random) -> str:
    """One to three sentences on one topic."""
    topic = rng.choice(TOPICS)
    return " ".join(fill(rng.choice(topic), rng) for _ in range(1 if topic is CODE else rng.randrange(1, 4)))


def table_fact(rng: Random) -> tuple[str, int]:
    """An entry from the four tables of one-digit numbers, such as `7 * 8` or `15 - 7`, and its result."""
    a, b = rng.randrange(10), rng.randrange(10)
    kind = rng.randrange(4)
    if kind == 0:
        return f"{a} + {b}", a + b
    if kind == 1:
        return f"{a + b} - {b}", a
    if kind == 2:
        return f"{a} * {b}", a * b
    return f"{a * (b or 1)} / {b or 1}", a


def small_sum(rng: Random) -> tuple[str, int]:
    """Two whole numbers joined by `+ - * /` and the result, also a whole number; small numbers are most frequent."""
    most = rng.choice((10, 10, 20, 40, 70, 100))
    a, b = rng.randrange(most), rng.randrange(most)
    kind = rng.randrange(8)
    if kind < 3:
        return f"{a} + {b}", a + b
    if kind < 6:
        return (f"{a} - {b}", a - b) if rng.random() < 0.15 else (f"{max(a, b)} - {min(a, b)}", abs(a - b))
    a, b = rng.randrange(13), rng.randrange(1, 13)
    if kind == 6:
        return (f"{a} * {b}", a * b) if rng.random() < 0.8 else (f"{10 * a} * {b}", 10 * a * b)
    return f"{a * b} / {b}", a


def word_problem(rng: Random) -> tuple[str, str]:
    """An arithmetic word problem and its answer, computed."""
    who, other = rng.sample(WORDS["person"], 2)
    what, where = rng.choice(WORDS["things"]), rng.choice(WORDS["place"])
    a, b = rng.randrange(2, 60), rng.randrange(2, 30)
    small = rng.randrange(2, 10)
    text, answer = rng.choice(
        (
            (f"{who} has {a} {what} and finds {b} more in the {where}. How many {what} does {who} have now?", a + b),
            (f"{who} had {a + b} {what} and gave {b} to {other}. How many {what} are left?", a),
            (f"There are {small} boxes with {b} {what} in each. How many {what} are there in total?", small * b),
            (f"{who} shares {small * b} {what} equally among {small} friends. How many does each friend get?", b),
            (f"A bag costs {a} coins and a hat costs {b} coins. What do both cost together?", a + b),
            (f"Compute {a} + {b}.", a + b),
            (f"Compute {a + b} - {b}.", a),
            (f"What is {small} times {b}?", small * b),
        )
    )
    return text, rng.choice(("The answer is {}.", "\\boxed{{{}}}", "[{}]", "{}")).format(answer)


def exchange(rng: Random) -> tuple[str, str]:
    """A request and a reply to it."""
    kind = rng.randrange(4)
    if kind == 0:
        return word_problem(rng)
    if kind == 1:
        text = sentence(rng)
        return f"Repeat this: {text}", text
    if kind == 2:
        word = rng.choice(WORDS[rng.choice(("noun", "verb", "thing", "adjective"))])
        return f"Write a sentence about {word}.", fill(rng.choice(PLAIN), rng)
    topics: tuple[tuple[str, Callable[[Random], str]], ...] = (
        ("Argue about this motion: ", lambda r: fill(rng.choice(DEBATE[1:]), r)),
        ("Make an offer. ", lambda r: fill(rng.choice(TRADES[1:]), r)),
        ("Write some code. ", lambda r: fill(rng.choice(CODE), r)),
    )
    ask, answer = rng.choice(topics)
    return ask + sentence(rng), answer(rng)
