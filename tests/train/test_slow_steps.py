"""A step that takes long goes on in a thread: others play meanwhile, and every episode is what it would be alone."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from legos_envs import Runner, Seat, TextEnv
from legos_train.rollout import Job, Rollouts

stepped_in: list[str] = []
happened: list[bool] = []


def busy() -> bool:
    """What a bomb does: a test puts something here that needs others to go on meanwhile, and says whether they did."""
    time.sleep(0.3)
    return True


class Sleepy(TextEnv):
    """A bomb keeps its step busy; everybody else is done at once."""

    name = "Sleepy-v0"
    seats = {"player_0": Seat("player"), "player_1": Seat("player")}
    slow_steps = True
    default_max_turns = 100

    def __init__(self, turns: int = 3, **kwargs: Any):
        self.turns = turns
        super().__init__(**kwargs)

    def play(self, table: Any) -> Any:
        for turn in range(self.turns):
            said = yield from table.gather(table.ask(agent, f"Turn {turn}.") for agent in self.seats)
            stepped_in.append(threading.current_thread().name)
            if "bomb" in said:
                happened.append(busy())
            if "break" in said:
                raise KeyError("broken")
            for agent, text in zip(self.seats, said):
                table.reward(agent, float(len(text)))
                table.tell(agent, f"Both said {said}.")


class Prompt(Sleepy):
    name = "Prompt-v0"
    slow_steps = False


ENVS = {"sleepy": Sleepy, "prompt": Prompt}


def rollouts() -> Rollouts:
    return Rollouts(lambda name, **kwargs: ENVS[name](**kwargs))


async def talk(decision: Any) -> str:
    return f"{decision.agent} {decision.turn} {decision.seed % 7}"


async def bomb(decision: Any) -> str:
    return "bomb" if decision.agent == "player_0" and decision.turn == 1 else "no"


async def fail(decision: Any) -> str:
    return "break"


@pytest.fixture(autouse=True)
def nothing_yet() -> None:
    stepped_in.clear()
    happened.clear()


def test_other_episodes_play_while_a_step_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.Event()
    monkeypatch.setattr(f"{__name__}.busy", lambda: others.wait(20))
    playing, order = rollouts(), []

    def done(index: int, *_: Any) -> None:
        order.append(index)
        if len(order) == 4:
            others.set()

    jobs = [Job("sleepy", 0, {"*": bomb}), *(Job("prompt", seed, {"*": talk}, args={"turns": 20}) for seed in range(4))]
    for _ in playing.stream(jobs, done):
        pass
    playing.close()
    assert happened == [True] and order[-1] == 0
    assert {name.partition("_")[0] for name in stepped_in} == {"MainThread", "legos-slow-step"}


class Twice(Sleepy):
    """Asks again after a step that is kept busy; whoever touches it meanwhile meets a generator that runs."""

    name = "Twice-v0"

    def play(self, table: Any) -> Any:
        for turn in range(self.turns):
            first = yield from table.ask("player_0", f"Turn {turn}.")
            happened.append(busy())
            said = yield from table.gather(table.ask(agent, f"After {first}.") for agent in self.seats)
            happened.append(busy())
            table.reward("player_0", float(len(said)))


ENVS["twice"] = Twice


@pytest.mark.parametrize("policy", [talk, lambda decision: f"{decision.agent} {decision.turn}"], ids=["away", "here"])
def test_an_episode_is_left_alone_while_a_thread_steps_it(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []

    def pause() -> bool:
        inside.append(threading.get_ident())
        time.sleep(0.1)
        return True

    monkeypatch.setattr(f"{__name__}.busy", pause)
    monkeypatch.setattr("legos_train.rollout.slow_steps.QUICK", 0.05)
    touched: list[int] = []
    real = Runner.pending

    def pending(runner: Runner) -> Any:
        if playing._slow is not None and any(playing._slow._steps):
            touched.extend(key for key in playing._slow._steps if live.get(key) is runner)
        return real(runner)

    playing, live = rollouts(), {}
    begin = playing._begin

    def begun(index: int, job: Job) -> Any:
        game = begin(index, job)
        live[id(game)] = game.runner
        return game

    monkeypatch.setattr(Runner, "pending", pending)
    monkeypatch.setattr(playing, "_begin", begun)
    for seed in range(2):  # alone: with others the first answer of two is not waited for
        (episode,) = playing.run([Job("twice", seed, {"*": policy})])
        assert episode.trajectories["player_0"].total == 6.0
    playing.close()
    assert not touched and threading.get_ident() not in inside


def test_two_slow_steps_go_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)
    monkeypatch.setattr(f"{__name__}.busy", lambda: both.wait(20) >= 0)
    playing = rollouts()
    assert len(playing.run([Job("sleepy", seed, {"*": bomb}) for seed in range(4)])) == 4
    playing.close()
    assert happened == [True] * 4


def test_episodes_are_those_without_threads() -> None:
    def played(name: str) -> list[Any]:
        playing = rollouts()
        jobs = [Job(name, seed, {"*": bomb if seed == 3 else talk}) for seed in range(12)]
        episodes = playing.run(jobs)
        playing.close()
        return [(e.returns, [(a, [t.action for t in tr.turns]) for a, tr in e.trajectories.items()]) for e in episodes]

    assert played("sleepy") == played("prompt")


def test_what_a_step_raises_ends_the_batch_or_the_episode() -> None:
    playing = rollouts()
    with pytest.raises(KeyError, match="broken"):
        playing.run([Job("sleepy", 0, {"*": fail})])
    failed: list[tuple[int, str]] = []
    done: list[int] = []
    jobs = [Job("sleepy", 0, {"*": fail}), Job("sleepy", 1, {"*": bomb}), Job("sleepy", 2, {"*": talk})]
    for _ in playing.stream(
        jobs, lambda index, *_: done.append(index), lambda index, error: failed.append((index, repr(error)))
    ):
        pass
    playing.close()
    assert failed == [(0, "KeyError('broken')")] and sorted(done) == [1, 2]


def test_the_envs_that_compare_or_run_say_so() -> None:
    import legos_envs
    from legos_train.rollout.slow_steps import may_take_long

    slow = {id for id in legos_envs.registered() if may_take_long(legos_envs.make(id))}
    problems = {"Dataset-v0", "GSM8K-v0", "EnsembleVote-v0", "SelfDistillation-v0", "ProposerSolver-v0", "SPICE-v0"}
    assert slow == problems | {"Amplification-v0", "CodeGen-v0"}
    assert may_take_long(legos_envs.make("RedBlue-v0", variant="patch"))
