"""`loss.name = "expected"`: every action of every decision point, weighed and valued by the game's tree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from legos_envs import exact
from legos_train import TrainConfig, Trainer, train
from legos_train.errors import ConfigError
from legos_train.evaluation import exact_values
from legos_train.loss.tokens import mirror
from legos_train.run import build
from legos_train.run.all_actions.decision_points import MirrorStep, mirrored
from tests.train.helpers import digest, small

EXPECTED: dict[str, Any] = {
    "batch_size": 4,
    "credit": {"return_scale": "none"},
    "loss": {"name": "expected", "aggregation": "constant", "kl": 0.0},
}


@pytest.fixture
def kuhn() -> Iterator[Trainer]:
    trainer = Trainer(build(small(**EXPECTED)))
    yield trainer
    trainer.parts.close()


def learned_from(trainer: Trainer) -> Any:
    """The decisions of the step to come."""
    trainer.assign_credit(trainer.play(1), 0)
    fresh, _ = trainer.parts.replay.take(0)
    assert fresh.decisions is not None
    return fresh, fresh.decisions


def table_of(trainer: Trainer) -> dict[Any, dict[str, float]]:
    measurer = trainer.parts.measurer
    (task,) = measurer.tasks.values()
    players = [measurer.player(task, agent, "policy") for agent in task.slot.seats]
    return exact_values.action_probabilities(task.env, players, task.info_sets or ())[0]  # type: ignore[arg-type]


def test_weights_are_how_often_an_action_is_played_and_advantages_what_it_gains(kuhn: Trainer) -> None:
    _, decisions = learned_from(kuhn)
    (task,) = kuhn.parts.measurer.tasks.values()
    game, table = task.env.game, table_of(kuhn)  # type: ignore[attr-defined]
    assert len(decisions.episodes) == 12 and sum(len(w) for one in decisions.weights for w in one.values()) == 24
    weight = {}
    for episode, advantages, weights in zip(decisions.episodes, decisions.advantages, decisions.weights):
        ((agent, seat),) = episode.trajectories.items()
        info = next(
            i
            for i in exact.info_sets(game)
            if task.env.observation_in(i)["messages"][-1]["content"]  # type: ignore[attr-defined]
            and tuple(seat.turns[0].prompt_tokens or ()) == _prompt(kuhn, task, i)
        )
        weight[info] = sum(weights[agent])
        for turn, advantage in zip(seat.turns, advantages[agent]):
            # what the seat gets if it always plays this action here, by another way: the value of the changed policy
            forced = {**table, info: {m: float(m == turn.action) for m in info.legal}}
            change = _value(game, forced, info.player) - _value(game, table, info.player)
            reach = exact_values.regrets(game, table)[info].reach
            assert advantage * reach == pytest.approx(change, abs=0.02 * reach)  # apart from illegal answers
    assert sum(weight.values()) == pytest.approx(1.0, abs=0.01)
    reaches = {info: one.reach for info, one in exact_values.regrets(game, table).items()}
    for info, got in weight.items():
        assert got == pytest.approx(reaches[info] / sum(reaches.values()), abs=0.01)


def test_exploring_changes_what_decision_points_weigh_and_not_what_actions_are_worth() -> None:
    trainer = Trainer(build(small(**EXPECTED | {"optim": {"lr": 0.02}})))
    try:
        trainer.step()  # away from even play
        plain, decisions = learned_from(trainer)[1], trainer.parts.decisions
        assert decisions is not None
        decisions.explore = 0.5
        mixed, table = decisions.of(trainer.last.kept, 1), table_of(trainer)  # type: ignore[union-attr]
        (task,) = trainer.parts.measurer.tasks.values()
        explored = {i: {m: 0.5 * p + 0.5 / len(i.legal) for m, p in row.items()} for i, row in table.items()}
        reaches = [one.reach for one in exact_values.regrets(task.env.game, explored).values()]  # type: ignore[attr-defined]
        for before, after in zip(plain.advantages, mixed.advantages, strict=True):
            assert all(after[agent] == pytest.approx(values, abs=1e-6) for agent, values in before.items())
        before, after = ([sum(w.sum() for w in one.values()) for one in some.weights] for some in (plain, mixed))
        assert after == pytest.approx([reach / sum(reaches) for reach in reaches], abs=0.01)
        assert before != pytest.approx(after, abs=0.02)
    finally:
        trainer.parts.close()


def test_illegal_mass_is_that_of_the_policy(kuhn: Trainer) -> None:
    """What `legality` costs is what the exact numbers say of the same policy, the brackets and the end counted."""
    loss = kuhn.config.loss.model_copy(update={"legality": 1.0})
    kuhn.config = kuhn.config.model_copy(update={"loss": loss})
    fresh, decisions = learned_from(kuhn)
    batch = kuhn.pack(fresh)
    settings = loss.fixed(0.0, exact=True)
    seen = kuhn.parts.backend.forward_backward(batch, settings, 0)  # type: ignore[arg-type]
    reached = illegal = 0.0
    for weights in decisions.weights:
        for each in weights.values():
            reached += float(each.sum())
    illegal = 1.0 - reached  # of answers, weighed by how often play comes to them
    assert 1e-4 < illegal < 0.01
    assert seen["illegal_mass"] == pytest.approx(illegal, rel=0.02)


def test_answers_with_reasons_have_no_price_and_the_run_says_so(kuhn: Trainer, monkeypatch: Any) -> None:
    loss = kuhn.config.loss.model_copy(update={"legality": 1.0})
    kuhn.config = kuhn.config.model_copy(update={"loss": loss})
    fresh, _ = learned_from(kuhn)
    assert (kuhn.pack(fresh).legal >= 0).all()
    monkeypatch.setattr(kuhn.parts.renderer, "reasons", True)
    with pytest.warns(UserWarning, match="loss.legality has no effect"):
        batch = kuhn.pack(fresh)
    assert (batch.legal == -1).all()


def _prompt(trainer: Trainer, task: Any, info: Any) -> tuple[int, ...]:
    return tuple(trainer.parts.renderer.start(task.env.observation_in(info)["messages"]))


def _value(game: Any, table: Any, player: int) -> float:
    return float(exact.expected_returns(game, table.__getitem__)[player])


def test_the_gradient_is_that_of_the_return(kuhn: Trainer) -> None:
    """Along a random direction: what each player's return changes by when its own policy moves, the other's held."""
    fresh, _ = learned_from(kuhn)
    batch, backend = kuhn.pack(fresh), kuhn.parts.backend
    (task,) = kuhn.parts.measurer.tasks.values()
    game = task.env.game  # type: ignore[attr-defined]
    start = table_of(kuhn)
    visits = sum(one.reach for one in exact_values.regrets(game, start).values())
    policy = backend.policy  # type: ignore[attr-defined]
    backend.forward_backward(batch, kuhn.learner.settings(1), 0)
    weights, grads = policy.trainable(), backend._grads  # type: ignore[attr-defined]
    random = np.random.default_rng(0)
    names = [name for name in weights if name.endswith("lora_b")]
    direction = {name: random.normal(size=weights[name].shape).astype(np.float32) for name in names}
    predicted = -visits * sum(float((np.array(grads[name]) * direction[name]).sum()) for name in names)
    size, values = 1e-3, []
    for sign in (1, -1):
        policy.load({**weights, **{n: weights[n] + sign * size * direction[n] for n in names}})
        kuhn.parts.sync.policy()
        moved = table_of(kuhn)
        own = [{i: (moved if i.player == player else start)[i] for i in start} for player in (0, 1)]
        values.append(sum(_value(game, own[player], player) for player in (0, 1)))
    assert (values[0] - values[1]) / (2 * size) == pytest.approx(predicted, rel=0.05)
    assert abs(predicted) > 0.01


def test_a_step_learns_from_all_actions_and_logs_what_was_played(kuhn: Trainer) -> None:
    record = kuhn.step()
    assert record["episodes"] == 4 and record["action_tokens"] > 4 * 12 and record["updates"] == 1
    assert record["mismatch_max"] < 1e-3
    assert kuhn.last is not None
    turns = [u for e in kuhn.last.episodes for t in e.trajectories.values() for u in t.turns]
    written = record["tokens_per_second"] * record["seconds_play"]
    assert written == pytest.approx(sum(len(turn.action_tokens or ()) for turn in turns)), "what was sampled, no more"
    assert kuhn.last is not None and kuhn.last.decisions is not None
    for episode, advantages in zip(kuhn.last.kept, kuhn.last.advantages):
        for agent, values in advantages.items():
            for turn, value in zip(episode.trajectories[agent].turns, values):
                key = tuple(turn.prompt_tokens or ()), tuple(turn.action_tokens or ())
                assert value == kuhn.last.decisions.values["KuhnPoker-v0", (None, None)][key]


def test_against_a_league_only_the_learners_decisions_are_learned_from() -> None:
    league = {"mode": "fsp", "snapshot_every": 1, "opponents": ("random",)}
    optim = {"lr": 0.01}  # the snapshot of the start is then another policy
    trainer = Trainer(build(small(**EXPECTED | {"batch_size": 8, "league": league, "optim": optim})))
    try:
        before = table_of(trainer)
        trainer.step()
        fresh, decisions = learned_from(trainer)
        seatings = {tuple(t.info.get("member") for t in e.trajectories.values()) for e in fresh.kept}
        assert {(None, "random"), (None, "step_0"), ("step_0", None)} <= seatings
        assert sum(w.sum() for one in decisions.weights for w in one.values()) == pytest.approx(1.0, abs=0.01)
        own = sum(seating.count(None) for seating in seatings)
        assert len(decisions.episodes) == 6 * own, "the six information sets of each of the learner's seats"
        # the first decision of player 0, by hand, against the policy of the start
        (task,) = trainer.parts.measurer.tasks.values()
        game, now = task.env.game, table_of(trainer)  # type: ignore[attr-defined]
        info = next(i for i in exact.info_sets(game) if i.player == 0)
        met = {i: (now if i.player == 0 else before)[i] for i in now}
        gains = []
        for move in info.legal:
            forced = {**met, info: {m: float(m == move) for m in info.legal}}
            gains.append((_value(game, forced, 0) - _value(game, met, 0)) / exact_values.regrets(game, met)[info].reach)
        found = [
            advantages["player_0"]
            for one, advantages in zip(decisions.episodes, decisions.advantages)
            if "player_0" in advantages
            and tuple(one.trajectories["player_0"].turns[0].prompt_tokens or ()) == _prompt(trainer, task, info)
        ]
        assert any(np.allclose(values, gains, atol=0.02) for values in found), (found, gains)
        same = [
            (_value(game, {**now, info: {m: float(m == move) for m in info.legal}}, 0)
             - _value(game, now, 0)) / exact_values.regrets(game, now)[info].reach
            for move in info.legal
        ]  # fmt: skip
        assert not np.allclose(same, gains, atol=0.05), "the two opponents are told apart"
        for episode, logged in zip(fresh.kept, fresh.advantages, strict=True):
            alone = trainer.parts.decisions.of([episode], 1).advantages_of(episode)  # type: ignore[union-attr]
            for agent, values in alone.items():
                assert logged[agent] == pytest.approx(values, abs=1e-6), "what is logged is against who was met"
    finally:
        trainer.parts.close()


@pytest.mark.slow
def test_the_base_and_a_model_of_this_machine_are_opponents_whose_probabilities_are_known() -> None:
    league = {"mode": "fixed", "opponents": ("base", "tiny", "random"), "latest": 0.0}
    trainer = Trainer(build(small(**EXPECTED | {"batch_size": 12, "league": league, "optim": {"lr": 0.01}})))
    try:
        before = table_of(trainer)
        trainer.step()
        decisions = trainer.parts.decisions
        (task,) = trainer.parts.measurer.tasks.values()
        assert decisions is not None
        for member in ("base", "tiny"):
            for info, answers in decisions._policy(task, member, {0, 1}).items():
                mass = [answer.probability for answer in answers]
                assert mass == pytest.approx([before[info][move] * sum(mass) for move in info.legal], abs=1e-4)
        fresh, found = learned_from(trainer)
        met = {t.info.get("member") for e in fresh.kept for t in e.trajectories.values()}
        assert met == {None, "base", "tiny", "random"} and found.episodes
    finally:
        trainer.parts.close()


@pytest.mark.slow
def test_it_comes_close_to_the_equilibrium_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**EXPECTED, "steps": 6, "checkpoint": {"every": 2}, "optim": {"lr": 1e-3}}
    settings["loss"] = {**EXPECTED["loss"], "kl": 0.2, "kl_end": None, "magnet_every": 3}
    whole = train(config=small(tmp_path / "whole", **settings), quiet=True)
    assert whole.last["nash_conv"] < 0.9 * whole.start["nash_conv"]

    class Interrupted(Exception):
        pass

    def stop(record: dict) -> None:
        if record["step"] == 5:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(config=small(tmp_path / "broken", **settings), quiet=True, on_step=stop)
    train(config=small(tmp_path / "broken", **settings), quiet=True, resume=True)
    for name in ("adapter.safetensors", "optimizer.safetensors", "magnet.safetensors"):
        a, b = (tmp_path / run / "checkpoints/step_6" / name for run in ("whole", "broken"))
        assert digest(a) == digest(b), name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"league": {"mode": "fixed", "opponents": ("http://127.0.0.1:9/v1#m",)}}, "only gives answers"),
        ({"league": {"mode": "fsp", "opponents": ("human",)}}, "only gives answers"),
    ],
)
def test_what_cannot_be_solved_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(small(**EXPECTED | settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"asynchronous": {"enabled": True}},
        {"replay": {"reuse": 2}},
        {"filter": {"draws": 0.5}},
        {"filter": {"draw_retries": 2}},
        {"filter": {"keep": "winners"}},
        {"filter": {"zero_advantages": True}},
    ],
)
def test_what_needs_sampled_actions_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="learns from no samples"):
        TrainConfig(loss={"name": "expected"}, **settings)  # type: ignore[arg-type]


def test_exploring_is_refused_where_actions_are_sampled() -> None:
    with pytest.raises(ValueError, match="explore is a setting of the losses 'expected' and 'mirror'"):
        TrainConfig(loss={"explore": 0.1})  # type: ignore[arg-type]


def test_the_target_of_mirror_descent_by_hand() -> None:
    # p = (.5, .25), a quarter illegal; exp(step A) = (1, 4): q is proportional to (.5, 1)
    soft = mirrored(np.array([0.5, 0.25]), np.array([0.0, np.log(4.0) / 2]), MirrorStep(2.0))
    assert np.exp(2 * soft) * [0.5, 0.25] == pytest.approx([1 / 3, 2 / 3])
    old = mx.log(mx.array([0.5, 0.25]))
    slope = mx.grad(lambda new: (mx.exp(old) * mirror(new, mx.array(soft.astype(np.float32)), 2.0)).sum())(old)
    assert slope.tolist() == pytest.approx([-1 / 6, -1 / 3])  # -q / step


def test_mirror_descent_brings_back_what_play_has_lost() -> None:
    """Step by step an exact fit to the target makes the better action likely again, however rare it has become."""
    masses, better, most = np.array([1.0, 1e-40]), np.array([0.0, 1.0]), []
    for _ in range(8):
        push = np.exp(mirrored(masses, better, MirrorStep(1.0, 0.01)))
        assert np.isfinite(push.astype(np.float32)).all()
        masses = np.maximum(masses, 1e-30) * push
        assert masses.sum() == pytest.approx(1.0)
        most.append(masses[1])
    assert most[0] == pytest.approx(0.01 * np.e / (1 + 0.01 * np.e)) and most == sorted(most) and most[-1] > 0.9
    rare = np.array([0.999, 0.001])
    bad = rare * np.exp(mirrored(rare, -better, MirrorStep(1.0, 0.01)))
    assert bad[1] < 0.004  # the price: what is rightly rare is played about this often


def test_a_short_step_of_mirror_descent_has_the_advantages_of_expected(kuhn: Trainer) -> None:
    (fresh, plain), decisions = learned_from(kuhn), kuhn.parts.decisions
    assert decisions is not None
    decisions.mirror = MirrorStep(1e-6)
    short = decisions.of(fresh.episodes, 0)
    for before, after in zip(plain.advantages, short.advantages, strict=True):
        for agent, values in before.items():
            # all actions alike gain what the illegal answers lose: q is over legal actions alone
            assert after[agent] - after[agent][0] == pytest.approx(values - values[0], abs=1e-4)
    assert plain.values == short.values  # of the games that are looked at


def test_a_bad_action_is_not_made_likelier_because_the_good_one_is_certain() -> None:
    """`skip_forced` would leave out the likely action, whose push is what balances that of the others."""
    loss = EXPECTED["loss"] | {"name": "mirror", "skip_forced": 0.6}
    trainer = Trainer(build(small(**EXPECTED | {"loss": loss})))
    try:
        fresh, decisions = learned_from(trainer)
        batch: Any = trainer.pack(fresh)
        seats = [seat for one in decisions.episodes for seat in one.trajectories.values()]
        likely = [np.exp(sum(turn.logprobs or ())) > 0.45 for seat in seats for turn in seat.turns]
        assert any(likely) and batch.counters.forced_tokens
        told_apart = np.unique(batch.sequence)
        assert told_apart.tolist() == list(range(24)), "of every action the token that tells it from the others"
    finally:
        trainer.parts.close()


@pytest.mark.slow
def test_passes_bring_the_policy_to_the_target() -> None:
    optim = {"lr": 2e-3, "epochs": 16, "grad_clip": 10.0}
    loss = EXPECTED["loss"] | {"name": "mirror", "mirror_step": 1.0}
    trainer = Trainer(build(small(**EXPECTED | {"optim": optim, "loss": loss})))
    try:
        _, decisions = learned_from(trainer)
        start = _distance(trainer, decisions, table_of(trainer))
        trainer.step()
        end = _distance(trainer, decisions, table_of(trainer))
        assert end < 0.5 * start, (start, end)
    finally:
        trainer.parts.close()


def _distance(trainer: Trainer, decisions: Any, table: dict[Any, dict[str, float]]) -> float:
    """The mean over decision points of how far their probabilities are from the target's."""
    (task,) = trainer.parts.measurer.tasks.values()
    gaps = []
    infos = exact.graph_of(task.env.game).infosets  # type: ignore[attr-defined]
    for info, episode, soft in zip(infos, decisions.episodes, decisions.advantages, strict=True):
        ((agent, seat),) = episode.trajectories.items()
        old = np.exp([sum(turn.logprobs or ()) for turn in seat.turns])
        gaps.append(np.abs(old * np.exp(soft[agent]) - [table[info][turn.action] for turn in seat.turns]).max())
    return float(np.mean(gaps))


