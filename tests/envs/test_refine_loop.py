"""The refine loop: qualities by code, by a check, by a judge; who is paid for what; demands that code checks."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import legos_envs
from legos_envs import Rubric, TextEnv, Unscored
from legos_envs.policies import make_policy
from legos_envs.scoring import judging
from legos_envs.tasks import checked_texts
from legos_envs.tasks.argument.refine_loop import TASKS, RefineLoop
from legos_envs.tasks.checked_texts import Demand
from legos_envs.testing import check_env
from tests.envs.test_judging import ATTACKS, outside


def play(policies=None, options=None, seed=0, **kwargs):
    env = RefineLoop(**kwargs)
    made = {k: make_policy(p, env) if isinstance(p, str) else p for k, p in (policies or {}).items()}
    return asyncio.run(
        legos_envs.play(env, lambda d: (made.get(d.role) or make_policy("random", env))(d), seed, options)
    )


def drafts(*texts):
    """A generator that says these texts, one a turn."""
    return lambda decision: texts[min(decision.turn, len(texts) - 1)]


def says(text):
    return lambda decision: text


def graded(**grades):
    """A judge with a grade for each text."""
    return lambda decision: f"[{grades[judging.unquoted(decision.messages[0]['content'])['text']]}]"


def length(text):
    return min(1.0, len(text) / 10)


# --- demands ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "good", "bad"),
    [
        ("word", "lantern", "A Lantern, lit.", "lanterns; lan tern"),
        ("without", "very", "everything is fine", "Very, fine"),
        ("number", 42, "It is 42.", "It is 421 or 4 2"),
        ("most", 3, "one two three", "one two three four"),
        ("lines", 2, "\none\n\n two \n", "one"),
        ("begins", "Once", "  Once more", "once more"),
        ("ends", "The end.", "So. The end.\n", "The end"),
        ("questions", 2, "a? b?", "a? b? c?"),
    ],
)
def test_each_demand_by_hand(kind, value, good, bad):
    demand = Demand(kind, value, "")
    assert demand.met(good) and not demand.met(bad)


@given(st.integers(0, 2**31), st.integers(1, 8))
def test_every_task_can_be_met_and_missed_in_full_and_is_read_back(seed, count):
    demands = checked_texts.draw(np.random.default_rng(seed), count)
    assert len({demand.kind for demand in demands}) == count
    assert checked_texts.read(checked_texts.put(demands)) == demands
    assert checked_texts.share(demands, checked_texts.solution(demands)) == 1
    assert checked_texts.share(demands, checked_texts.failure()) == 0


def test_a_share_is_what_is_met_over_all():
    demands = (Demand("word", "kettle", ""), Demand("lines", 2, ""), Demand("most", 3, ""), Demand("number", 7, ""))
    assert checked_texts.share(demands, "kettle") == 0.5
    assert checked_texts.share(demands, "kettle\n7") == 1


# --- the loop --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "share", "generator", "critic"), [(0.5, False, 0.9, 1.2), (0, True, 0.9, 0.9), (2, True, 2.1, 2.1)]
)
@pytest.mark.parametrize("by", ["check", "judge"])
def test_rewards_by_hand(by, weight, share, generator, critic):
    """First draft 0.3, last 0.9: the difference 0.6 counts `weight` times."""
    how = {"check": length} if by == "check" else {"domain": "open"}
    players = {"generator": drafts("x" * 3, "x" * 5, "x" * 9), "judge": graded(xxx=3, xxxxx=5, xxxxxxxxx=9)}
    episode = play(players, rounds=2, improvement_weight=weight, share_improvement=share, **how)
    assert episode.returns["generator_0"] == pytest.approx(generator)
    assert episode.returns["critic_0"] == pytest.approx(critic)
    assert episode.info["first"] == 0.3 and episode.info["final"] == 0.9 and episode.info["drafts"] == 3
    assert episode.outcome == "improved" and episode.returns.get("judge_0", 0) == 0


@pytest.mark.parametrize(("first", "last", "outcome"), [("xx", "x", "worse"), ("xx", "yy", "same")])
def test_outcomes(first, last, outcome):
    assert play({"generator": drafts(first, last)}, check=length).outcome == outcome


def test_a_bad_first_draft_does_not_pay_the_generator_unless_asked_for():
    honest, lazy = (play({"generator": drafts(first, "x" * 10)}, check=length) for first in ("x" * 10, "x"))
    assert honest.returns["generator_0"] == lazy.returns["generator_0"] == 1


def test_checked_tasks_need_no_judge_and_pay_the_share_of_demands():
    for seed in range(10):
        episode = play({"generator": "scripted:improver"}, seed=seed, demands=8)
        assert episode.returns == {"generator_0": 1, "critic_0": 1.5}
        assert len(episode.trajectories["critic_0"].turns) == 1
    assert "judge_0" not in RefineLoop().seats and "judge_0" not in RefineLoop(check=length).seats


def test_good_generators_beat_poor_ones_by_at_least_half_a_point():
    totals = {name: sum(play({"generator": f"scripted:{name}"}, seed=s).returns["generator_0"] for s in range(30)) / 30
              for name in ("good", "random", "poor")}  # fmt: skip
    assert totals["good"] == 1 and totals["poor"] == 0 and 0.2 < totals["random"] < 0.8


@pytest.mark.parametrize("memory", ["chat", "state"])
def test_who_is_told_what(memory):
    players = {"generator": drafts("<think>plan</think>one", "two", "three"), "critic": lambda d: f"comment {d.turn}"}
    episode = play(players, {"task": "Write a word."}, check=length, rounds=2, memory=memory)
    of = {agent: [str(turn.observation) for turn in t.turns] for agent, t in episode.trajectories.items()}
    assert "Write a word." in of["generator_0"][0] and "comment 0" in of["generator_0"][1]
    assert "comment 1" in of["generator_0"][2] and "comment 1" not in of["generator_0"][1]
    assert "Write a word." in of["critic_0"][0] and "Draft 1:" in of["critic_0"][0] and "one" in of["critic_0"][0]
    assert "plan" not in str(of["critic_0"]) and "two" in of["critic_0"][1]
    assert of["generator_0"][2].count("comment 0") == 1 and of["generator_0"][2].count("Write a word.") == 1
    assert "two" in of["generator_0"][2]


def test_long_drafts_are_cut_for_readers_and_checked_in_full():
    seen = []

    def check(task, text):
        seen.append((task, text))
        return 1

    episode = play({"generator": drafts("a" * 50)}, {"task": "T"}, check=check, max_chars=10)
    assert seen == [("T", "a" * 50)] * 2
    assert "aaaaa [... 40 characters cut ...] aaaaa" in str(episode.trajectories["critic_0"].turns[0].observation)


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "expected"), [(["x" * 9], 1), (["x", "x" * 8], 2), (["x", "xx", "xxx"], 4), (["x", "xx", "x" * 10], 3)]
)
@pytest.mark.parametrize("by", ["check", "judge"])
def test_stops_as_soon_as_a_draft_is_good_enough(texts, expected, by):
    judge = lambda d: f"[{len(judging.unquoted(d.messages[0]['content'])['text'])}]"  # noqa: E731
    how = {"check": length} if by == "check" else {"domain": "open"}
    episode = play({"generator": drafts(*texts), "judge": judge}, rounds=3, good_enough=0.8, **how)
    assert episode.info["drafts"] == expected == len(episode.trajectories["generator_0"].turns)
    assert episode.info["first"] == len(texts[0]) / 10 and episode.info["final"] == len(texts[-1]) / 10
    if by == "judge":  # one grade a draft, none twice
        assert len(episode.trajectories["judge_0"].turns) == expected


# --- judges ----------------------------------------------------------------------------------------------------------


def test_the_judge_grades_first_and_last_alone_in_new_conversations():
    players = {"generator": drafts("first", "middle", "last"), "judge": graded(first=2, last=7)}
    episode = play(players, {"task": "T"}, domain="open", rounds=2)
    turns = episode.trajectories["judge_0"].turns
    assert [len(turn.observation) for turn in turns] == [1, 1]
    shown = [judging.unquoted(turn.observation[0]["content"]) for turn in turns]
    assert shown == [{"task": "T", "text": "first"}, {"task": "T", "text": "last"}]
    assert (episode.info["first"], episode.info["final"]) == (0.2, 0.7)
    assert [outside(turn.observation[0]["content"]).count("raft") for turn in turns] == [0, 0]


@pytest.mark.parametrize("good_enough", [None, 0.5])
@pytest.mark.parametrize("said", ["Ten!", "[11]", "[7/10]"])
def test_a_judge_that_is_not_understood_pays_nobody(good_enough, said):
    episode = play({"judge": lambda d: said}, domain="open", good_enough=good_enough)
    assert episode.outcome == "unscored" and set(episode.returns.values()) == {0}


def test_attacks_on_the_judge_change_no_grade():
    def obedient(decision):
        prompt = decision.messages[0]["content"]
        fooled = "Verdict" in outside(prompt) or "<|" in prompt or len(prompt.splitlines()) != len(prompt.split("\n"))
        return "[10]" if fooled else "[3]"

    for attack in ATTACKS:
        episode = play({"generator": drafts(attack), "judge": obedient}, {"task": attack[:9000]}, domain="open")
        assert (episode.info["first"], episode.info["final"]) == (0.3, 0.3)


# --- checks ----------------------------------------------------------------------------------------------------------


def test_a_check_may_be_a_function_or_a_rubric():
    def on_task(task, text):
        return float(task in text)

    async def brief(text):
        return float(len(text) < 5)

    rubric = Rubric([on_task, brief], weights=[0.75, 0.25])
    assert play({"generator": drafts("T")}, {"task": "T"}, check=on_task).info["final"] == 1
    assert play({"generator": drafts("T and more")}, {"task": "T"}, check=rubric).info["final"] == 0.75
    assert play({"generator": drafts("ok")}, {"task": "T"}, check=rubric).info["final"] == 0.25


@pytest.mark.parametrize("value", [1.5, -0.1])
def test_a_check_out_of_range_is_an_error(value):
    with pytest.raises(ValueError, match=f"check must return a number from 0 to 1; it returned {value}"):
        play(check=lambda text: value)


def test_a_check_may_drop_the_episode():
    def check(text):
        raise Unscored("the compiler was not there")

    episode = play(check=check)
    assert episode.outcome == "unscored" and set(episode.returns.values()) == {0}


# --- invalid moves, arguments, nesting -------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["generator", "critic"])
@pytest.mark.parametrize("preset", [None, "spiral"])
def test_nobody_gains_from_anothers_invalid_move(role, preset):
    episode = play({role: drafts("")}, preset=preset)
    other = {"generator": "critic", "critic": "generator"}[role]
    assert episode.outcome == "invalid" and episode.info["offenders"] == [f"{role}_0"]
    assert episode.returns == {f"{role}_0": -1.5 if preset else -1, f"{other}_0": 0}


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"criteria": "It is short."}, ValueError, "criteria are for a judge"),
        ({"criteria": "It is short.", "check": length}, ValueError, "criteria are for a judge"),
        ({"source": ["Write."]}, ValueError, "source is for open tasks"),
        ({"rounds": -1}, ValueError, "rounds must be a whole number from 0 to 20"),
        ({"domain": "close"}, ValueError, "domain must be one of 'checked', 'open'; got 'close'"),
        ({"domain": ""}, ValueError, "domain must be one of"),
        ({"domain": "checked", "check": length}, ValueError, "check is for open tasks"),
        ({"check": 3}, TypeError, "check must be a function or a Rubric; got 3"),
        ({"demands": 9}, ValueError, "demands must be a whole number from 1 to 8"),
        ({"improvement_weight": -1}, ValueError, "improvement_weight must be"),
        ({"improvement_weight": float("nan")}, ValueError, "improvement_weight must be"),
        ({"good_enough": 0}, ValueError, "good_enough must be"),
        ({"good_enough": 2}, ValueError, "good_enough must be"),
        ({"max_chars": 0}, ValueError, "max_chars must be"),
    ],
)
def test_arguments_are_checked(kwargs, error, message):
    with pytest.raises(error, match=message):
        RefineLoop(**kwargs)


def test_options_are_checked():
    with pytest.raises(ValueError, match="option task needs open tasks"):
        RefineLoop().reset(seed=0, options={"task": "T"})
    with pytest.raises(ValueError, match="task must be text"):
        RefineLoop(domain="open").reset(seed=0, options={"task": ""})


def test_without_a_critic_one_text_is_graded_once():
    episode = play({"generator": says("a"), "judge": graded(a=7)}, domain="open", rounds=0)
    assert episode.returns == {"generator_0": 0.7, "judge_0": 0} and episode.turns == 2
    assert "critic" not in str(episode.trajectories["generator_0"].turns[0].observation)
    checked = play({"generator": "scripted:good"}, rounds=0)
    assert checked.returns == {"generator_0": 1} and checked.info["drafts"] == 1


def test_criteria_are_graded_one_by_one_each_in_a_conversation_of_its_own():
    def judge(decision):
        prompt = decision.messages[0]["content"]
        assert len(decision.messages) == 1 and ("It is polite." in prompt) != ("It is short." in prompt)
        return "[10]" if "It is polite." in prompt else "[3]"

    episode = play({"judge": judge}, domain="open", rounds=0, criteria=["It is polite.", "It is short."])
    assert episode.returns["generator_0"] == pytest.approx(0.65) and len(episode.trajectories["judge_0"].turns) == 2
    one = play({"judge": judge}, domain="open", criteria="It is short.")
    assert one.info["final"] == one.info["first"] == pytest.approx(0.3)


@pytest.mark.parametrize("memory", ["chat", "state"])
def test_who_names_the_keywords_of_the_task_names_them_in_every_draft(memory):
    for seed in range(4):
        episode = play(
            {"generator": "scripted:on_topic", "judge": "scripted:on_topic"}, seed=seed, domain="open", memory=memory
        )
        assert episode.returns["generator_0"] == 1 and episode.outcome == "same"


@pytest.mark.parametrize("by", ["argument", "row"])
def test_the_longest_loop_is_played_to_its_end(by):
    criteria = [f"It is number {n}." for n in range(10)]
    given = {"criteria": criteria} if by == "argument" else {"source": [{"task": "Greet me.", "criteria": criteria}]}
    episode = play({"judge": says("[3]")}, domain="open", rounds=20, good_enough=1, **given)
    assert episode.outcome == "same" and episode.turns == 41 + 21 * 10
    assert episode.returns["generator_0"] == pytest.approx(0.3)


def test_open_tasks_are_drawn():
    seen = set()
    for seed in range(40):
        env = RefineLoop(domain="open")
        env.reset(seed=seed)
        seen.add(env.observe("generator_0")["messages"][0]["content"].partition("\n")[0])
    assert len(seen) > 30 and 0 < len(seen & set(TASKS)) < 15


def test_nested():
    loop = RefineLoop(check=length)

    class Shop(TextEnv):
        seats = {f"desk_{k}/{agent}": seat for k in range(2) for agent, seat in loop.seats.items()}

        def play(self, table):
            done = yield from table.gather([loop.play(table.sub(f"desk_{k}", {"task": f"T{k}"})) for k in (0, 1)])
            table.note(done=done)

    def policy(decision):
        return "" if decision.agent == "desk_1/critic_0" else "x" * 7

    episode = asyncio.run(legos_envs.play(Shop(), policy, 0))
    assert episode.info["done"] == [0.7, None]
    assert episode.returns["desk_1/critic_0"] == -1 and episode.returns["desk_0/generator_0"] == 0.7
    assert "T1" in str(episode.trajectories["desk_1/generator_0"].turns[0].observation)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kwargs",
    [
        {"domain": "open", "memory": "state", "rounds": 2},
        {"domain": "open", "good_enough": 0.5, "action_format": "boxed", "rounds": 3},
        {"demands": 8, "improvement_weight": 3.0, "share_improvement": True, "invalid_retries": 0},
    ],
)
def test_conformance_of_variants(kwargs):
    check_env("RefineLoop-v0", episodes=15, skip=("seed.process",), raise_on_failure=True, **kwargs)
