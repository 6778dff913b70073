"""Drivers: nothing is lost, nothing waits, and the order of answers does not matter."""

import asyncio
import json
import random

import numpy as np
import pytest

from legos_envs import Runner, Seat, TextEnv, make, play, play_many
from legos_envs.records import episode_from_json, episode_to_json
from legos_envs.testing.harness import Player, drive
from tests.envs.naive import Naive
from tests.envs.nested import Debate, Tournament


def says(decision):
    """A policy that depends on the decision alone."""
    return decision.legal_actions[decision.seed % 2] if decision.legal_actions else f"{decision.agent} {decision.turn}"


def run(env, policies=says, seed=0, **kwargs):
    return asyncio.run(play(env, policies, seed, **kwargs))


def transcript(episode):
    return {
        agent: ([(turn.observation, turn.action, round(turn.reward, 9)) for turn in t.turns], t.carry, t.info)
        for agent, t in episode.trajectories.items()
    }


def without_rewards(episode):
    return {agent: [turn[:2] for turn in turns] for agent, (turns, _, _) in transcript(episode).items()}


@pytest.mark.parametrize("seed", range(4))
def test_rewards_of_other_branches_are_not_lost(seed):
    episode = run(Tournament(), seed=seed)
    env = Tournament()
    env.reset(seed=seed)
    loop = drive(env, Player(says, seed))
    assert episode.returns == pytest.approx(loop.returns) and any(episode.returns.values())
    assert episode.turns == len(loop.steps)


def test_a_reward_between_two_turns_belongs_to_the_earlier_one():
    class Tip(TextEnv):
        seats = {"a_0": Seat("a"), "b_0": Seat("b")}

        def play(self, table):
            for tip in (1, 10):
                yield from table.ask("a_0", "Serve.")
                yield from table.ask("b_0", "Tip.")
                table.reward("a_0", tip)

    waiter = run(Tip()).trajectories["a_0"]
    assert [turn.reward for turn in waiter.turns] == [1.0, 10.0] and waiter.total == 11.0


def test_async_policies_that_finish_in_random_order_give_the_same_episode():
    plain = run(Tournament(), seed=3)
    for shuffle in range(4):
        order = random.Random(shuffle)

        async def slow(decision, order=order):
            for _ in range(order.randrange(5)):
                await asyncio.sleep(0)
            return says(decision)

        other = run(Tournament(), slow, seed=3)
        assert without_rewards(other) == without_rewards(plain)
        assert other.returns == pytest.approx(plain.returns) and other.info == plain.info


def test_independent_agents_think_at_the_same_time():
    thinking, most = 0, 0

    async def slow(decision):
        nonlocal thinking, most
        thinking += 1
        most = max(most, thinking)
        await asyncio.sleep(0.001)
        thinking -= 1
        return says(decision)

    run(Tournament(), slow)
    assert most == 3


def test_sync_and_async_policies_in_one_gather_are_all_answered():
    async def slow(decision):
        await asyncio.sleep(0)
        return says(decision)

    episode = run(Tournament(), {"author": says, "author_1": slow, "pro": slow, "con": says, "judge": says})
    assert without_rewards(episode) == without_rewards(run(Tournament()))
    assert all(trajectory.turns for trajectory in episode.trajectories.values())


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 4, 7])
def test_answers_that_come_after_the_turn_limit_are_dropped(asynchronous, limit):
    async def slow(decision):
        await asyncio.sleep(0)
        return says(decision)

    episode = run(Tournament(max_turns=limit), slow if asynchronous else says)
    assert episode.truncated and episode.turns == limit and episode.outcome == "truncated"


def test_a_failing_policy_stops_the_others():
    stopped = []

    async def policy(decision):
        if decision.agent == "author_1":
            raise ZeroDivisionError
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(decision.agent)
            raise

    async def main():
        with pytest.raises(ZeroDivisionError):
            await play(Tournament(), policy, 0)
        assert stopped == ["author_0", "author_2"]

    asyncio.run(main())


def test_policies_by_agent_before_role_and_an_error_that_names_the_role():
    episode = run(Debate(), {"pro_0": lambda d: "by agent", "pro": says, "con": says, "judge": says})
    assert {turn.action for turn in episode.trajectories["pro_0"].turns} == {"by agent"}
    with pytest.raises(KeyError, match=r"no policy for agent 'judge_0' \(role 'judge'\).*\['pro', 'con'\]"):
        run(Debate(), {"pro": says, "con": says})


@pytest.mark.parametrize("policies", ["random", {"pro": says, "con": "random", "judge": says}])
def test_a_policy_given_by_its_name_is_refused(policies):
    with pytest.raises(TypeError, match=r"got 'random'; legos_envs\.policies\.make_policy"):
        run(Debate(), policies)


