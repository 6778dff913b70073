"""How every seat is asked, as the engine is told: whose weights, how warm, how long; in this process and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from inference import Engine, Request
from legos_envs import Seat, TextEnv
from legos_train import Arena, Trainer
from legos_train.run import build
from tests.inference.live import LiveServer
from tests.train.helpers import small

How = tuple[str | None, float, float, int]
"""The adapter, the temperature, top_p and the most tokens of a request."""
Asked = dict[str, set[How]]
WRITER: How = ("policy", 1.0, 1.0, 12)
GUEST: How = (None, 0.3, 1.0, 5)


class Seats(TextEnv):
    """Four seats say something, and the writer who says more is paid by the other; nobody is misunderstood."""

    name = "Seats-v0"
    default_memory = "state"
    zero_sum = True
    seats = {
        "writer_0": Seat("writer"),
        "writer_1": Seat("writer"),
        "guest_0": Seat("guest"),
        "judge_0": Seat("judge", trainable=False),
    }

    def play(self, table):
        said = []
        for agent in self.seats:
            said.append((yield from table.ask(agent, f"You are the {agent}.", parse=str)))
        ahead = float(len(said[0]) - len(said[1]))
        table.reward("writer_0", ahead)
        table.reward("writer_1", -ahead)


def overhear(monkeypatch: pytest.MonkeyPatch, hear: Callable[[str | None, str, Request], Any]) -> None:
    """Calls `hear` with every request to an engine of this process: the role that is asked, if it is one of `Seats`,
    the text of the prompt, and the request.
    """
    submit = Engine.submit

    def listening(self: Engine, request: Request) -> int:
        text = self.tokenizer.decode(list(request.prompt))  # type: ignore[union-attr]
        _, known, seat = text.rpartition("You are the ")
        hear(seat.partition("_")[0] if known else None, text, request)
        return submit(self, request)

    monkeypatch.setattr(Engine, "submit", listening)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Fills with what engines of this process are asked, by role."""
    seen: Asked = {}

    def hear(role: str | None, text: str, request: Request) -> None:
        how = request.sampling
        adapter = request.adapter and request.adapter.rpartition(".")[2].partition("-v0-")[0]  # RUN.policy-v0-DIGEST
        if role is not None:  # else a probe of a server
            seen.setdefault(role, set()).add((adapter, how.temperature, how.top_p, how.max_tokens or 0))

    overhear(monkeypatch, hear)
    return seen


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    one = LiveServer("tiny")
    yield one
    one.stop()


def seated(do: Callable[[Trainer], Any], **settings: Any) -> None:
    arena = Arena()
    arena.add_env("seats", Seats)
    actors = {"guest": {"model": "base", "temperature": 0.3, "max_tokens": 5}, **settings.pop("actors", {})}
    config = small(batch_size=2, actors=actors, eval={"every": 0, "games": 2}, **settings)
    trainer = Trainer(build(config, arena))
    try:
        do(trainer)
    finally:
        trainer.parts.close()


@pytest.mark.parametrize("where", ["here", "over HTTP"])
def test_every_seat_is_sampled_as_its_actor_says(request: pytest.FixtureRequest, asked: Asked, where: str) -> None:
    settings: dict[str, Any] = {"actors": {"judge": {"temperature": 0.7, "max_tokens": 3}}}
    if where == "over HTTP":
        settings["server"] = {"urls": (request.getfixturevalue("server").url,)}
    seated(lambda trainer: trainer.play(1), **settings)
    assert asked == {"writer": {WRITER}, "guest": {GUEST}, "judge": {(None, 0.7, 1.0, 3)}}


@pytest.mark.parametrize("model", ["base", "tiny"])
def test_a_seat_gets_its_system_prompt_whatever_model_answers(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    prompts: list[str] = []
    overhear(monkeypatch, lambda role, text, request: prompts.append(text))
    actors = {"judge": {"model": model, "system_prompt": "Be strict."}}
    seated(lambda trainer: trainer.play(1), actors=actors)
    assert {"Be strict." in text for text in prompts if "You are the judge" in text} == {True}
    assert not any("Be strict." in text for text in prompts if "You are the judge" not in text)


def test_a_judge_that_nobody_names_is_the_base_at_its_likeliest(asked: Asked) -> None:
    seated(lambda trainer: trainer.play(1))
    assert asked == {"writer": {WRITER}, "guest": {GUEST}, "judge": {(None, 0.0, 1.0, 12)}}


def test_a_member_of_the_league_is_sampled_as_the_seat_that_it_takes(asked: Asked) -> None:
    """`sft` may be sampled at other temperatures than 1, so that the seat can be told from a default."""
    warm: dict[str, Any] = {"loss": {"name": "sft", "kl": 0.0}, "sampling": {"temperature": 0.8, "top_p": 0.9}}
    league = {"mode": "fsp", "snapshot_every": 1, "latest": 0.0}
    seated(lambda trainer: trainer.play(1), **warm, league=league)
    assert asked["writer"] == {("policy", 0.8, 0.9, 12), ("step_0", 0.8, 0.9, 12)}
    assert asked["guest"] == {(None, 0.3, 0.9, 5)}


def test_it_is_measured_at_the_temperatures_of_its_seats(asked: Asked) -> None:
    seated(lambda trainer: trainer.parts.measurer.measure("policy"))
    assert asked["writer"] == {WRITER, (None, *WRITER[1:])}, "against the base"
    assert asked["guest"] == {GUEST} and asked["judge"] == {(None, 0.0, 1.0, 12)}


def test_what_is_served_is_the_policy_and_the_pool() -> None:
    """A member keeps the version that it left the learner with; who leaves the pool leaves the engine."""

    def three_steps(trainer: Trainer) -> None:
        for _ in range(3):
            trainer.step()
        found = {name: info.version for name, info in trainer.parts.engine.adapters().items()}
        assert found == {"policy": 3, "step_2": 2, "step_3": 3}

    seated(three_steps, steps=3, league={"mode": "fsp", "snapshot_every": 1, "pool": 2})
