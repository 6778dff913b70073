"""The core: rules as a generator, conversations, invalid moves, truncation, copies, seeds."""

import copy
import pickle
import re
from random import Random

import pytest

from legos_envs import Forfeit, InvalidMove, Seat, TextEnv, Truncated
from legos_envs.testing import check_env
from legos_envs.testing.harness import Player, drive, same
from tests.envs.nested import Debate, Tournament

PAIR = {"a_0": Seat("a"), "b_0": Seat("b")}


def env_of(play, seats=PAIR, **attributes):
    """An instance maker for rules written as a plain generator function of (env, table)."""
    return type("Made", (TextEnv,), {"seats": seats, "play": play, "zero_sum": True, **attributes})


def started(cls, seed=0, **kwargs):
    env = cls(**kwargs)
    env.reset(seed=seed)
    return env


def contents(env, agent):
    return [m["content"] for m in env.observe(agent)["messages"]]


def judge_says(decision):
    """Debaters number their words; the judge picks by its seed."""
    return decision.legal_actions[decision.seed % 2] if decision.legal_actions else f"word {decision.turn}"


# --- the law of ready agents -----------------------------------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize(("env", "memory"), [(Debate, "chat"), (Debate, "state"), (Tournament, "chat")])
def test_nested_envs_obey_every_law(env, memory):
    assert check_env(env, episodes=12, policy=judge_says, memory=memory).failures == {}


def test_all_matches_of_a_tournament_are_ready_at_once():
    env = started(Tournament)
    assert env.ready_agents == ["author_0", "author_1", "author_2"] and env.agent_selection == "author_0"
    for _ in range(3):
        env.step("a plan")
    assert env.ready_agents == ["match_0/pro_0", "match_1/pro_0", "match_2/pro_0"]
    env.select("match_2/pro_0")
    env.step("mine")
    assert env.ready_agents == ["match_0/pro_0", "match_1/pro_0", "match_2/con_0"]
    assert env.agent_selection == "match_0/pro_0"
    with pytest.raises(ValueError, match=r"match_2/pro_0.*ready agents are \['match_0/pro_0'"):
        env.select("match_2/pro_0")


def test_forfeits_inside_gather_wait_for_siblings_in_any_order():
    def bad(decision):
        if decision.agent in ("match_0/con_0", "match_2/pro_0"):
            return "<think>silence"
        return judge_says(decision)

    plain = drive(started(Tournament), Player(bad, 0))
    assert plain.returns["match_0/con_0"] == -1 and plain.returns["match_0/pro_0"] == 1
    assert plain.returns["match_1/judge_0"] == plain.returns["match_0/judge_0"] == 0
    assert plain.last["match_0/pro_0"][1]["forfeited"] == ["match_0/con_0"]
    assert "forfeited" not in plain.last["match_1/pro_0"][1] and plain.outcome is None
    for shuffle in range(5):
        other = drive(started(Tournament), Player(bad, 0), order=Random(shuffle))
        assert other.by_agent() == plain.by_agent() and other.returns == pytest.approx(plain.returns)


def test_uncaught_forfeits_of_several_branches_end_the_episode_as_one():
    def play(self, table):
        yield from table.gather(table.ask(agent, "Choose.", legal=("x", "y")) for agent in self.seats)

    four = {f"p_{i}": Seat("p") for i in range(4)}
    for order in (None, Random(1), Random(2)):
        env = started(env_of(play, four), invalid_retries=0)
        record = drive(env, Player(lambda d: "[x]" if d.agent in ("p_0", "p_3") else "[z]", 0), order=order)
        assert len(record.steps) == 4 and record.outcome == "invalid"
        assert record.returns == {"p_0": 1.0, "p_1": -1.0, "p_2": -1.0, "p_3": 1.0}
        assert record.last["p_0"][1]["offenders"] == ["p_1", "p_2"]
        assert "reason" not in record.last["p_0"][1]
        assert record.last["p_2"][1]["reason"] == "[z] is not legal now."