def test_the_record():
    episode = run(Debate(), seed=5, options={"topic": "chess"}, group="g")
    assert (episode.env_id, episode.seed, episode.options, episode.group) == ("Debate-v0", 5, {"topic": "chess"}, "g")
    judge = episode.trajectories["judge_0"]
    assert (judge.role, judge.trainable, judge.parent, len(judge.turns)) == ("judge", False, "", 2)
    assert judge.turns[0].legal_actions == ("[pro]", "[con]")
    assert set(episode.info) == {"verdicts"} and episode.outcome is None and not episode.truncated
    assert run(Tournament()).trajectories["match_1/con_0"].parent == "match_1"


def test_decision_seeds():
    seeds = []

    def keep(decision):
        seeds.append((decision.agent, decision.turn, decision.seed))
        return says(decision)

    run(Debate(), keep, seed=1)
    first = list(seeds)
    seeds.clear()
    run(Debate(), keep, seed=1)
    assert seeds == first and len({seed for *_, seed in seeds}) == len(seeds)
    seeds.clear()
    run(Debate(), keep, seed=1, salt=1)
    assert not {seed for *_, seed in seeds} & {seed for *_, seed in first} and all(0 <= s < 2**63 for *_, s in seeds)


def test_runner_hands_out_each_decision_once():
    runner = Runner(Tournament(), 0)
    first = runner.pending()
    assert [d.agent for d in first] == ["author_0", "author_1", "author_2"] and runner.pending() == []
    turn = runner.answer(first[2], "plan", policy_version=4, finish_reason="stop")
    assert (turn.action, turn.policy_version, turn.finish_reason) == ("plan", 4, "stop") and runner.pending() == []
    runner.answer(first[0], "plan")
    runner.answer(first[1], "plan")
    assert [d.agent for d in runner.pending()] == ["match_0/pro_0", "match_1/pro_0", "match_2/pro_0"]
    assert not runner.done


def test_runner_refuses_an_answer_after_the_end():
    runner = Runner(Tournament(max_turns=1), 0)
    first, second, _ = runner.pending()
    runner.answer(first, "plan")
    assert runner.done and runner.pending() == []
    with pytest.raises(RuntimeError, match="over; the answer of 'author_1' comes too late"):
        runner.answer(second, "plan")


def test_an_episode_without_turns():
    class Empty(TextEnv):
        seats = {"a_0": Seat("a")}

        def play(self, table):
            table.reward("a_0", 2)
            return
            yield

    episode = run(Empty())
    assert episode.returns == {"a_0": 2.0} and episode.trajectories["a_0"].carry == 2.0 and episode.turns == 0


def test_play_many_keeps_the_order_of_the_seeds():
    episodes = asyncio.run(play_many(lambda: make("KuhnPoker-v0"), says, [3, 1, 2], concurrency=2))
    assert [episode.seed for episode in episodes] == [3, 1, 2]
    assert transcript(episodes[1]) == transcript(run(make("KuhnPoker-v0"), seed=1))


class Elimination(Naive):
    """A foreign env in which player_0 acts, is paid and is out, before player_1 acts."""

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0
        self._clear_rewards()
        self.rewards[agent] = -1 if agent == "player_0" else 3
        self.terminations[agent] = True
        self._accumulate_rewards()
        if agent == "player_0":
            self.agent_selection = "player_1"
            self._deads_step_first()


def test_a_foreign_env_in_which_one_agent_leaves_early():
    episode = run(Elimination(), lambda decision: "[bet]")
    assert episode.returns == {"player_0": -1.0, "player_1": 3.0} and episode.turns == 2
    assert not episode.truncated


class Latecomer(Elimination):
    """A foreign env that player_1 joins when player_0 has acted."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.agents.remove("player_1")
        self.late = {"legal_actions": ("[bet]",), "action_mask": ("[bet]",), "role": "late"}
        for facts in (self.rewards, self._cumulative_rewards, self.terminations, self.truncations, self.infos):
            facts.pop("player_1")

    def step(self, action):
        if "player_1" not in self.infos:
            self.agents.append("player_1")
            self.infos["player_1"] = self.late
            for facts in (self.rewards, self._cumulative_rewards):
                facts["player_1"] = 0
            for facts in (self.terminations, self.truncations):
                facts["player_1"] = False
        super().step(action)


def test_an_agent_may_join_after_the_reset():
    episode = run(Latecomer(), lambda decision: "[bet]")
    assert episode.returns == {"player_0": -1.0, "player_1": 3.0} and episode.order == ["player_0", "player_1"]
    assert episode.trajectories["player_1"].role == "late"


def test_a_record_is_json_with_numbers_of_numpy_too():
    seed, options = np.int64(3), {"heap": np.int64(6)}
    episode = asyncio.run(play(make("Nim-v0"), lambda decision: decision.legal_actions[0], seed, options))
    assert episode_from_json(json.loads(json.dumps(episode_to_json(episode)))) == episode
