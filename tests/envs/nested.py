"""Two environments for the tests of the core: a debate, and a tournament of debates that uses it as a function."""

from legos_envs import Forfeit, Seat, TextEnv


class Debate(TextEnv):
    """Pro and con speak in turn; the judge is asked twice, the second time anew."""

    name = "Debate-v0"
    zero_sum = True
    seats = {"pro_0": Seat("pro"), "con_0": Seat("con"), "judge_0": Seat("judge", trainable=False)}
    reset_options = {"topic": "what is debated"}

    def play(self, table, topic=None, rounds=2):
        topic = topic or self.options.get("topic") or str(table.rng.choice(["tea", "coffee"]))
        table.tell(self.seats, f"Topic: {topic}.")
        for _ in range(rounds):
            for side, other in (("pro_0", "con_0"), ("con_0", "pro_0")):
                said = yield from table.ask(side, "Speak.")
                table.tell((other, "judge_0"), f"{side} said: {said}")
        first = yield from table.ask("judge_0", "Who won?", legal=("pro", "con"))
        second = yield from table.ask("judge_0", "Who won? They were " + topic, legal=("pro", "con"), fresh=True)
        won = (first == "pro") + (second == "pro") - 1
        table.reward("pro_0", won)
        table.reward("con_0", -won)
        table.note(verdicts=[first, second])
        return won


class Tournament(TextEnv):
    """Every pair of authors debates at its own table; an author whose debater forfeits loses that match."""

    name = "Tournament-v0"
    zero_sum = True
    default_max_turns = 500

    def __init__(self, num_authors=3, **kwargs):
        self.debate = Debate()
        self.pairs = [(i, j) for i in range(num_authors) for j in range(i)]
        self.authors = [f"author_{i}" for i in range(num_authors)]
        self.seats = dict.fromkeys(self.authors, Seat("author")) | {
            f"match_{k}/{agent}": seat for k in range(len(self.pairs)) for agent, seat in self.debate.seats.items()
        }
        super().__init__(**kwargs)

    def play(self, table):
        plans = yield from table.gather(table.ask(author, "Propose a plan.") for author in self.authors)
        results = yield from table.gather(
            self.match(table.sub(f"match_{k}"), f"{plans[i]} or {plans[j]}") for k, (i, j) in enumerate(self.pairs)
        )
        for (i, j), won in zip(self.pairs, results):
            table.reward(self.authors[i], 0.5 * won)
            table.reward(self.authors[j], -0.5 * won)

    def match(self, table, topic):
        try:
            return (yield from self.debate.play(table, topic=topic, rounds=1))
        except Forfeit as forfeit:
            table.settle(forfeit)
            table.note(forfeited=list(forfeit.agents))
            return -1 if forfeit.agents[0].endswith("pro_0") else 1
