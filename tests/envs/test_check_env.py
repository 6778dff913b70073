"""`check_env` on all registered environments, and the test of the test: broken envs must fail, for the right check."""

import random
import secrets
import threading
import time

import numpy as np
import pytest
from gymnasium.spaces import Dict, Discrete
from pettingzoo import AECEnv

import legos_envs
from legos_envs import Forfeit, Seat, TextEnv
from legos_envs.games.kuhn_poker import KuhnPoker
from legos_envs.games.tic_tac_toe import TicTacToe
from legos_envs.spaces import Chat, FreeText
from legos_envs.testing import CHECKS, Report, check_env

VARIANTS = [
    {"memory": "chat"},
    {"memory": "state"},
    {"action_format": "boxed"},
    {"invalid_retries": 0},
    {"invalid_reward": -1.5, "invalid_opponent_reward": 0.5},
]


NOT_EVERYWHERE = ("seed.process",)  # starts an interpreter a time
SMALL = {
    "Amplification-v0": {"operations": 2, "max_questions": 3},
    "ConnectFour-v0": {"rows": 4, "columns": 4, "connect": 3},
    "EloArena-v0": {"num_entrants": 3, "matches": 2},
    "EnsembleVote-v0": {"num_solvers": 3},
    "LiarsDice-v0": {"dice": 2},
    "Negotiation-v0": {"rounds": 3},
    "PigDice-v0": {"goal": 20},
    "ProposerSolver-v0": {"num_solvers": 2},
    "SPICE-v0": {"num_reasoners": 2},
    "SelfDistillation-v0": {"num_samples": 2},
    "SimpleNegotiation-v0": {"turns": 4},
    "Tournament-v0": {"num_entrants": 3, "match_kwargs": {"rounds": 1}},
}
"""Every check plays many episodes; what seats may know and say is the same in small ones."""


@pytest.mark.parametrize("id", legos_envs.registered())
def test_registered(id):
    skip = () if id in ("KuhnPoker-v0", "Debate-v0") else NOT_EVERYWHERE
    report = check_env(id, episodes=12, skip=skip, raise_on_failure=True, **SMALL.get(id, {}))
    assert report.ok and 0 < report.us_per_turn < 20_000


def named(options):
    return "-".join(f"{k}={v}" for k, v in options.items())


