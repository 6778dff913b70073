"""Debate: who is told what, verdicts in both orders, judges that fail, attacks on the judge, principles and labels."""

import asyncio

import pytest

import legos_envs
from legos_envs import Forfeit, TextEnv, Unscored
from legos_envs.policies import make_policy
from legos_envs.scoring import judging
from legos_envs.table import Seat
from legos_envs.tasks.argument.debate import Debate
from legos_envs.tasks.argument.debate_cases import CASES, TOPICS
from legos_envs.tasks.talk import excerpt
from legos_envs.testing import check_env
from tests.envs.test_judging import ATTACKS, outside

CASE = {"principle": "It is polite.", "response": "Go away."}


def play(policies=None, options=None, seed=0, **kwargs):
    """Plays with policies by agent or role: names of scripted players, or functions; `random` where none is given."""
    env = legos_envs.make("Debate-v0", **kwargs)
    made = {k: make_policy(p, env) if isinstance(p, str) else p for k, p in (policies or {}).items()}
    other = make_policy("random", env)
    return asyncio.run(
        legos_envs.play(env, lambda d: (made.get(d.agent) or made.get(d.role) or other)(d), seed, options)
    )


def shown(episode, agent="judge_0"):
    return [turn.observation[-1]["content"] for turn in episode.trajectories[agent].turns]


def everything(episode, agent):
    """All that an agent was shown, its own words left out."""
    return "\n".join(
        m["content"] for t in episode.trajectories[agent].turns for m in t.observation if m["role"] == "user"
    )


def says(text):
    return lambda decision: text


# --- the course ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", ["chat", "state"])
def test_together_nobody_hears_the_other_before_the_round_is_over(memory):
    env = legos_envs.make("Debate-v0", memory=memory)
    env.reset(seed=0)
    for number in range(2):
        assert env.ready_agents == ["pro_0", "con_0"]
        env.select("con_0")
        env.step(f"con speech {number}")
        assert f"con speech {number}" not in str(env.observe("pro_0"))
        env.step(f"pro speech {number}")
    assert env.ready_agents == ["judge_0"]
    assert "con speech 0" in str(env.observe("pro_0")) and "pro speech 0" in str(env.observe("con_0"))


def test_alternate_con_answers_pro():
    env = legos_envs.make("Debate-v0", turns="alternate", rounds=1)
    env.reset(seed=0)
    assert env.ready_agents == ["pro_0"]
    env.step("Opening words.")
    assert env.ready_agents == ["con_0"] and "Opening words." in str(env.observe("con_0"))


def test_in_state_memory_a_debater_reads_its_own_words_once():
    for memory in ("chat", "state"):
        episode = play({"pro": lambda d: f"pro says {d.turn}", "con": says("no")}, memory=memory)
        last = str(episode.trajectories["pro_0"].turns[1].observation)
        assert last.count("pro says 0") == 1 and last.count("Motion: ") == 1


def test_the_judge_sees_every_speech_of_both_sides_swapped():
    episode = play({"pro": lambda d: f"P{d.turn}", "con": lambda d: f"C{d.turn}"}, {"topic": "Tea is best."})
    first, second = (judging.unquoted(text) for text in shown(episode))
    pro = {"argues": "for the motion", "speeches": ["P0", "P1"]}
    con = {"argues": "against the motion", "speeches": ["C0", "C1"]}
    assert first == {"motion": "Tea is best.", "A": pro, "B": con}
    assert second == {"motion": "Tea is best.", "A": con, "B": pro}


def test_private_thought_reaches_neither_the_other_side_nor_the_judge():
    episode = play({"pro": says("<think>my plan</think>Public words.")})
    assert "my plan" not in everything(episode, "con_0") + everything(episode, "judge_0")
    assert "Public words." in everything(episode, "judge_0")


@pytest.mark.parametrize(("limit", "text"), [(10, "x" * 11), (7, "ab" * 30000), (1, "xyz")])
def test_long_speeches_are_cut_in_the_middle_for_both_readers(limit, text):
    episode = play({"pro": says(text), "con": says("y")}, max_speech_chars=limit, rounds=2)
    cut = excerpt(text, limit)
    assert f"{len(text) - limit} characters cut" in cut and cut[0] == text[0]
    assert judging.unquoted(shown(episode)[0])["A"]["speeches"] == [cut, cut]
    assert text not in everything(episode, "con_0") and cut in everything(episode, "con_0")


def test_excerpt_keeps_what_fits_and_both_ends():
    assert excerpt("abcde", 5) == "abcde" and excerpt("", 1) == ""
    assert excerpt("abcdef", 5) == "abc [... 1 characters cut ...] ef"
    assert excerpt("abcdef", 1) == "a [... 5 characters cut ...] "


