"""Good envs, and small mutations of them, each of which exactly one check must see: `MUTANTS`."""

import random
import secrets
import threading
import time

import numpy as np

from legos_envs import Forfeit, Seat, TextEnv
from legos_envs.games.kuhn_poker import KuhnPoker
from legos_envs.games.tic_tac_toe import TicTacToe
from legos_envs.spaces import FreeText


class Chatter(TextEnv):
    """Two seats talk in turn, then a coin pays one of them."""

    name = "Chatter-v0"
    zero_sum = True
    seats = {"left_0": Seat("left"), "right_0": Seat("right")}

    def play(self, table):
        for _ in range(2):
            for agent, other in (("left_0", "right_0"), ("right_0", "left_0")):
                said = yield from table.ask(agent, "Say something.")
                self.hear(table, other, said)
        pay = 1 if table.rng.random() < 0.5 else -1
        table.reward("left_0", pay)
        table.reward("right_0", -pay)

    def hear(self, table, agent, said):
        table.tell(agent, f"The other says: {said}")


class Sealed(TextEnv):
    """Two sealed bids; the higher one wins."""

    name = "Sealed-v0"
    zero_sum = True
    seats = {"bidder_0": Seat("bidder"), "bidder_1": Seat("bidder")}

    def play(self, table):
        bids = yield from table.gather(self.bid(table, agent) for agent in self.seats)
        self.pay(table, bids)

    def bid(self, table, agent):
        return int((yield from table.ask(agent, "Bid.", legal=("1", "2", "3"))))

    def pay(self, table, bids):
        sign = (bids[0] > bids[1]) - (bids[0] < bids[1])
        table.reward("bidder_0", sign)
        table.reward("bidder_1", -sign)


class DrawsGlobal(Sealed):
    def play(self, table):
        random.random()
        yield from super().play(table)


class DependsOnGlobal(Sealed):
    """Reads the global generator and puts its state back."""

    def pay(self, table, bids):
        state = random.getstate()
        table.note(luck=random.random())
        random.setstate(state)
        super().pay(table, bids)


class TellsThought(Chatter):
    def hear(self, table, agent, said):
        super().hear(table, agent, self.log[-1][1])


class TellsOnArrival(Sealed):
    def bid(self, table, agent):
        bid = yield from super().bid(table, agent)
        self.arrived.append(agent)
        return bid

    def play(self, table):
        self.arrived = []
        yield from super().play(table)
        table.note(first=self.arrived[0])


class KeepsLambda(Sealed):
    def __init__(self, judge=None, **kwargs):
        self.judge = judge
        super().__init__(**kwargs)


class PaysTooMuch(Sealed):
    def pay(self, table, bids):
        super().pay(table, bids)
        if bids[0] == bids[1]:
            table.reward("bidder_0", 0.25)


class MixesEndings(Sealed):
    def _close(self):
        super()._close()
        if self.terminations["bidder_0"] and "outcome" not in self._facts["bidder_0"]:
            self.terminations["bidder_1"], self.truncations["bidder_1"] = False, True


class ListsTooMuch(TicTacToe):
    """Lists a move that the rules then refuse."""

    view_shows_moves = False

    def _written(self, legal):
        return (*super()._written(legal), "[0]") if len(legal) == 9 else super()._written(legal)


class HidesLegal(Sealed):
    def _pose(self, ask, strand):
        super()._pose(ask._replace(listed=False), strand)


class ObserveCounts(Chatter):
    """Complains when somebody looks more often than an AEC loop does."""

    looks = 0

    def observe(self, agent):
        self.looks += 1
        seen = super().observe(agent)["messages"]
        if self.looks > 4 and seen:
            return {"messages": (*seen[:-1], {**seen[-1], "content": seen[-1]["content"] + " You look too often."})}
        return {"messages": seen}

    def step(self, action):
        self.looks = 0
        super().step(action)


class ShowsCards(KuhnPoker):
    def play(self, table):
        table.tell(self.possible_agents, "Secret: " + "".join("JQK"[c] for c in self.deal(table.sub("peek"))[0]))
        yield from super().play(table)

    def deal(self, table):
        return super().deal(table if table.path == "peek/" else table.sub("peek"))


class TakesFirst(Sealed):
    def step(self, action):
        if isinstance(action, str) and action.count("[") > 1 and "think>" not in action:
            action = action.partition("]")[0] + "]"
        super().step(action)


class ReadsThought(Sealed):
    def step(self, action):
        unclosed = isinstance(action, str) and action.startswith("<think>") and "</think>" not in action
        super().step(action[len("<think>") :] if unclosed else action)


class DiesOnNul(Sealed):
    def step(self, action):
        if isinstance(action, str) and "\x00" in action:
            raise ValueError("embedded null byte")
        super().step(action)


class Crawls(Sealed):
    def step(self, action):
        until = time.process_time() + (0.06 if isinstance(action, str) and action.startswith("[[[") else 0)
        while time.process_time() < until:
            pass
        super().step(action)


class NeverGivesUp(Sealed):
    zero_sum = False
    default_max_turns = 100_000

    def bid(self, table, agent):
        while True:
            try:
                return (yield from super().bid(table, agent))
            except Forfeit:
                continue


class TakesAnySeed(Sealed):
    def reset(self, seed=None, options=None):
        super().reset(seed=None if seed is None else abs(int(seed)), options=options)