def test_empty_gather_and_nested_gather_give_results_in_order():
    def play(self, table):
        empty = yield from table.gather([])
        nested = yield from table.gather([table.gather([table.ask("b_0"), table.gather([])]), table.ask("a_0")])
        table.note(result=[empty, nested])

    env = started(env_of(play))
    assert env.ready_agents == ["a_0", "b_0"]
    env.step("from a")
    env.step("from b")
    assert env.infos["a_0"]["result"] == [[], [["from b", []], "from a"]] and env.terminations == {"a_0": 1, "b_0": 1}


def test_two_branches_that_ask_one_agent_name_both_paths():
    def play(self, table):
        yield from table.gather([table.ask("a_0", "First."), table.gather([table.ask("a_0", "Second.")])])

    with pytest.raises(RuntimeError, match=r"'a_0' is asked by branch 0 of branch 1 of the rules while branch 0 of"):
        started(env_of(play))


# --- conversations ---------------------------------------------------------------------------------------------------


def through_debate(**kwargs):
    env = started(Debate, **kwargs)
    for text in ("P1", "C1", "P2", "C2"):
        env.step(text)
    return env


def test_chat_memory_joins_all_that_happened_between_two_turns_in_one_user_message():
    env = started(Debate, memory="chat")
    env.step("<think>no</think> P1")
    env.step("C1")
    assert contents(env, "pro_0")[-1] == "con_0 said: C1\nSpeak."
    assert contents(env, "pro_0")[1] == "<think>no</think> P1"
    env = through_debate(memory="chat")
    topic = contents(env, "judge_0")[0].partition("\n")[0]
    assert contents(env, "judge_0") == [
        f"{topic}\npro_0 said: P1\ncon_0 said: C1\npro_0 said: P2\ncon_0 said: C2\nWho won?\n"
        "Reply with one legal action: [pro] [con]"
    ]


def test_state_memory_is_self_contained():
    env = started(Debate, memory="state")
    env.step("P1")
    env.step("C1")
    (only,) = contents(env, "pro_0")
    assert only.startswith("Topic: ") and only.endswith("con_0 said: C1\nSpeak.") and "P1" not in only


@pytest.mark.parametrize("memory", ["chat", "state"])
def test_a_fresh_judge_never_sees_its_first_verdict(memory):
    env = through_debate(memory=memory)
    env.step("[con] FIRSTVERDICT")
    assert env.agent_selection == "judge_0"
    (only,) = contents(env, "judge_0")
    assert only.startswith("Who won? They were") and "FIRSTVERDICT" not in only and "P1" not in only
    env.step("no idea")
    texts = contents(env, "judge_0")
    assert "Invalid move: the reply states no action; write it as [...]." in texts[-1]
    assert not any("FIRSTVERDICT" in text for text in texts)
    assert len(texts) == (3 if memory == "chat" else 1)


@pytest.mark.parametrize("memory", ["chat", "state"])
def test_a_fresh_ask_shows_its_own_text_alone(memory):
    def play(self, table):
        table.tell("a_0", "Before.")
        yield from table.ask("a_0", "One.")
        table.tell("a_0", "Between.")
        yield from table.ask("a_0", "Two.", fresh=True)
        table.tell("a_0", "After.")
        yield from table.ask("a_0", "Three.")

    env = started(env_of(play), memory=memory)
    assert contents(env, "a_0") == ["Before.\nOne."]
    env.step("1")
    assert contents(env, "a_0") == ["Two."]
    env.step("2")
    assert contents(env, "a_0") == (["Two.", "2", "After.\nThree."] if memory == "chat" else ["After.\nThree."])