def test_mirror_learns_and_says_what_does_not_fit(tmp_path: Path) -> None:
    loss = EXPECTED["loss"] | {"name": "mirror", "kl": 0.2, "mirror_step": 1.0}
    settings = EXPECTED | {"steps": 3, "batch_size": 1, "optim": {"lr": 5e-3, "epochs": 3}, "loss": loss}
    result = train(config=small(tmp_path / "run", **settings), quiet=True)
    assert result.last["nash_conv"] < 0.8 * result.start["nash_conv"]
    trainer = Trainer(build(small(loss=loss | {"mirror_step": 0.7, "mirror_floor": 0.2})))
    table = trainer.parts.decisions
    trainer.parts.close()
    assert table is not None and table.mirror == table.branches.mirror == MirrorStep(0.7, 0.2)
    with pytest.raises(ValueError, match="mirror_step is a setting of the loss 'mirror'"):
        small(loss={"name": "ppo", "mirror_step": 0.5})
    with pytest.raises(ValueError, match=r"mirror_floor is a setting of the loss 'mirror' .*, got 0\.01$"):
        small(loss={"name": "expected", "mirror_floor": 0.01})
    for stale in ({"truncate_ratio": 0.5}, {"mask_ratio": (0.5, 2.0)}):  # a weight would bend the target
        with pytest.raises(ValueError, match="is an off-policy correction, which 'mirror' does not need"):
            small(loss={"name": "mirror", **stale})
    odd: list[dict[str, Any]] = [
        {"loss": {"name": "mirror", "mirror_step": 0.7}},
        {"loss": {"name": "mirror", "explore": 0.2}},
        {"loss": {"name": "mirror", "mirror_floor": 0.1}},
        {"credit": {"return_scale": "none"}},  # the game's values are scaled once
    ]
    for other in odd:
        with pytest.raises(ValueError, match="for all learners, with the same"):
            small(
                loss={"name": "mirror", "mirror_step": 0.5},
                learner=[{"name": "a", "roles": ["player_0"]}, {"name": "b", "roles": ["player_1"], **other}],
            )