@pytest.mark.quick
@pytest.mark.parametrize("id", ["KuhnPoker-v0", "MatrixGame-v0"])
@pytest.mark.parametrize("options", VARIANTS, ids=named)
def test_variants(id, options):
    """One env whose seats act in turn and one where they act at once; `test_every_variant` has all of them."""
    check_env(id, episodes=20, skip=NOT_EVERYWHERE, raise_on_failure=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("id", legos_envs.registered())
@pytest.mark.parametrize("options", [{}, *VARIANTS], ids=named)
def test_every_variant(id, options):
    check_env(id, raise_on_failure=True, **options)


def test_kuhn_match():
    assert (
        check_env("KuhnPoker-v0", episodes=20, skip=NOT_EVERYWHERE, num_rounds=3, raise_on_failure=True).us_per_turn > 0
    )


# --- a naive env -----------------------------------------------------------------------------------------------------


class Naive(AECEnv):
    """High card with one round of betting, written as one would at first."""

    hidden_information = True
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
        self.infos = {
            a: {"legal_actions": ("[bet]", "[check]"), "action_mask": ("[bet]", "[check]")} for a in self.agents
        }
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
        "hidden.private",
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


class Numbers(Naive):
    """The same lifecycle for numbers instead of text."""

    def __init__(self, render_mode=None):
        super().__init__(render_mode)
        self.observation_spaces = {a: Discrete(3) for a in self.possible_agents}
        self.action_spaces = {a: Discrete(2) for a in self.possible_agents}

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.infos = {a: {} for a in self.agents}

    def observe(self, agent):
        return np.int64(len(self.history) % 3)

    def step(self, action):
        super().step(None if action is None else ("[bet]", "[check]")[action])


def test_env_that_is_no_text_env_is_reported_and_does_not_crash():
    report = check_env(Numbers, episodes=5)
    assert {"spaces.same", "observation.chat", "order.ready", "copy.restore"} <= set(report.failures)
    assert "pettingzoo.api" in report.passed and "refuses the text" in report.failures["spaces.same"]


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

    view_shows_moves = False

    def _written(self, legal):
        return (*super()._written(legal), "[0]") if len(legal) == 9 else super()._written(legal)


class HidesLegal(Sealed):
    @staticmethod
    def _prompt(told, text, notice, written):
        return TextEnv._prompt(told, text, notice, None)


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
        self._messages[ask.agent].insert(-1, {"role": "user", "content": "Listen."})


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


@pytest.mark.parametrize("env", [Chatter, Sealed, Secretive])
def test_good_envs_pass(env):
    assert check_env(env, episodes=40, skip=NOT_EVERYWHERE).failures == {}


@pytest.mark.parametrize(("env", "expected"), MUTANTS, ids=[env.__name__ for env, _ in MUTANTS])
def test_mutant_fails_for_what_is_wrong_with_it(env, expected):
    assert sorted(check_env(env, episodes=40).failures) == sorted(expected)


@pytest.mark.parametrize(
    ("count", "text", "good"),
    [
        (61, "from 100 to 160", True),
        (61, "from 100", False),
        (61, "up to 160", False),
        (60, "from 100 to 159", False),
        (60, " ".join(map(str, range(100, 160))), True),
    ],
)
def test_many_legal_actions_may_be_told_as_a_range(count, text, good):
    class Numbers(TextEnv):
        seats = {"player_0": Seat("player_0")}

        def play(self, table):
            said = yield from table.ask("player_0", text, legal=[str(100 + n) for n in range(count)], listed=False)
            table.reward("player_0", int(said))

    report = check_env(Numbers, episodes=3, only=("infos.legal",))
    assert ("infos.legal" not in report.failures) == good


def test_env_with_an_argument_that_does_not_pickle():
    def make(**kwargs):
        return KeepsLambda(judge=lambda text: text, **kwargs)

    assert list(check_env(make, episodes=20).failures) == ["copy.pickle"]


def test_endless_env():
    class Endless(Sealed):
        default_max_turns = 10**6

        def play(self, table):
            while True:
                yield from super().play(table)

    report = check_env(Endless, only=("play.ends",))
    assert "did not end within" in report.failures["play.ends"]


def test_env_that_depends_on_the_hash_seed(tmp_path):
    file = tmp_path / "hashed.py"
    file.write_text(
        "import legos_envs\n"
        "from legos_envs import Seat, TextEnv\n"
        "class Hashed(TextEnv):\n"
        "    name = 'Hashed-v0'\n"
        "    seats = {'player_0': Seat('player')}\n"
        "    def play(self, table):\n"
        "        table.note(hash=hash('x'))\n"
        "        table.reward('player_0', table.rng.random())\n"
        "        yield from table.ask('player_0', 'Say something.')\n"
        "legos_envs.register('Hashed-v0', Hashed)\n"
    )
    assert list(check_env(f"{file}:Hashed-v0", episodes=10).failures) == ["seed.process"]


# --- the report ------------------------------------------------------------------------------------------------------


def test_report_and_selection_of_checks():
    report = check_env(Sealed, episodes=5, only=("play.ends", "hidden.private"))
    assert report.ok and report.passed == ["play.ends"] and list(report.skipped) == ["hidden.private"]
    assert str(report).startswith("Sealed: 0 failed, 1 passed, 1 do not apply") and "us a turn" in str(report)
    skipping = check_env(Sealed, episodes=5, skip=tuple(CHECKS))
    assert skipping == Report("Sealed", us_per_turn=skipping.us_per_turn)
    with pytest.raises(ValueError, match=r"play\.end'.*play\.ends"):
        check_env(Sealed, only=("play.end",))


def test_policy_plays_all_seats():
    seen = []

    def policy(decision):
        seen.append(decision.role)
        return decision.legal_actions[-1]

    report = check_env(Sealed, episodes=3, policy=policy, only=("play.outcomes",))
    assert "nothing can be learned" in report.failures["play.outcomes"] and set(seen) == {"bidder"}


def test_every_check_has_one_line_of_description():
    assert all(len(c.description) > 20 and c.description.endswith(".") for c in CHECKS.values())