def test_tables_below_tables_name_agents_by_their_path():
    def play(self, table):
        inner = table.sub("x").sub("y")
        inner.tell("a_0", "You are deep.")
        yield from inner.ask("a_0", "Go.")
        inner.reward("a_0", 1)
        table.sub("x").note(seen=True)
        inner.note("a_0", mine=True)

    env = started(env_of(play, {"x/y/a_0": Seat("a"), "x/b_0": Seat("b"), "xy_0": Seat("c")}))
    assert env.ready_agents == ["x/y/a_0"] and contents(env, "x/y/a_0") == ["You are deep.\nGo."]
    env.step("x")
    assert env.rewards["x/y/a_0"] == 1.0
    assert {agent for agent, info in env.infos.items() if "seen" in info} == {"x/y/a_0", "x/b_0"}
    assert {agent for agent, info in env.infos.items() if "mine" in info} == {"x/y/a_0"}


def test_everybody_is_told_at_the_end_what_came_after_the_last_action():
    env = through_debate(memory="chat")
    env.step("[pro]")
    env.step("[con]")
    assert env.ended and contents(env, "pro_0")[-1] == "con_0 said: C2"
    assert [m["role"] for m in env.observe("pro_0")["messages"]] == ["user", "assistant"] * 2 + ["user"]


def test_reset_options_reach_the_rules_and_unknown_ones_are_refused():
    env = Debate()
    env.reset(seed=1, options={"topic": "chess"})
    assert contents(env, "pro_0")[0].startswith("Topic: chess.")
    with pytest.raises(ValueError, match=r"'topik' is unknown\. Did you mean 'topic'\?"):
        env.reset(seed=1, options={"topik": "chess"})


# --- invalid moves ---------------------------------------------------------------------------------------------------


def choosing(self, table):
    for agent in self.seats:
        yield from table.ask(agent, "Choose.", legal=("x", "y"))


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_the_number_of_retries(retries):
    env = started(env_of(choosing, zero_sum=True), invalid_retries=retries)
    for tries in range(1, retries + 2):
        assert not env.ended and env.agent_selection == "a_0"
        env.step(f"[z{tries}]")
    assert env.ended and env.infos["b_0"]["outcome"] == "invalid" and env.rewards == {"a_0": -1.0, "b_0": 1.0}
    assert env.terminations == {"a_0": True, "b_0": True} and env.truncations == {"a_0": False, "b_0": False}
    assert env.infos["a_0"]["reason"] == f"[z{retries + 1}] is not legal now."
    assert "Invalid" not in str(contents(env, "b_0")) and "reason" not in env.infos["b_0"]


def test_retries_start_anew_at_every_ask():
    env = started(env_of(choosing))
    for text in ("[z]", "[x]", "[z]", "[Y]"):
        env.step(text)
    assert env.ended and "outcome" not in env.infos["a_0"]


def test_rewards_of_the_spiral_preset_and_of_three_players():
    env = started(env_of(choosing), invalid_retries=0, invalid_reward=-1.5, invalid_opponent_reward=0.5)
    env.step("nothing")
    assert env.rewards == {"a_0": -1.5, "b_0": 0.5}
    three = {f"p_{i}": Seat("p") for i in range(3)} | {"judge_0": Seat("judge", trainable=False)}
    env = started(env_of(choosing, three), invalid_retries=0)
    env.step("nothing")
    assert env.rewards == {"p_0": -1.0, "p_1": 0.5, "p_2": 0.5, "judge_0": 0.0}
    env = started(env_of(choosing, three, zero_sum=False), invalid_retries=0)
    env.step("nothing")
    assert env.rewards == {"p_0": -1.0, "p_1": 0.0, "p_2": 0.0, "judge_0": 0.0}  # nobody gains by another's mistake


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "says nothing"),
        ("<think>[x]", "says nothing"),
        ("[x]</think>  ", "says nothing"),
        ("x", "states no action"),
        ("[z]", r"\[z\] is not legal now"),
        ("[x] or [z]", r"\[z\] is not legal now"),
        ("[" + "9" * 5000 + "]", r"\[9{40}\] is not legal"),
        ("[x]" + "!" * 65536, "65539 characters; at most 65536"),
    ],
)
def test_reasons(text, reason):
    env = started(env_of(choosing))
    env.step(text)
    assert env.agent_selection == "a_0"
    (message,) = [m["content"] for m in env.observe("a_0")["messages"] if "Invalid move: " in m["content"]]
    assert re.search(reason, message)


