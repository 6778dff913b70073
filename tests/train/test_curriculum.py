"""Task samplers: what they pass to `reset`, what they take in from episodes, and that a run comes back to the same."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import numpy as np
import pytest

import legos_envs
from legos_envs.records import Episode
from legos_envs.table import keyed_generator
from legos_train import Arena, ArtifactStore, ConfigError, EpisodeRequest
from legos_train.arena.curriculum import make_sampler
from legos_train.arena.curriculum.items import passage_key
from legos_train.arena.curriculum.proposed import ENOUGH, SEEN
from legos_train.arena.curriculum.samplers import STORE
from legos_train.config import from_dict
from legos_train.config.sections import CurriculumSettings
from legos_train.run import build, state
from tests.train.helpers import small


def arena_with(env: str, sampler: str, args: dict | None = None, **settings):
    """An arena with one env, "task", and its sampler."""
    arena = Arena(batch_size=8)
    arena.add_env("task", env, args=args or {})
    made = make_sampler(CurriculumSettings(sampler=sampler, **settings), arena)
    arena.add_sampler(made)
    return arena, made, arena.stores[STORE]


def prepared(sampler, count: int = 200, step: int = 50, **request) -> list[EpisodeRequest]:
    asked = EpisodeRequest("task", **request)
    return [sampler.prepare(asked, keyed_generator(i, "test"), step) for i in range(count)]


def episode(env: str, said, seed: int = 0, options: dict | None = None, **args):
    """An episode of an env played by a function of the decision, as the arena would record it."""
    played = asyncio.run(legos_envs.play(legos_envs.make(env, **args), said, seed, options))
    played.env_id = "task"
    return played


def propose(problem: str, right: int = 2, **args):
    """An episode on a proposed problem that `right` of 4 solvers get."""
    value = eval(problem)

    def said(decision):
        if decision.role == "proposer":
            return f"Problem: {problem}\nAnswer: {value}"
        return f"Answer: {value if int(decision.agent[-1]) < right else value + 1}"

    return episode("ProposerSolver-v0", said, **args)


# --- proposed problems -----------------------------------------------------------------------------------------------


@pytest.fixture
def proposed():
    _arena, sampler, store = arena_with("ProposerSolver-v0", "proposed_problems", share=0.5, low=0.1, high=0.9)
    yield sampler, store
    store.close()


def test_proposed_problems_are_kept_with_their_solve_rate(proposed):
    sampler, store = proposed
    numbers = sampler.learn([propose("3 + 4", 1), propose("9 - 2", 4), propose("4+3", 3)], step=7)
    assert numbers == {"kept": 2, "new": 2, "again": 0, "pass_rate_new": pytest.approx(8 / 12)}
    first, second = store
    assert first.content == {"problem": "3 + 4", "answer": "7"} and (first.successes, first.attempts) == (4, 8)
    assert (second.pass_rate, second.step, second.pool) == (1.0, 7, "task")


def test_what_was_not_played_is_not_kept(proposed):
    sampler, store = proposed
    wrong = episode("ProposerSolver-v0", lambda d: "Problem: 3 + 4\nAnswer: 8")
    unreadable = episode("ProposerSolver-v0", lambda d: "no problem")
    foreign = propose("1 + 1")
    foreign.env_id = "another"
    numbers = sampler.learn([wrong, unreadable, foreign], step=1)
    assert len(store) == 0 and numbers["new"] == 0 and "pass_rate_new" not in numbers


def test_a_forfeit_counts_as_wrong(proposed):
    sampler, store = proposed

    def said(decision):
        if decision.role == "proposer":
            return "Problem: 3 + 4\nAnswer: 7"
        return "" if decision.agent.endswith("0") else "Answer: 7"

    sampler.learn([episode("ProposerSolver-v0", said)], step=1)
    assert next(iter(store)).pass_rate == 0.75


def test_side_by_side_problems_are_told_apart(proposed):
    sampler, store = proposed

    def said(decision):
        if decision.role == "proposer":
            return f"Problem: {decision.agent[-1]} + 5\nAnswer: {5 + int(decision.agent[-1])}"
        return "Answer: 5" if "problem_0" in decision.agent else "Answer: 0"

    numbers = sampler.learn([episode("ProposerSolver-v0", said, num_problems=2)], step=1)
    assert {a.content["problem"]: a.pass_rate for a in store} == {"0 + 5": 1.0, "1 + 5": 0.0}
    assert numbers["pass_rate_new"] == 0.5


def fill(sampler, count: int, right: int = 2, step: int = 1) -> None:
    """Keeps so many problems, as one episode after another would."""
    for i in range(count):
        info = {"problem": f"{i} + {1000 * right}", "truth": str(i + 1000 * right)}
        sampler._keep("task", info, right, 4, step)


def test_a_share_of_later_episodes_gets_a_kept_problem(proposed):
    sampler, _store = proposed
    fill(sampler, ENOUGH - 1)
    assert all("problem" not in r.options for r in prepared(sampler))  # not enough yet
    fill(sampler, ENOUGH, right=4)
    fill(sampler, ENOUGH, right=2)
    given = [r.options for r in prepared(sampler) if "problem" in r.options]
    assert 0.4 < len(given) / 200 < 0.6
    assert all(o["problem"].endswith("+ 2000") for o in given)  # the gate lets 2 of 4 through, 4 of 4 not
    assert all(eval(o["problem"]) == int(o["answer"]) for o in given)
    assert len({o["problem"] for o in given}) > 20


def test_a_problem_given_again_is_played_by_solvers_alone(proposed):
    sampler, store = proposed
    fill(sampler, ENOUGH)
    request = next(r for r in prepared(sampler) if "problem" in r.options)
    again = episode("ProposerSolver-v0", lambda d: f"Answer: {request.options['answer']}", options=request.options)
    assert again.trajectories["proposer_0"].turns == []
    numbers = sampler.learn([again, propose("5 * 5", 0)], step=9)
    assert (numbers["again"], numbers["pass_rate_again"], numbers["pass_rate_new"], numbers["new"]) == (0.5, 1, 0, 1)
    kept = next(a for a in store if a.content["problem"] == request.options["problem"])
    assert (kept.successes, kept.attempts, kept.step, kept.last) == (6, 8, 1, 9)


def test_kept_problems_are_no_longer_new(proposed):
    """The env takes the problems of option `seen` as duplicates, however they are spelt."""
    sampler, _ = proposed
    sampler.learn([propose("3 + 4 * 2")], step=1)
    (request,) = prepared(sampler, 1, seed=5, options={"seen": ["1 + 1"]})
    assert request.options == {"seen": ["1 + 1", "3 + 4 * 2"]}
    repeated = propose("(2*4) + 3", options=dict(request.options))
    assert repeated.info["verdicts"] == ["duplicate"] and repeated.returns["proposer_0"] == 0.0
    assert propose("2 * 4 + 4", options=dict(request.options)).info["verdicts"] == ["played"]
    fill(sampler, SEEN + 9)
    assert len(next(r.options["seen"] for r in prepared(sampler) if "seen" in r.options)) == SEEN


def test_old_problems_are_not_given():
    _arena, sampler, store = arena_with("ProposerSolver-v0", "proposed_problems", share=1.0, max_age=10)
    fill(sampler, ENOUGH, step=5)
    assert all("problem" in r.options for r in prepared(sampler, 20, step=15))
    assert not any("problem" in r.options for r in prepared(sampler, 20, step=16))
    store.close()


@pytest.mark.parametrize("request_", [{"train_roles": ()}, {"options": {"problem": "1 + 1"}}])
def test_requests_that_stay_as_they_are(proposed, request_):
    """Evaluation episodes, and those that say what they are about."""
    sampler, _ = proposed
    fill(sampler, ENOUGH)
    asked = EpisodeRequest("task", **request_)
    assert all(r == asked for r in prepared(sampler, 20, **request_))
    other = EpisodeRequest("another")
    assert sampler.prepare(other, np.random.default_rng(0), 1) is other


def test_free_problems_keep_their_answer():
    _arena, sampler, store = arena_with("ProposerSolver-v0", "proposed_problems", {"domain": "free"}, share=1.0)

    def said(decision):
        return "Problem: Which city is the capital of Peru?\nAnswer: Lima" if decision.turn == 0 else "Answer: Lima"

    played = episode("ProposerSolver-v0", said, domain="free")
    numbers = sampler.learn([played, played], step=1)
    assert numbers["new"] == 1 and next(iter(store)).content["answer"] == "Lima"
    store.close()


# --- items -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ["Dataset-v0", "GSM8K-v0"])
def test_items_are_drawn_by_learnability(env):
    _arena, sampler, store = arena_with(env, "learnability", {"size": 4}, share=1.0, high=0.9)
    for index, right in ((0, 5), (1, 1), (2, 10)):
        number = store.add({"index": index}, pool="task", key=str(index))
        store.record(number, right, 10, step=1)
    odds = sampler.odds("task", 2)
    half, tenth = 6 / 12 * 6 / 12, 2 / 12 * 10 / 12
    assert odds == pytest.approx([half, tenth, 0.0, 0.25])  # item 2 is outside of the gate, item 3 was never tried
    counts = Counter(r.options["index"] for r in prepared(sampler, 2000, step=2))
    assert [counts[i] / 2000 for i in range(4)] == pytest.approx(odds / odds.sum(), abs=0.04)
    store.close()


@pytest.mark.parametrize(("options", "kept"), [({"index": 3}, 8), ({}, 0)])
def test_options_of_an_environment_stay_as_they_are(options, kept):
    """`options` of an `[[env]]` table are passed to every reset, also where a sampler draws the items."""
    arena = Arena(batch_size=8)
    arena.add_env("task", "GSM8K-v0", args={"size": 5}, options=options)
    sampler = make_sampler(CurriculumSettings(sampler="learnability", share=1.0), arena)
    arena.add_sampler(sampler)
    store = arena.stores[STORE]
    for index in (0, 1, 2, 4):  # only item 3 is outside of the gate
        store.record(store.add({"index": index}, pool="task", key=str(index)), 5, 10, step=0)
    store.record(store.add({"index": 3}, pool="task", key="3"), 0, 10, step=0)
    drawn = [job.options for job in arena.jobs(arena.get_batch())]
    assert drawn.count({"index": 3}) == kept and all("index" in one for one in drawn)
    store.close()


def test_items_learn_from_episodes():
    _arena, sampler, store = arena_with("GSM8K-v0", "learnability", {"size": 5}, share=0.5, max_age=10)
    oracle = legos_envs.make("GSM8K-v0").unwrapped.scripted_players["oracle"]
    played = [episode("GSM8K-v0", oracle, options={"index": 3}, size=5)]
    played += [episode("GSM8K-v0", lambda d: "#### -1", options={"index": 3}, size=5) for _ in range(3)]
    played += [episode("GSM8K-v0", lambda d: "", options={"index": 1}, size=5)]
    numbers = sampler.learn(played, step=4)
    assert numbers == {"tried": 2, "pass_rate": 0.2, "gated": 0.0}
    assert {a.content["index"]: a.pass_rate for a in store} == {3: 0.25, 1: 0.0}
    assert sampler.odds("task", 5)[1] == pytest.approx(2 / 9)  # one wrong answer does not end an item
    assert sampler.learn(played[-1:] * 8, step=4)["gated"] == 0.5
    assert sampler.odds("task", 5)[1] == 0.0  # nine do
    assert sampler.odds("task", 15) == pytest.approx([0.25] * 5)  # too long ago to count
    chosen = [r for r in prepared(sampler, 200, step=5) if r.options]
    assert 0.4 < len(chosen) / 200 < 0.6 and {r.options["index"] for r in chosen} <= {0, 2, 3, 4}
    store.close()


def test_a_gate_that_lets_nothing_through_changes_nothing():
    _arena, sampler, store = arena_with("Dataset-v0", "learnability", {"size": 2}, share=1.0, low=0.4, high=0.6)
    for index in range(2):
        store.record(store.add({"index": index}, pool="task", key=str(index)), 0, 9, step=1)
    assert all(r.options is None for r in prepared(sampler, 20))
    store.close()


# --- a corpus --------------------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(tmp_path):
    for name, text in (("a", "The capital of Peru is Lima."), ("b", "Iron melts at 1538 degrees."), ("c", "No cats.")):
        (tmp_path / f"{name}.txt").write_text(text)
    return tmp_path


def test_passages_of_a_directory(corpus):
    _arena, sampler, store = arena_with("SPICE-v0", "corpus", {"source": str(corpus)}, share=1.0)

    def said(decision):
        if decision.role == "challenger":
            return "Question: Which city is it?\nAnswer: Lima"
        return "Answer: Lima" if decision.agent[-1] in "01" else "Answer: Rome"

    played = [episode("SPICE-v0", said, options={"index": i}, source=str(corpus)) for i in (0, 1)]
    numbers = sampler.learn(played, step=1)
    assert numbers == {"tried": 2, "pass_rate": 0.25, "gated": 0.0}  # nothing in document 1 supports the answer
    assert sampler.learn(played[1:] * 2, step=1)["gated"] == 0.5
    known = {a.content["begins"][:10]: a for a in store}
    assert (known["The capita"].pass_rate, known["Iron melts"].pass_rate) == (0.5, 0.0)
    assert known["Iron melts"].content["title"] == "b" and known["Iron melts"].attempts == 12
    counts = Counter(r.options["index"] for r in prepared(sampler))
    assert set(counts) == {0, 2} and abs(counts[0] - counts[2]) < 60
    env = legos_envs.make("SPICE-v0", source=str(corpus))
    env.reset(seed=0, options={"index": 2})
    assert "No cats." in env.observe("challenger_0")["messages"][0]["content"]
    store.close()


def test_a_passage_keeps_its_record_when_the_corpus_grows(corpus):
    _arena, sampler, store = arena_with("SPICE-v0", "corpus", {"source": str(corpus)}, share=1.0)
    store.record(store.add({}, pool="task", key=passage_key("Iron melts at 1538 degrees.")), 0, 9, step=1)
    assert sampler.odds("task", 1).argmin() == 1
    (corpus / "0.txt").write_text("A new one.")
    _arena, grown, fresh = arena_with("SPICE-v0", "corpus", {"source": str(corpus)}, share=1.0)
    fresh.load(store.dump())
    assert list(grown.odds("task", 1)) == [0.25, 0.25, 0.0, 0.25]
    assert all(r.options == {"document": "mine"} for r in prepared(grown, 9, options={"document": "mine"}))
    store.close()
    fresh.close()


# --- in a run --------------------------------------------------------------------------------------------------------


def test_resume_gives_the_same_requests():
    """Batch by batch: an arena that is rebuilt from its state in between asks for the same episodes."""

    def run(cut: int | None) -> list[EpisodeRequest]:
        arena, _, store = arena_with("ProposerSolver-v0", "proposed_problems", share=0.5)
        asked = []
        for step in range(1, 9):
            if step == cut:
                kept = json.loads(json.dumps(arena.state_dict()))
                store.close()
                arena, _, store = arena_with("ProposerSolver-v0", "proposed_problems", share=0.5)
                arena.load_state_dict(kept)
            arena.step = step
            batch = arena.get_batch()
            asked += batch
            played = []
            for i, request in enumerate(batch):
                options = dict(request.options or {})
                played.append(propose(options.get("problem", f"{step} + {i} * 3"), (i + step) % 5, options=options))
            arena.learn(played)
        store.close()
        return asked

    whole = run(None)
    assert run(6) == whole and run(2) == whole
    assert sum("problem" in (r.options or {}) for r in whole) > 5


def test_a_sampler_of_ones_own(monkeypatch):
    import sys
    import types

    class Mine:
        def __init__(self, settings, store, arena):
            self.made_with = (settings.share, type(store), list(arena.envs))

        def prepare(self, request, rng, step):
            return request

        def learn(self, episodes, step):
            return {"mine": float(step)}

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            assert state == {}

    module = types.ModuleType("my_samplers")
    module.Mine, module.broken, module.number = Mine, lambda *a: object(), 3
    monkeypatch.setitem(sys.modules, "my_samplers", module)
    arena, sampler, store = arena_with("KuhnPoker-v0", "my_samplers:Mine", share=0.25)
    assert sampler.made_with == (0.25, ArtifactStore, ["task"])
    arena.step = 3
    assert arena.learn([]) == {"mine": 3.0}
    store.close()
    for name, message in (
        ("my_samplers:broken", r"made object, which has no prepare\(\)"),
        ("my_samplers:number", "is int; it must be a function"),
        ("my_samplers:none", "cannot be imported"),
        ("no_such_module:f", "cannot be imported"),
    ):
        with pytest.raises(ConfigError, match=message):
            arena_with("KuhnPoker-v0", name)


@pytest.mark.parametrize("name", ["learnabilty", "module:", ":function", ""])
def test_an_unknown_sampler_is_refused_by_the_config(name):
    accepted = "curriculum.sampler: must be one of proposed_problems, learnability, corpus and module:function"
    with pytest.raises(ConfigError, match=f"{accepted}, got {name!r}"):
        from_dict({"curriculum": {"sampler": name}})


@pytest.mark.parametrize(
    ("sampler", "kind"),
    [("proposed_problems", "ProposerSolver"), ("learnability", "Dataset"), ("corpus", "SPICE")],
)
def test_a_sampler_without_its_environment_is_refused(sampler, kind):
    with pytest.raises(ConfigError, match=rf"it is for {kind} environments; the run has task \(Kuhn"):
        arena_with("KuhnPoker-v0", sampler)


def test_a_run_comes_back_to_its_store(tmp_path):
    """A trainer resumed from a checkpoint takes the same third step: same items, same records, same weights."""
    from legos_train import Trainer

    config = small(
        tmp_path,
        env="GSM8K-v0",
        env_args={"size": 6},
        steps=3,
        batch_size=6,
        credit={"name": "rae"},
        sampling={"max_tokens": 4},
        curriculum={"sampler": "learnability", "share": 1.0, "low": 0.0},
        average={"kind": "none"},
    )

    def third(trainer: Trainer) -> tuple:
        record = trainer.step()
        weights = {name: np.asarray(w).tobytes() for name, w in trainer.parts.backend.policy.trainable().items()}
        return record["curriculum"], record["reward"], trainer.parts.arena.stores[STORE].dump(), weights

    first = Trainer(build(config))
    second = Trainer(build(config, run_id=first.parts.run_id))
    try:
        assert first.step()["curriculum"]["tried"] > 0
        first.step()
        state.save(first.parts, tmp_path / "checkpoints")
        assert state.restore(second.parts, tmp_path / "checkpoints") == 2
        found = third(first)
        assert third(second) == found and found[2]["last_id"] >= 3
    finally:
        for trainer in (first, second):
            trainer.parts.arena.stores[STORE].close()
            trainer.parts.close()


def test_a_store_has_room_for_every_item() -> None:
    """A record that had to go made an item that the gate leaves out look like one that was never tried."""
    arena = Arena()
    arena.add_env("sums", "Dataset-v0", args={"size": 50})
    sampler = make_sampler(CurriculumSettings(sampler="learnability", capacity=10), arena)
    hopeless = [Episode("sums", 0, {}, {}, info={"index": i, "correct": False, "outcome": "wrong"}) for i in range(40)]
    for step in range(1, 21):
        sampler.learn(hopeless, step)
    odds = sampler.odds("sums", 21)  # type: ignore[attr-defined]
    assert not odds[:40].any() and odds[40:].all()
