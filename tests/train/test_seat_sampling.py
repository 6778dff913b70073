"""Every sampling parameter may be set for a role and for a held-out env, and reaches who plays there."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from inference import DrawParams, Engine, Request
from legos_train import Actor, Arena, ConfigError, TrainConfig, Trainer, train
from legos_train.config import sections
from legos_train.disk import MetricsFile
from legos_train.run import build
from tests.eval.stub import Stub, chat, serving
from tests.train.helpers import small
from tests.train.test_wiring_seats import Seats, overhear

DRAWS: dict[str, tuple[float, ...]] = {
    "temperature": (0.3, 0.5, 0.6),
    "top_p": (0.8, 0.7, 0.9),
    "top_k": (5, 4, 3),
    "min_p": (0.02, 0.03, 0.04),
}
"""An unusual value of every number of `DrawParams` for each of three tables."""
GUEST, JUDGE, MATH = ({name: values[i] for name, values in DRAWS.items()} for i in range(3))
USUAL = vars(DrawParams())
How = tuple[DrawParams, int | None, int]
"""How tokens are drawn, and the most tokens of an action and of its thought (-1: no limit)."""
Asked = dict[str, set[How]]


def test_there_is_a_value_for_every_number() -> None:
    """A new number of `DrawParams` needs a column above, and is then part of the runs below."""
    assert DRAWS.keys() == USUAL.keys() == {one.name for one in fields(DrawParams)}
    assert {"max_tokens", "thinking_tokens", *USUAL} == set(sections.OF_A_SEAT)
    for entry in (sections.ActorEntry, sections.HeldOutEntry):
        assert set(sections.OF_A_SEAT) <= entry.model_fields.keys()
        assert all("none: `sampling." in entry.field_texts()[name] for name in USUAL)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Fills with what engines of this process are asked, by role; "math" is what no seat of `Seats` is asked."""
    seen: Asked = {}

    def hear(role: str | None, text: str, request: Request) -> None:
        how = request.sampling
        seen.setdefault(role or "math", set()).add((DrawParams.of(how), how.max_tokens, how.thinking_token_budget))

    overhear(monkeypatch, hear)
    return seen


@pytest.fixture
def endpoint() -> Iterator[Stub]:
    with serving(lambda number, body: chat("yes")) as server:
        yield server


def arena() -> Arena:
    made = Arena()
    made.add_env("seats", Seats)
    return made


def test_a_whole_run_samples_every_seat_as_its_table_says(
    thinking_model_dir: Path, tmp_path: Path, asked: Asked
) -> None:
    def run(steps: int, *, resume: bool = False) -> None:
        config = small(
            tmp_path / "run",
            steps=steps,
            batch_size=2,
            model=str(thinking_model_dir),
            thinking="on",
            max_rows=8,
            sampling={"max_tokens": 12, "thinking_tokens": 6},
            actors={
                "guest": {"model": "base", "max_tokens": 8, **GUEST},
                "judge": {"thinking_tokens": 3, **JUDGE},
            },
            eval={
                "every": 0,
                "games": 2,
                "env": [{"id": "GSM8K-v0", "games": 2, "max_tokens": 5, "thinking_tokens": 2, **MATH}],
            },
            average={"kind": "none"},
            optim={"lr_end": 1.0},
            loss={"kl_end": None},
            checkpoint={"every": 1},
        )
        train(arena(), config, resume=resume, quiet=True)
        kept = tmp_path / "run/config.toml"
        assert TrainConfig.load(kept).actors == config.actors and TrainConfig.load(kept).eval == config.eval
        written = tomllib.loads(kept.read_text())
        assert written["actors"]["guest"].items() >= {**GUEST, "max_tokens": 8}.items()
        assert written["actors"]["judge"].items() >= {**JUDGE, "thinking_tokens": 3}.items()
        assert written["eval"]["env"][0].items() >= {**MATH, "max_tokens": 5, "thinking_tokens": 2}.items()

    told = {
        "writer": {(DrawParams(), 12, 6)},
        "guest": {(DrawParams(**GUEST), 8, 4)},
        "judge": {(DrawParams(**JUDGE), 12, 3)},
        "math": {(DrawParams(**MATH), 5, 2)},
    }
    run(1)
    assert asked == told
    asked.clear()
    run(2, resume=True)
    assert asked == told
    assert [row["step"] for row in MetricsFile.read(tmp_path / "run/metrics.jsonl")] == [1, 2]


def test_an_endpoint_is_sent_what_its_seat_says(tmp_path: Path, endpoint: Stub) -> None:
    actors = {
        "guest": {"model": endpoint.spec, "max_tokens": 7, "thinking_tokens": 4, **GUEST},
        "judge": {"model": endpoint.spec, **JUDGE},
    }
    train(
        arena(),
        small(tmp_path / "run", steps=1, batch_size=2, actors=actors, eval={"every": 0, "games": 2}),
        quiet=True,
    )
    own = {"model", "messages", "seed"}
    for role, sent in {
        "guest": {**GUEST, "max_tokens": 7, "thinking_token_budget": 4},
        "judge": {**JUDGE, "max_tokens": 12},
    }.items():
        bodies = [body for body in endpoint.asked if f"You are the {role}_0" in body["messages"][-1]["content"]]
        assert bodies and all({k: v for k, v in body.items() if k not in own} == sent for body in bodies)