def test_parse_gets_the_public_text_and_its_reason_reaches_the_mover_alone():
    def parse(text):
        if not text.isdecimal():
            raise InvalidMove(f"{text!r} is no number.")
        return int(text)

    def play(self, table):
        table.note(number=(yield from table.ask("a_0", "A number.", parse=parse)))
        yield from table.ask("b_0", "Go on.")

    env = started(env_of(play))
    env.step("<think>7</think> eight")
    assert contents(env, "a_0")[-1] == "Invalid move: 'eight' is no number."
    env.step("<think>8</think> 9")
    assert env.infos["b_0"]["number"] == 9 and contents(env, "b_0") == ["Go on."]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"invalid_retries": -1}, "invalid_retries must be a whole number of at least 0; got -1"),
        ({"invalid_retries": 0.5}, "invalid_retries must be a whole number"),
        ({"invalid_retries": True}, "invalid_retries must be a whole number"),
        ({"max_turns": 0}, "max_turns must be a whole number of at least 1; got 0"),
        ({"memory": "all"}, "memory must be one of 'state', 'chat'; got 'all'"),
        ({"action_format": "xml"}, "action_format must be one of 'bracket', 'boxed'"),
        ({"render_mode": "rgb_array"}, "render_mode must be one of None, 'ansi', 'human'"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        Debate(**options)


# --- mistakes of rules -----------------------------------------------------------------------------------------------


def test_an_error_in_the_rules_names_env_seed_and_log_length_and_ends_in_a_clear_state():
    def play(self, table):
        yield from table.ask("a_0")
        raise ZeroDivisionError("rules are wrong")

    env = started(env_of(play, name="Wrong-v0"), seed=5)
    with pytest.raises(ZeroDivisionError) as caught:
        env.step("go")
    assert caught.value.__notes__ == ["raised by the rules of Wrong-v0, seed 5, after 1 actions"]
    with pytest.raises(RuntimeError, match=r"failed in an earlier step; call reset\(\)"):
        env.step("again")
    env.reset(seed=6)
    assert env.ready_agents == ["a_0"]


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda table: table.ask("c_0"), KeyError, r"the rules asked 'c_0'; seats are \['a_0', 'b_0'\]"),
        (lambda table: table.ask("a_0", legal=()), ValueError, "'a_0' is asked to choose among no legal actions"),
        (lambda table: iter([table.ask("a_0")]), TypeError, "the rules yielded a generator; write `yield from"),
    ],
)
def test_wrong_asks(ask, error, message):
    def play(self, table):
        yield from ask(table)

    with pytest.raises(error, match=message) as caught:
        started(env_of(play))
    assert "raised by the rules of" in caught.value.__notes__[0]


def test_notes_and_rewards_for_nobody_are_errors():
    def note(self, table):
        table.note("c_0", x=1)
        yield from table.ask("a_0")

    with pytest.raises(KeyError, match="a note for 'c_0'; seats are"):
        started(env_of(note))


def test_an_env_that_is_not_whole_says_what_is_missing():
    with pytest.raises(TypeError, match=r"play\(\) asks nobody: it must ask with `yield from table\.ask"):
        started(env_of(lambda self, table: table.ask("a_0", "hi") and None))
    with pytest.raises(AttributeError, match=r"the class must declare them, as seats = \{'player_0'"):
        type("Bare", (TextEnv,), {})()


def test_steps_at_the_wrong_time():
    env = Debate()
    with pytest.raises(RuntimeError, match="no state before reset"):
        env.state()
    with pytest.raises(RuntimeError, match=r"step\(\) before reset"):
        env.step("early")
    for early in (env.last, lambda: env.infos, lambda: env.observe("pro_0")):
        with pytest.raises(AttributeError, match=r"Debate-v0: call reset\(seed=...\) first"):
            early()
    assert not hasattr(env, "agent_selection") and not hasattr(env, "no_such_name")
    env.reset(seed=0)
    with pytest.raises(TypeError, match="action of 'pro_0' must be a str, got int"):
        env.step(3)
    assert env.log == [] and env.ready_agents == ["pro_0"]
    drive(env, Player(judge_says, 0))
    with pytest.raises(RuntimeError, match="after every agent has left"):
        env.step("late")


