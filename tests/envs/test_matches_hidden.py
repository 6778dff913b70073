"""What seats of one match must not learn of another."""

from random import Random

import pytest

import legos_envs
from legos_envs import Seat, TextEnv
from legos_envs.games.kuhn_poker import KuhnPoker
from legos_envs.tasks.contests.head_to_head import HeadToHead
from legos_envs.tasks.contests.matches import MatchEnv
from legos_envs.testing import check_env
from legos_envs.testing.harness import Player, drive

# --- hidden information ----------------------------------------------------------------------------------------------


class Numbers(TextEnv):
    """Each seat is told a number, kept on the env as rules may; the higher one wins."""

    name = "Numbers-v0"
    zero_sum = True
    hidden_information = True
    seats = {"a_0": Seat("a"), "b_0": Seat("b")}

    def play(self, table):
        self.numbers = {agent: int(table.rng.integers(10**9)) for agent in self.seats}
        for agent, number in self.numbers.items():
            table.tell(agent, f"Your number is {number:09}.")
        yield from table.gather([table.ask(agent, "Say something.") for agent in self.seats])
        won = 1 if self.numbers["a_0"] > self.numbers["b_0"] else -1
        table.reward("a_0", won)
        table.reward("b_0", -won)

    def private_texts(self, agent):
        return [f"{self.numbers[agent]:09}"]


class Leaks(Numbers):
    def play(self, table):
        rules = super().play(table)
        first = next(rules)
        table.tell("b_0", f"Psst: {self.numbers['a_0']:09}.")
        yield from self._rest(rules, first)

    @staticmethod
    def _rest(rules, request):
        while True:
            try:
                request = rules.send((yield request))
            except StopIteration:
                return


LAWS = ("hidden.private", "order.ready", "copy.pickle", "play.zero_sum", "seed.reused")


@pytest.mark.slow
def test_hidden_information_is_that_of_the_match():
    env = HeadToHead(Numbers)
    assert env.hidden_information and not HeadToHead().hidden_information and not hasattr(HeadToHead(), "private_texts")
    env.reset(seed=0)
    for agent in env.agents:
        (number,) = env.private_texts(agent)
        assert number in env.observe(agent)["messages"][0]["content"]
    assert check_env(HeadToHead, episodes=10, only=LAWS, match=Numbers).failures == {}
    assert check_env(HeadToHead, episodes=10, only=LAWS, match=Numbers, swap=False).failures == {}
    leaks = check_env(HeadToHead, episodes=3, only=LAWS, match=Leaks).failures
    assert list(leaks) == ["hidden.private"] and "b_0' can read" in leaks["hidden.private"]


PAIRS = (  # of each env, who knows something that another seat of its match must not read
    ("RedBlue-v0", {}, "defender_0", "attacker_0"),
    ("ProofVerification-v0", {}, "prover_0", "verifier_0"),
    ("SPICE-v0", {"num_reasoners": 1}, "challenger_0", "question_0/reasoner_0"),
    ("ProposerSolver-v0", {"num_solvers": 1}, "proposer_0", "problem_0/solver_0"),
)


@pytest.mark.parametrize(("match", "arguments", "owner", "reader"), PAIRS)
def test_what_is_private_in_a_match_is_what_was_dealt_there(match, arguments, owner, reader):
    env = legos_envs.make("HeadToHead-v0", match=match, match_kwargs=arguments, games=2, swap=False).unwrapped
    player = Player(None, 0)
    player.policy = lambda decision: env.matches["match_0"].scripted_players["random"](decision)
    env.reset(seed=3)
    told = {name: "" for name in env.matches}

    def note(step):
        name = step.agent.partition("/")[0]
        if step.agent == f"{name}/{owner}":
            told[name] += f"{step.observation['messages']}\n{step.action}"

    drive(env, player, each=note)
    for name in env.matches:
        private = env.private_texts(f"{name}/{owner}")
        assert private and all(repr(text)[1:-1] in told[name] or text in told[name] for text in private)
        assert env.private_texts(f"{name}/{reader}") == []
    checked = check_env("HeadToHead-v0", episodes=2, only=["hidden.private"], match=match, match_kwargs=arguments)
    assert checked.failures == {}


def test_matches_that_have_not_begun_hide_nothing():
    env = legos_envs.make("Tournament-v0", match=Numbers, format="bracket").unwrapped
    for seed in range(2):  # the second time the final has a past
        env.reset(seed=seed)
        assert env.private_texts("match_2/a_0") == [] and env.private_texts("match_0/a_0")
        drive(env, Player(None, 0))
        assert env.private_texts("match_2/a_0")


def test_nothing_of_a_match_reaches_another():
    """`check_env` leaves this to be tested here, because what was dealt at two matches may be equal by chance."""
    env = legos_envs.make("EloArena-v0", match=Numbers).unwrapped
    env.reset(seed=0)
    numbers = {agent: env.private_texts(agent)[0] for agent in env.agents}
    assert len(set(numbers.values())) == 12
    record = drive(env, Player(None, 0))
    for agent, (observation, _) in record.last.items():
        assert [owner for owner, number in numbers.items() if number in str(observation)] == [agent]
    infos = str([info for _, info in record.last.values()])
    assert not any(number in infos for number in numbers.values())


@pytest.mark.slow
def test_equal_deals_at_two_matches_are_no_leak():
    class Undeclared(HeadToHead):
        @staticmethod
        def strangers(agent, other):
            return False

    only = ("hidden.private",)
    failures = [check_env(Undeclared, episodes=3, only=only, match=match).failures for match in (Numbers, KuhnPoker)]
    assert "can read" in failures[0]["hidden.private"] and "always determines" in failures[1]["hidden.private"]
    assert check_env(HeadToHead, episodes=3, only=only, match=KuhnPoker).passed == list(only)
    assert HeadToHead.strangers("match_1/a_0", "match_11/a_0") and not HeadToHead.strangers("match_1/a", "match_1/b")


def test_results_do_not_depend_on_who_answers_first():
    def player(decision):
        if decision.agent == "match_1/answer_0":
            return ""
        return "[B]" if decision.seed % 3 else "[A] and " + "words " * (decision.seed % 7)

    def started():
        env = legos_envs.make("EloArena-v0", num_entrants=3, matches=5).unwrapped
        env.reset(seed=4)
        return env

    plain = drive(started(), Player(player, 0))
    for shuffle in range(4):
        other = drive(started(), Player(player, 0), order=Random(shuffle))
        assert other.by_agent() == plain.by_agent() and other.last == plain.last


def test_base_class_needs_no_more_than_run():
    """What a user writes who wants another format: best of three."""

    class BestOfThree(MatchEnv):
        name = "BestOfThree-v0"

        def __init__(self, match=None, **kwargs):
            super().__init__(match, None, [("left", "right")] * 3, **kwargs)

        def play(self, table):
            wins = [0, 0]
            for name in self.matches:
                result = yield from self.run(table, name, ("left", "right"))
                wins = [won + (score == 1) for won, score in zip(wins, result.scores)]
                if max(wins) == 2:
                    break
            table.note(wins=wins)

    env = BestOfThree("KuhnPoker-v0")
    env.reset(seed=0)
    record = drive(env, Player(lambda d: "[nothing]" if d.agent.endswith("player_0") else d.legal_actions[0], 0))
    assert record.last["match_0/player_0"][1]["wins"] == [0, 2] and record.returns["match_2/player_0"] == 0