def test_other_models_share_an_engine_however_their_seats_are_sampled(
    monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    loaded: list[Any] = []
    load = Engine.load.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Engine, "load", classmethod(lambda cls, *a, **k: loaded.append(a) or load(cls, *a, **k)))
    actors = {"guest": {"model": "tiny", "max_tokens": 4, **GUEST}, "judge": {"model": "tiny", **JUDGE}}
    trainer = Trainer(build(small(batch_size=2, actors=actors, eval={"every": 0, "games": 2}), arena()))
    try:
        trainer.play(1)
    finally:
        trainer.parts.close()
    assert asked["guest"] == {(DrawParams(**GUEST), 4, -1)} and asked["judge"] == {(DrawParams(**JUDGE), 12, -1)}
    assert loaded == [("tiny",)]


def test_an_opponent_by_name_is_sampled_as_the_seat_that_it_takes(asked: Asked) -> None:
    """`sft` may be sampled from another distribution than the policy's own, so that the seat shows."""
    league = {"mode": "fixed", "opponents": ("tiny",), "latest": 0.0}
    given: dict[str, Any] = {"loss": {"name": "sft", "kl": 0.0}, "sampling": MATH, "league": league}
    trainer = Trainer(build(small(batch_size=2, eval={"every": 0, "games": 2}, **given), arena()))
    try:
        trainer.play(1)
        assert "writer" in asked and asked["writer"] == {(DrawParams(**MATH), 12, -1)}
        asked.clear()
        trainer.parts.measurer.measure("policy")
        assert asked["writer"] == {(DrawParams(**MATH), 12, -1)}
    finally:
        trainer.parts.close()


@pytest.mark.parametrize("name", DRAWS)
def test_a_table_changes_only_what_it_names(name: str) -> None:
    default = Actor("*", max_tokens=9, thinking_tokens=3, **{one: values[2] for one, values in DRAWS.items()})
    for value in (DRAWS[name][0], 1 if name == "top_p" else 0):
        sampling = sections.ActorEntry(**{name: value}).over(default, "x")
        assert Actor("*", **sampling) == replace(default, **{name: value})
        written = sections.HeldOutEntry(id="GSM8K-v0", **{name: value}).plain()
        assert sections.HeldOutEntry(**written).over(default, "x") == sampling and written[name] == value
    assert sections.ActorEntry(**{name: "none"}) == sections.ActorEntry() and name not in sections.ActorEntry().plain()
    other = next(one for one in DRAWS if one not in (name, "temperature"))
    config = small(actors={"judge": {other: DRAWS[other][0]}})
    parts = build(config, arena())
    parts.close()
    judge = parts.arena.actors["judge"]
    assert (judge.temperature, getattr(judge, other)) == (0.0, DRAWS[other][0])


@pytest.mark.parametrize("name", DRAWS)
def test_a_value_out_of_range_is_refused_where_it_was_written(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"actors\.guest\.{name}: "):
        small(actors={"guest": {name: -1}})
    with pytest.raises(ConfigError, match=rf"eval\.env\.0\.{name}: "):
        small(eval={"env": [{"id": "GSM8K-v0", name: -1}]})


def test_a_limit_of_thoughts_is_inherited_as_a_share_and_only_by_the_runs_model() -> None:
    default = Actor("*", max_tokens=30, thinking_tokens=20)
    entry = sections.ActorEntry(max_tokens=10)
    assert [entry.over(default, "x", model)["thinking_tokens"] for model in ("policy", "base", "tiny")] == [6, 6, None]
    assert [default.with_model(model).thinking_tokens for model in ("policy", "base", "tiny")] == [20, 20, None]
    assert default.with_model("tiny") == replace(default, model="tiny", thinking_tokens=None)
    assert sections.ActorEntry().over(default, "x")["thinking_tokens"] == 20
    assert sections.ActorEntry(thinking_tokens=0).over(default, "x", "tiny")["thinking_tokens"] == 0
    assert sections.ActorEntry().over(replace(default, thinking_tokens=None), "x")["thinking_tokens"] is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"actors": {"guest": {"thinking_tokens": 12}}},
            r"actors\.guest: thinking_tokens \(12\).*less than max_tokens \(12\)",
        ),
        (
            {"eval": {"env": [{"id": "GSM8K-v0", "name": "math", "max_tokens": 4, "thinking_tokens": 4}]}},
            r"eval\.env 'math': thinking_tokens \(4\) must be less than max_tokens \(4\)",
        ),
    ],
)
def test_a_thought_as_long_as_the_action_is_refused_before_the_first_step(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        build(small(**changes), arena())