# --- the turn limit --------------------------------------------------------------------------------------------------


def test_truncation_lets_the_rules_settle_children_first():
    closed = []

    def play(self, table):
        try:
            yield from table.gather(branch(table, agent) for agent in self.seats)
        except Truncated:
            closed.append("root")
            table.reward("b_0", 0.25)
            table.tell(self.seats, "Time is up.")
            raise

    def branch(table, agent):
        try:
            while True:
                yield from table.ask(agent, "Go on.")
        except Truncated:
            closed.append(agent)
            table.reward(agent, 0.5)

    env = started(env_of(play), max_turns=3)
    record = drive(env, Player(None, 0))
    assert closed == ["a_0", "b_0", "root"]
    assert record.returns == {"a_0": 0.5, "b_0": 0.75}
    assert set(record.endings.values()) == {(False, True)} and record.outcome == "truncated" and len(record.steps) == 3
    for observation, _ in record.last.values():
        roles = [m["role"] for m in observation["messages"]]
        assert roles == [("user", "assistant")[i % 2] for i in range(len(roles))]
        assert observation["messages"][-1]["content"].endswith("Go on.\nTime is up.")


def test_rules_that_ask_again_at_the_turn_limit_are_an_error():
    def play(self, table):
        try:
            yield from table.ask("a_0")
            yield from table.ask("b_0")
        except Truncated:
            yield from table.ask("a_0", "One more?")

    env = started(env_of(play), max_turns=1)
    with pytest.raises(RuntimeError, match="the rules asked again after the turn limit of 1"):
        env.step("x")


def test_rules_that_fail_while_they_settle_are_named():
    def play(self, table):
        try:
            yield from table.ask("a_0")
            yield from table.ask("b_0")
        except Truncated:
            raise ZeroDivisionError from None

    env = started(env_of(play), max_turns=1)
    with pytest.raises(ZeroDivisionError) as caught:
        env.step("x")
    assert "at the turn limit" in caught.value.__notes__[0]


def test_an_abandoned_episode_does_not_reach_the_next_one():
    def play(self, table):
        try:
            yield from table.ask("a_0")
        finally:
            table.reward("b_0", 7)
            table.tell("a_0", "from the old episode")

    env = started(env_of(play))
    env.reset(seed=1)
    assert env.rewards == {"a_0": 0.0, "b_0": 0.0} and contents(env, "a_0") == [""]
    env.step("x")
    assert env.rewards == {"a_0": 0.0, "b_0": 7.0}


def test_rewards_before_the_first_ask_count_with_the_first_step():
    def play(self, table):
        table.reward("b_0", 0.5)
        yield from table.ask("a_0")
        table.reward("a_0", 0.25)

    env = started(env_of(play))
    assert env.rewards == {"a_0": 0.0, "b_0": 0.0}
    assert drive(env, Player(None, 0)).returns == {"a_0": 0.25, "b_0": 0.5}


def test_rules_without_asks_end_at_reset():
    def play(self, table):
        table.reward("a_0", 1)
        return
        yield

    env = started(env_of(play))
    assert env.ended and env.ready_agents == [] and drive(env, Player(None, 0)).returns == {"a_0": 1.0, "b_0": 0.0}


# --- copies, seeds, render -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_copies_between_dead_steps(copied):
    env = started(Debate)
    for _ in range(6):
        env.step("[pro]")
    env.step(None)
    twin = copied(env)
    assert twin.agents == env.agents == ["con_0", "judge_0"] and twin.agent_selection == "con_0"
    assert twin.infos == env.infos and twin.last() == env.last()


