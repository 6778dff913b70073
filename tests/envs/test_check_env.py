"""`check_env` on all registered environments, and the test of the test: broken envs must fail, and for the right check."""

import random

import pytest
from gymnasium.spaces import Dict
from pettingzoo import AECEnv

import legos_envs
from legos_envs import Seat, TextEnv
from legos_envs.games.kuhn_poker import KuhnPoker
from legos_envs.games.tic_tac_toe import TicTacToe
from legos_envs.spaces import Chat, FreeText
from legos_envs.testing import CHECKS, Report, check_env

VARIANTS = [
    {},
    {"memory": "chat"},
    {"memory": "state"},
    {"action_format": "boxed"},
    {"invalid_retries": 0},
    {"invalid_reward": -1.5, "invalid_opponent_reward": 0.5},
]


@pytest.mark.parametrize("id", legos_envs.registered())
@pytest.mark.parametrize("options", VARIANTS, ids=lambda o: "-".join(f"{k}={v}" for k, v in o.items()) or "default")
def test_registered(id, options):
    report = check_env(id, episodes=60, skip=("seed.process",) if options else (), raise_on_failure=True, **options)
    assert report.ok and 0 < report.us_per_turn < 5000


def test_kuhn_match():
    assert check_env("KuhnPoker-v0", episodes=60, num_rounds=3, raise_on_failure=True).us_per_turn > 0


# --- a naive env -----------------------------------------------------------------------------------------------------