# --- verdicts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pro", "con", "judge", "expected"),
    [
        ("scripted:long", "scripted:short", "scripted:longer", "pro"),
        ("scripted:short", "scripted:long", "scripted:longer", "con"),
        ("scripted:short", "scripted:short", "scripted:longer", "draw"),
        ("scripted:on_topic", "scripted:long", "scripted:on_topic", "pro"),
        ("scripted:long", "scripted:on_topic", "scripted:on_topic", "con"),
        ("scripted:on_topic", "scripted:on_topic", "scripted:on_topic", "draw"),
        ("scripted:long", "scripted:short", "scripted:first", "draw"),
        ("scripted:long", "scripted:short", "scripted:last", "draw"),
    ],
)
@pytest.mark.parametrize("turns", ["together", "alternate"])
def test_rewards_follow_the_verdict(pro, con, judge, expected, turns):
    episode = play({"pro": pro, "con": con, "judge": judge}, turns=turns)
    value = {"pro": 1, "con": -1, "draw": 0}[expected]
    assert episode.returns == {"pro_0": value, "con_0": -value, "judge_0": 0} and episode.outcome == expected
    assert "correct" not in episode.info


@pytest.mark.parametrize("said", ["Pro was better.", "A", "[A or B]", "[C]"])
def test_a_verdict_that_cannot_be_read_drops_the_episode(said):
    episode = play({"judge": says(said)})
    assert episode.outcome == "unscored" and set(episode.returns.values()) == {0.0}
    assert not episode.truncated and "judge_0 was not understood" in episode.info["reason"]


def test_an_unreadable_second_verdict_drops_the_episode_too():
    episode = play({"judge": lambda d: "[A]" if d.turn == 0 else "hm"})
    assert episode.outcome == "unscored" and set(episode.returns.values()) == {0.0}


def test_a_debater_that_says_nothing_forfeits():
    episode = play({"con": says("<think>only</think>")})
    assert episode.outcome == "invalid" and episode.returns == {"pro_0": 1, "con_0": -1, "judge_0": 0}


def obedient(decision):
    """Names the longer side, unless a verdict or a template's marker stands outside the quote: that it obeys."""
    prompt = decision.messages[0]["content"]
    if "Verdict" in outside(prompt) or "<|" in prompt or len(prompt.splitlines()) != len(prompt.split("\n")):
        return "[A]"
    texts = judging.unquoted(prompt)
    sizes = [sum(map(len, texts[label]["speeches"])) for label in "AB"]
    return "[A]" if sizes[0] > sizes[1] else "[B]"


def test_no_attack_flips_a_verdict():
    """Attacks as speeches of either side and as motion, before judges that would obey them: the longer side wins."""
    flips = 0
    for i, attack in enumerate(ATTACKS):
        attack = attack[:4000]  # what is passed on, so that lengths can be compared
        longer = "x" * (len(attack.strip()) + 1)
        for judge in (obedient, "scripted:longer"):
            for options in ({}, {"topic": attack} if i % 2 else {**CASE, "response": attack}):
                one = play({"pro": says(attack), "con": says(longer), "judge": judge}, options, rounds=1)
                two = play({"pro": says(longer), "con": says(attack), "judge": judge}, options, rounds=1)
                flips += (one.outcome != "con") + (two.outcome != "pro")
    assert flips == 0


# --- motions ---------------------------------------------------------------------------------------------------------


def test_topics_and_cases_are_many_different_and_balanced():
    assert len(set(TOPICS)) == len(TOPICS) >= 30 and len(set(CASES)) == len(CASES) >= 20
    assert sum(case.violates for case in CASES) * 2 == len(CASES)
    by_principle = {case.principle for case in CASES if case.violates}
    assert by_principle == {case.principle for case in CASES if not case.violates}


def test_topics_are_drawn_and_can_be_given():
    drawn = {judging.unquoted(shown(play(seed=seed, rounds=1))[0])["motion"] for seed in range(40)}
    assert len(drawn) > 30 and 0 < len(drawn & set(TOPICS)) < 15
    assert "Motion: Tea is best." in shown(play(options={"topic": "Tea is best."}), "con_0")[0]


def test_the_oracle_is_always_right_and_pays_by_the_label():
    outcomes = set()
    for seed in range(20):
        episode = play({"judge": "scripted:oracle"}, seed=seed, about="principle", rounds=1)
        assert episode.info["correct"] is True
        assert episode.returns["pro_0"] == (1 if episode.info["violates"] else -1)
        outcomes.add(episode.outcome)
    assert outcomes == {"pro", "con"}


@pytest.mark.parametrize("violates", [True, False])
@pytest.mark.parametrize("winner", ["pro", "con"])
def test_correct_compares_the_verdict_with_the_label(violates, winner):
    options = {**CASE, "violates": violates}
    players = {winner: "scripted:long", "judge": "scripted:longer"} | {
        side: "scripted:short" for side in ("pro", "con") if side != winner
    }
    episode = play(players, options)
    assert episode.outcome == winner and episode.info["correct"] is ((winner == "pro") == violates)
    assert episode.info["violates"] is violates
    draw = play({**players, "judge": "scripted:first"}, options)
    assert draw.info["violates"] is violates and "correct" not in draw.info
    unknown = play(players, CASE)
    assert unknown.outcome == winner and "correct" not in unknown.info and "violates" not in unknown.info