def test_a_selected_agent_and_the_stream_survive_copying():
    env = Tournament()
    env.reset(seed=9)
    env.reset()
    env.select("author_2")
    twin = pickle.loads(pickle.dumps(env))
    assert twin.agent_selection == "author_2" and twin.seed == env.seed
    env.reset()
    twin.reset()
    assert twin.seed == env.seed


def test_reset_without_a_seed_continues_the_stream():
    env, other = Debate(), Debate()
    env.reset(seed=4)
    other.reset(seed=4)
    seeds = []
    for _ in range(5):
        env.reset()
        other.reset()
        assert env.seed == other.seed
        seeds.append(env.seed)
    assert len({4, *seeds}) == 6
    env.reset(seed=4)
    env.reset()
    assert env.seed == seeds[0]


def test_resets_without_any_seed_differ():
    seeds = set()
    for _ in range(4):
        env = Debate()
        env.reset()
        seeds.add(env.seed)
    assert len(seeds) == 4


def test_every_table_draws_from_its_own_generator():
    def play(self, table):
        here = table.sub("here")
        tables = (here, table.sub("there"), table, table.sub("here"), here.sub("x"))
        table.note(numbers=[int(t.rng.integers(10**9)) for t in tables])
        yield from table.ask("a_0")

    first, again, other = (started(env_of(play), seed=s).infos["a_0"]["numbers"] for s in (1, 1, 2))
    assert first == again and first[0] == first[3] and len(set(first)) == 4 and not set(first) & set(other)


def test_restore_on_a_used_env_that_prints(capsys):
    env = started(Debate, seed=3)
    env.step("P1")
    state = env.state()
    other = started(Debate, seed=8, render_mode="human")
    other.restore(state)
    assert capsys.readouterr().out == "" and other.render_mode == "human"
    same(drive(other, Player(judge_says, 3)), drive(env, Player(judge_says, 3)), "restored")
    assert "[con_0] word 0" in capsys.readouterr().out


def test_render_shows_public_text_and_outcome():
    env = started(Debate, seed=2, render_mode="ansi", invalid_retries=0)
    env.step("<think>hidden</think>hello")
    assert env.render() == "Debate-v0, seed 2\n[pro_0] hello"
    env.step("<think>hidden")
    assert env.render().endswith("[con_0] \noutcome: invalid") and "hidden" not in env.render()


def test_lone_surrogates_are_replaced_so_that_records_can_be_written():
    env = started(env_of(choosing))
    env.step("\ud83d\ude00 [x] \udc00")
    assert env.log[0][1] == "\N{GRINNING FACE} [x] \N{REPLACEMENT CHARACTER}"


def test_settle_at_a_nested_table_pays_that_table_only():
    def play(self, table):
        try:
            yield from table.sub("m").ask("a_0", legal=("x",))
        except Forfeit as forfeit:
            assert forfeit.reasons == {"m/a_0": "the reply states no action; write it as [...]."}
            table.settle(forfeit)

    env = started(env_of(play, {"host_0": Seat("host"), "m/a_0": Seat("a"), "m/b_0": Seat("b")}), invalid_retries=0)
    env.step("x")
    assert env.rewards == {"host_0": 0.0, "m/a_0": -1.0, "m/b_0": 1.0} and "outcome" not in env.infos["m/a_0"]


def test_cheap_draws_are_keyed_by_seed_table_and_count():
    def play(self, table):
        table.rng.random()
        table.note(draws=[table.random(), table.random(), table.sub("x").random(), table.sub("x").random()])
        yield from table.ask("a_0")

    made = env_of(play)
    draws = [started(made, seed=seed).infos["a_0"]["draws"] for seed in range(300)]
    assert started(made, seed=7).infos["a_0"]["draws"] == draws[7] and all(d[2] == d[3] for d in draws)
    flat = [number for d in draws for number in d[:3]]
    assert len(set(flat)) == 900 and all(0 <= number < 1 for number in flat)
    assert 0.45 < sum(flat) / 900 < 0.55