class RemembersLast(Sealed):
    finished = 0

    def play(self, table):
        if self.finished:
            table.note(before="an earlier episode")
        yield from super().play(table)
        self.finished += 1


class SharesClassState(Sealed):
    """Keeps the bids on the class, where another env of the kind finds them."""

    bids: list = []

    def play(self, table):
        type(self).bids.clear()
        yield from super().play(table)

    def bid(self, table, agent):
        bid = yield from super().bid(table, agent)
        type(self).bids.append(bid)
        return bid

    def pay(self, table, bids):
        super().pay(table, bids)
        table.note(bids=len(type(self).bids))


class GivesNumpy(Sealed):
    def pay(self, table, bids):
        super().pay(table, bids)
        table.note(total=np.float64(sum(bids)))


class SharesInfo(Sealed):
    """Hands out the same info object at an agent's turn and at the end."""

    def play(self, table):
        self.shared = {}
        return (yield from super().play(table))

    def _pose(self, ask, strand):
        super()._pose(ask, strand)
        self.shared[ask.agent] = self.infos[ask.agent]

    def _close(self):
        super()._close()
        self.infos.update(self.shared)


class PaysNan(Chatter):
    zero_sum = False

    def play(self, table):
        yield from super().play(table)
        self.rewards["left_0"] += float("inf") if table.rng.random() < 0.1 else 0  # table.reward would refuse


class TwoMessages(Sealed):
    def _pose(self, ask, strand):
        super()._pose(ask, strand)
        self._conversations._messages[ask.agent].insert(-1, {"role": "user", "content": "Listen."})


class AsciiOnly(Sealed):
    class Space(FreeText):
        def contains(self, x):
            return super().contains(x) and x.isascii()

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.action_spaces = dict.fromkeys(self.seats, self.Space())


class RendersNothing(Sealed):
    def render(self):
        return None


class AsksTheThread(Sealed):
    def pay(self, table, bids):
        super().pay(table, bids)
        table.note(thread=threading.current_thread().name)


class StreamOfEntropy(Sealed):
    def play(self, table):
        table.note(salt=int(table.rng.integers(10**9)))
        yield from super().play(table)

    def reset(self, seed=None, options=None):
        super().reset(secrets.randbits(30) if seed is None else seed, options)


class CopiesItself(Sealed):
    def __deepcopy__(self, memo):
        return self


class RestoresTooLittle(Sealed):
    def restore(self, state):
        super().restore({**state, "log": state["log"][:-1]})


class Secretive(Chatter):
    """Each seat is told a number that is its own."""

    zero_sum = False
    hidden_information = True

    def play(self, table):
        self.numbers = {a: f"number {i}{int(table.rng.integers(10**9)):09}" for i, a in enumerate(self.seats)}
        for agent, number in self.numbers.items():
            self.share(table, agent, number)
        yield from super().play(table)

    def share(self, table, agent, number):
        table.tell(agent, f"Your secret: {number}")

    def private_texts(self, agent):
        return [self.numbers[agent]]


class TellsNumbers(Secretive):
    def share(self, table, agent, number):
        table.tell(self.seats, f"The secret: {number}")


class TellsNotes(Secretive):
    """What is private has signs that JSON escapes."""

    def share(self, table, agent, number):
        self.numbers[agent] = f'A "note":\n{number} \\o/'
        table.tell(self.seats, f"The secret: {self.numbers[agent]}")


class AlwaysDraws(Sealed):
    def pay(self, table, bids):
        pass


class ForgetsLimit(Sealed):
    def _truncate(self):
        self.terminations = dict.fromkeys(self.terminations, True)
        self._waiting = {}
        self._close()


COPIES = ["copy.pickle", "copy.deepcopy", "copy.restore"]


MUTANTS = [
    (DrawsGlobal, ["rng.untouched"]),
    (DependsOnGlobal, ["seed.global_rng"]),
    (TellsThought, ["think.private"]),
    (TellsOnArrival, ["order.ready"]),
    (PaysTooMuch, ["play.zero_sum"]),
    (MixesEndings, ["play.one_ending"]),
    (ListsTooMuch, ["play.legal"]),
    (AlwaysDraws, ["play.outcomes"]),
    (ForgetsLimit, ["play.turn_limit"]),
    (HidesLegal, ["infos.legal"]),
    (GivesNumpy, ["infos.plain"]),
    (SharesInfo, ["infos.fresh"]),
    (ObserveCounts, ["observe.pure"]),
    (TwoMessages, ["observation.chat"]),
    (AsciiOnly, ["spaces.same"]),
    (RendersNothing, ["pettingzoo.render"]),
    (ShowsCards, ["hidden.private"]),
    (TellsNumbers, ["hidden.private"]),
    (TellsNotes, ["hidden.private"]),
    (TakesFirst, ["action.last"]),
    (ReadsThought, ["think.unclosed"]),
    (DiesOnNul, ["garbage.safe"]),
    (Crawls, ["garbage.fast"]),
    (NeverGivesUp, ["garbage.ends"]),
    (CopiesItself, ["copy.deepcopy"]),
    (RestoresTooLittle, COPIES),
    (TakesAnySeed, ["seed.refused"]),
    (RemembersLast, ["seed.reused"]),
    (StreamOfEntropy, ["seed.stream"]),
    (AsksTheThread, ["seed.thread"]),
    (SharesClassState, ["pettingzoo.seed", *COPIES, "seed.interleaved"]),
    (PaysNan, ["rewards.finite"]),
]
