"""Rollouts: many episodes at once are the episodes one at a time."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from itertools import pairwise

import pytest

import legos_envs
from inference import Completion, Engine
from inference.text import Renderer
from legos_envs.policies import RandomPolicy
from legos_envs.records import Turn
from legos_train.rollout import Job, Rollouts
from legos_train.rollout.players import ModelPlayer


@pytest.fixture(scope="module")
def player():
    engine = Engine.load("tiny")
    yield ModelPlayer(engine, Renderer(engine.tokenizer), max_tokens=12)
    engine.close()


@pytest.mark.quick("*kwargs0", "*kwargs3")
@pytest.mark.parametrize(
    ("env", "kwargs"),
    [
        ("KuhnPoker-v0", {}),
        ("KuhnPoker-v0", {"num_rounds": 3, "memory": "chat"}),
        ("MatrixGame-v0", {"game": "rps"}),
        ("MatrixGame-v0", {"game": "prisoners_dilemma", "rounds": 3}),
        ("Nim-v0", {"invalid_retries": 0}),
    ],
)
def test_together_equals_alone(player, env, kwargs) -> None:
    """The same actions, tokens and rewards, whoever else plays; log-probabilities up to rounding."""

    def play(requests, concurrency):
        return Rollouts(lambda name: legos_envs.make(name, **kwargs), concurrency).run(requests)

    requests = [Job(env, seed // 2, {"*": player}, salt=seed % 2) for seed in range(20)]
    together = play(requests, 64)
    few = play(requests, 3)
    alone = [play([request], 1)[0] for request in requests[:4]]
    for a, b in [*zip(together, few, strict=True), *zip(together, alone, strict=False)]:
        assert a.returns == b.returns and a.info == b.info and a.truncated == b.truncated
        for agent, trajectory in a.trajectories.items():
            turns = b.trajectories[agent].turns
            assert [t.action for t in trajectory.turns] == [t.action for t in turns]
            assert [t.action_tokens for t in trajectory.turns] == [t.action_tokens for t in turns]
            assert [tuple(t.prompt_tokens) for t in trajectory.turns] == [tuple(t.prompt_tokens) for t in turns]
            for x, y in zip(trajectory.turns, turns, strict=True):
                assert x.logprobs == pytest.approx(y.logprobs, abs=1e-4)


def test_a_conversation_is_not_read_again_at_every_turn(player, monkeypatch) -> None:
    """A later prompt begins with what was read and written before: only what is new goes through the model."""
    ended: list[Completion] = []
    step = player.engine.step

    def noted() -> list[Completion]:
        ended.extend(found := step())
        return found

    monkeypatch.setattr(player.engine, "step", noted)
    kuhn = {"num_rounds": 12, "memory": "chat", "invalid_retries": 8}
    Rollouts(lambda name: legos_envs.make(name, **kuhn)).run([Job("KuhnPoker-v0", n, {"*": player}) for n in range(4)])
    asked = sum(one.prompt_tokens for one in ended)
    assert asked > 10_000 and sum(one.cached_tokens for one in ended) > 0.8 * asked


def test_salt_makes_different_games_of_one_seed(player) -> None:
    requests = [Job("Nim-v0", 1, {"*": player}, salt=salt) for salt in range(20)]
    episodes = Rollouts(legos_envs.make).run(requests)
    assert len({tuple(t.action for t in e.trajectories["player_0"].turns) for e in episodes}) > 3


def test_models_and_code_at_one_table_and_progress(player) -> None:
    seen: list[int] = []
    requests = [Job("TicTacToe-v0", s, {"player_0": player, "*": RandomPolicy()}) for s in range(12)]
    episodes = Rollouts(legos_envs.make, concurrency=5).run(requests, on_done=seen.append)
    assert len(episodes) == 12 and seen[-1] == 12 and seen == sorted(seen)
    for episode in episodes:
        assert all(t.action_tokens for t in episode.trajectories["player_0"].turns)
        assert all(t.action_tokens is None for t in episode.trajectories["player_1"].turns)


def test_engines_step_in_the_order_in_which_they_were_asked(player) -> None:
    """What comes out first is asked on first, and who is computed beside whom shows in the last bits."""
    order: list[int] = []

    class Model:
        def __init__(self, number):
            self.number, self.asked = number, []

        def submit(self, request):
            self.asked.append(request)
            return len(self.asked)

        def step(self):
            order.append(self.number)
            return [Completion(len(self.asked), [1], [0.0], [0.0], "length", None, 0, 1, 0)]

        def settle(self):
            return []

    models = [Model(number) for number in range(16)]
    random.Random(1).shuffle(models)
    seats = [{"player_0": ModelPlayer(model, player.renderer), "*": RandomPolicy()} for model in models]
    Rollouts(legos_envs.make).run([Job("Nim-v0", seed, players) for seed, players in enumerate(seats)])
    assert order[:16] == [model.number for model in models]


def test_overflow_is_the_seats_invalid_move(player) -> None:
    cramped = dataclasses.replace(player, context=40)
    (episode,) = Rollouts(legos_envs.make).run([Job("Nim-v0", 0, {"player_0": cramped, "*": player})])
    assert episode.outcome == "invalid" and not episode.truncated
    assert episode.info["offenders"] == ["player_0"]
    turns = episode.trajectories["player_0"].turns
    assert all(t.finish_reason == "overflow" and len(t.action_tokens or ()) == 0 for t in turns) and len(turns) == 2


def test_a_seat_without_a_player_is_named(player) -> None:
    with pytest.raises(KeyError, match="no player for 'player_1'"):
        Rollouts(legos_envs.make).run([Job("Nim-v0", 0, {"player_0": player})])


def test_coroutine_policies_play_beside_the_engine(player) -> None:
    async def slow(decision):
        await asyncio.sleep(0.001)
        return f"[{decision.legal_actions[0].strip('[]')}]"

    rollouts = Rollouts(legos_envs.make)
    try:
        episodes = rollouts.run([Job("Nim-v0", s, {"player_0": player, "*": slow}) for s in range(6)])
    finally:
        rollouts.close()
    assert len(episodes) == 6
    assert all(t.action_tokens is None and t.action for e in episodes for t in e.trajectories["player_1"].turns)


def test_a_policy_that_fails_costs_its_games_only() -> None:
    async def broken(decision):
        if decision.episode_seed % 3 == 0:
            raise OSError("no route")
        return decision.legal_actions[0]

    rollouts, done, failed = Rollouts(legos_envs.make), {}, {}
    try:
        games = [Job("Nim-v0", s, {"player_0": RandomPolicy(), "*": broken}) for s in range(9)]
        for _ in rollouts.stream(games, lambda i, e, d: done.update({i: e}), lambda i, e: failed.update({i: e})):
            pass
    finally:
        rollouts.close()
    assert sorted(failed) == [0, 3, 6] and all(isinstance(e, OSError) for e in failed.values())
    assert sorted(done) == [1, 2, 4, 5, 7, 8]


def test_a_game_whose_two_requests_fail_in_one_step_costs_no_other(player, monkeypatch) -> None:
    submit, step, spoilt = player.engine.submit, player.engine.step, set()

    def first_game_only(request):
        number = submit(request)
        if request.session.startswith("0.0."):
            spoilt.add(number)
        return number

    def failing():
        fault = {"finish_reason": "error", "error": "the model's logits are not finite"}
        return [dataclasses.replace(c, **fault) if c.request_id in spoilt else c for c in step()]

    monkeypatch.setattr(player.engine, "submit", first_game_only)
    monkeypatch.setattr(player.engine, "step", failing)
    done, failed = {}, {}
    games = [Job("MatrixGame-v0", seed, {"*": dataclasses.replace(player, max_tokens=1)}) for seed in range(3)]
    rollouts = Rollouts(legos_envs.make)
    for _ in rollouts.stream(games, lambda i, e, d: done.update({i: e}), lambda i, e: failed.update({i: e})):
        pass
    assert len(spoilt) == 2 and sorted(failed) == [0] and "not finite" in str(failed[0]) and sorted(done) == [1, 2]


def test_every_conversation_has_an_id_that_its_turns_share(player, monkeypatch) -> None:
    """For whoever chooses among servers: its keys and values are where its turns before were."""
    seen: dict[str, list[tuple[int, ...]]] = {}

    submit = player.engine.submit

    def listening(request):
        seen.setdefault(request.session, []).append(tuple(request.prompt))
        return submit(request)

    monkeypatch.setattr(player.engine, "submit", listening)
    jobs = [Job("KuhnPoker-v0", 1, {"*": player}, salt=salt) for salt in range(4)]
    Rollouts(lambda name: legos_envs.make(name, num_rounds=3, memory="chat")).run(jobs)
    assert len(seen) == 8
    for prompts in seen.values():
        assert all(later[: len(first)] == first for first, later in pairwise(prompts))


def test_a_seated_job_keeps_all_but_its_players_and_title() -> None:
    job = Job("env", 1, {"*": "actor"}, {"a": 1}, {"o": 2}, "group", 3, ("role",), None, (("agent", Turn((), "x")),))
    seated = job.seated({"*": "player"})
    assert (seated.players, seated.title) == ({"*": "player"}, "env")
    for field in dataclasses.fields(Job):
        if field.name not in ("players", "title"):
            assert getattr(seated, field.name) == getattr(job, field.name) != field.default, field.name