class Naive(AECEnv):
    """High card with one round of betting, written as one would at first."""

    metadata = {"name": "Naive-v0", "render_modes": ["ansi"], "is_parallelizable": False}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.possible_agents = ["player_0", "player_1"]
        self.observation_spaces = {a: Dict({"messages": Chat()}) for a in self.possible_agents}
        self.action_spaces = {a: FreeText() for a in self.possible_agents}
        self.history = []
        self.callback = lambda text: text

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        random.seed(seed)
        self.agents = self.possible_agents[:]
        self.cards = random.sample(range(10), 2)
        self.stakes = 1
        self.rewards = dict.fromkeys(self.agents, 0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos = {a: {"legal_actions": ("[bet]", "[check]"), "action_mask": ("[bet]", "[check]")} for a in self.agents}
        self.agent_selection = "player_0"

    def observe(self, agent):
        text = "\n".join([f"Cards: {self.cards}. Reply [bet] or [check].", *self.history])
        return {"messages": ({"role": "user", "content": text},)}

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        self.history.append(f"{agent}: {action}")
        move = action.split("[")[1].split("]")[0]
        self.stakes += move == "bet"
        if agent == "player_1":
            winner = self.cards[1] > self.cards[0]
            self.rewards = {"player_0": -self.stakes if winner else self.stakes, "player_1": self.stakes * winner}
            self.terminations["player_0"] = True
            self.truncations["player_1"] = True
        else:
            self.agent_selection = "player_1"
        self._accumulate_rewards()

    def render(self):
        return "\n".join(self.history)

    def close(self):
        pass


def test_naive_env_fails_by_name():
    report = check_env(Naive, episodes=30)
    assert {
        "play.one_ending",
        "play.turn_limit",
        "infos.plain",
        "think.private",
        "think.unclosed",
        "action.last",
        "garbage.safe",
        "garbage.ends",
        "copy.pickle",
        "copy.restore",
        "order.ready",
        "seed.reused",
        "rng.untouched",
        "seed.refused",
    } <= set(report.failures)
    assert not report.ok and "FAIL  think.private" in str(report)
    with pytest.raises(AssertionError, match=r"think\.private(.|\n)*rng\.untouched"):
        check_env(Naive, episodes=5, raise_on_failure=True)


def test_env_that_is_no_text_env_is_reported_and_does_not_crash():
    from pettingzoo.classic import rps_v2

    report = check_env(rps_v2.raw_env, episodes=5)
    assert {"spaces.same", "observation.chat", "order.ready", "copy.restore"} <= set(report.failures)


def test_env_that_cannot_be_made_is_reported():
    report = check_env("NoSuchGame-v0")
    assert "play.ends" in report.failures and "NoSuchGame" in report.failures["play.ends"]
    assert report.us_per_turn is None


# --- small mutations of good envs, each of which exactly one check must see ------------------------------------------


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

    def _written(self, legal):
        return (*super()._written(legal), "[0]") if len(legal) == 9 else super()._written(legal)


class HidesLegal(Sealed):
    @staticmethod
    def _prompt(told, text, notice, written):
        return TextEnv._prompt(told, text, notice, None)


class ObserveCounts(Sealed):
    def observe(self, agent):
        seen = super().observe(agent)
        self.looks = getattr(self, "looks", 0) + 1
        if self.looks % 50 or not seen["messages"]:
            return seen
        return {"messages": ({"role": "user", "content": "You look too often."},)}


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
        super().step(action.replace("<think>", " ") if isinstance(action, str) else action)


class DiesOnNul(Sealed):
    def step(self, action):
        if isinstance(action, str) and "\x00" in action:
            raise ValueError("embedded null byte")
        super().step(action)


class Crawls(Sealed):
    def step(self, action):
        if isinstance(action, str) and action.startswith("[[["):
            sum(action[i:].count("]") for i in range(0, 16000, 4))
        super().step(action)


class NeverGivesUp(Sealed):
    default_max_turns = 100_000
    max_action_chars = 70_000

    def bid(self, table, agent):
        while True:
            said = yield from table.ask(agent, "Bid.", legal=("1", "2", "3"), parse=None) if self.log == [] else (
                yield from self.again(table, agent)
            )
            return int(said)

    def again(self, table, agent):
        return (yield from table.ask(agent, "Bid.", legal=("1", "2", "3")))


class TakesAnySeed(Sealed):
    def reset(self, seed=None, options=None):
        super().reset(seed=None if seed is None else abs(int(seed)), options=options)


class RemembersLast(Sealed):
    def play(self, table):
        if self.log or getattr(self, "before", None):
            table.note(before="an earlier episode")
        self.before = True
        yield from super().play(table)


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
        import numpy as np

        super().pay(table, bids)
        table.note(total=np.float64(sum(bids)))


class SharesInfo(Sealed):
    def step(self, action):
        super().step(action)
        if self.ended and self.infos:
            self.infos = dict.fromkeys(self.infos, self._facts["bidder_0"])


class PaysNan(Chatter):
    zero_sum = False

    def play(self, table):
        yield from super().play(table)
        table.reward("left_0", float("inf") if table.rng.random() < 0.1 else 0)


class AlwaysDraws(Sealed):
    def pay(self, table, bids):
        pass


class ForgetsLimit(Sealed):
    def _truncate(self):
        self.terminations = dict.fromkeys(self.terminations, True)
        self._waiting = {}
        self._close()


MUTANTS = [
    ("rng.untouched", DrawsGlobal),
    ("seed.global_rng", DependsOnGlobal),
    ("think.private", TellsThought),
    ("order.ready", TellsOnArrival),
    ("play.zero_sum", PaysTooMuch),
    ("play.one_ending", MixesEndings),
    ("play.legal", ListsTooMuch),
    ("play.outcomes", AlwaysDraws),
    ("play.turn_limit", ForgetsLimit),
    ("infos.legal", HidesLegal),
    ("infos.plain", GivesNumpy),
    ("infos.fresh", SharesInfo),
    ("observe.pure", ObserveCounts),
    ("hidden.private", ShowsCards),
    ("action.last", TakesFirst),
    ("think.unclosed", ReadsThought),
    ("garbage.safe", DiesOnNul),
    ("garbage.fast", Crawls),
    ("seed.refused", TakesAnySeed),
    ("seed.reused", RemembersLast),
    ("seed.interleaved", SharesClassState),
    ("rewards.finite", PaysNan),
]