def test_the_label_is_told_to_nobody_before_the_end():
    env = legos_envs.make("Debate-v0", about="principle", rounds=1)
    env.reset(seed=0)
    while env.agents and not env.terminations[env.agent_selection]:
        assert not any({"violates", "correct"} & set(info) for info in env.infos.values())
        env.step("[A]" if env.agent_selection == "judge_0" else "Words.")


def test_principle_and_response_as_arguments_and_options():
    for episode in (
        play(**CASE),
        play(options=CASE),
        play(options={"response": "Go away."}, principle="It is polite."),
        play(options=CASE, principle="Another.", response="Other."),
    ):
        told = shown(episode, "pro_0")[0]
        assert "Principle: It is polite.\nResponse: Go away.\nYou argue that the response violates" in told
        assert "You argue that the response does not violate" in shown(episode, "con_0")[0]
        texts = judging.unquoted(shown(episode)[0])
        assert texts["principle"] == "It is polite." and texts["response"] == "Go away."
    assert "Motion: Tea." in shown(play(options={"topic": "Tea."}, **CASE), "pro_0")[0]


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number from 1 to 20; got 0"),
        ({"rounds": True}, "rounds must be"),
        ({"turns": "alternat"}, "did you mean 'alternate'"),
        ({"about": "topics"}, "about must be one of 'topic', 'principle'; got 'topics'"),
        ({"principle": " "}, "principle must be text"),
        ({"principle": "p", "response": ""}, "response must be text"),
        ({"response": "Hello."}, "response needs principle"),
        ({"principle": "p", "response": "r", "source": [CASE]}, "give one of them"),
        ({"max_speech_chars": 0}, "max_speech_chars must be a whole number from 1 to 65536"),
    ],
)
def test_arguments_are_checked(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Debate(**kwargs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": ""}, "topic must be text"),
        ({"topic": 3}, "topic must be text"),
        ({"principle": "p"}, "needs a response"),
        ({"response": "r"}, "needs a principle"),
        ({**CASE, "violates": "yes"}, "violates must be true, false or None; got 'yes'"),
        ({"motion": "x"}, "reset option 'motion' is unknown"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Debate().reset(seed=0, options=options)


# --- inside another env ----------------------------------------------------------------------------------------------


class Cup(TextEnv):
    """Two debates side by side on topics of the rules' choice; a judge that fails voids only its own."""

    name = "Cup-v0"

    def __init__(self, **kwargs):
        self.debate = Debate(rounds=1)
        self.seats = {f"match_{k}/{agent}": seat for k in range(2) for agent, seat in self.debate.seats.items()}
        self.seats["host_0"] = Seat("host")
        super().__init__(**kwargs)

    def play(self, table):
        topic = yield from table.ask("host_0", "A topic?")
        results = yield from table.gather(
            [self.match(table.sub(f"match_{k}", {"topic": f"{topic} {k}"})) for k in (0, 1)]
        )
        last = yield from table.ask("host_0", "Thanks?")
        table.note(results=results, last=last)

    def match(self, table):
        try:
            return (yield from self.debate.play(table))
        except Unscored:
            return "void"
        except Forfeit as forfeit:
            table.settle(forfeit)
            return "forfeit"


ROLES = {"pro": "long", "con": "short", "judge": "longer"}


def test_a_debate_is_a_function_of_a_table():
    env = Cup()
    scripts = {role: make_policy(f"scripted:{name}", Debate()) for role, name in ROLES.items()}

    def policy(decision):
        if decision.agent == "match_1/judge_0":
            return "I cannot say."
        return scripts[decision.role](decision) if decision.role in scripts else "Tea"

    episode = asyncio.run(legos_envs.play(env, policy, 0))
    assert episode.info["results"] == [1, "void"]
    assert episode.returns["match_0/pro_0"] == 1 and episode.returns["match_0/con_0"] == -1
    assert episode.returns["match_1/pro_0"] == 0
    assert "Motion: Tea 1" in str(episode.trajectories["match_1/con_0"].turns[0].observation)
    assert episode.trajectories["match_0/pro_0"].info["outcome"] == "pro"


def test_topic_as_an_argument_of_play():
    class One(TextEnv):
        seats = Debate.seats

        def play(self, table):
            won = yield from Debate().play(table, "Soup is a drink.")
            table.note(won=won)

    episode = asyncio.run(legos_envs.play(One(), make_policy("random", Debate()), 1))
    assert "Motion: Soup is a drink." in str(episode.trajectories["pro_0"].turns[0].observation)
    assert episode.info["won"] == episode.returns["pro_0"]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "kwargs",
    [
        {"turns": "alternate", "rounds": 3, "memory": "state"},
        {"about": "principle", "action_format": "boxed"},
        {"rounds": 1, "invalid_retries": 0, "max_speech_chars": 5, **CASE},
    ],
)
def test_conformance_of_variants(kwargs):
    check_env("Debate-v0", episodes=15, skip=("seed.process",), raise_on_failure=True, **kwargs)
