"""What goes wrong in the core: invalid moves, mistakes of rules, the turn limit."""

import re

import pytest

from legos_envs import InvalidMove, Seat, TextEnv, Truncated
from legos_envs.testing.harness import Player, drive
from tests.envs.nested import Debate
from tests.envs.small_envs import choosing, contents, env_of, judge_says, started

# --- invalid moves ---------------------------------------------------------------------------------------------------


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
        ("", "is empty or contains only a private thought"),
        ("<think>[x]", "is empty or contains only a private thought"),
        ("[x]</think>  ", "is empty or contains only a private thought"),
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
            raise InvalidMove(f"{text!r} is not a number.")
        return int(text)

    def play(self, table):
        table.note(number=(yield from table.ask("a_0", "A number.", parse=parse)))
        yield from table.ask("b_0", "Go on.")

    env = started(env_of(play))
    env.step("<think>7</think> eight")
    assert contents(env, "a_0")[-1] == "Invalid move: 'eight' is not a number."
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
        (lambda table: table.ask("a_0", legal=()), ValueError, "'a_0' is asked with an empty list of legal actions"),
        (lambda table: table.ask("a_0", legal=range(3)), TypeError, "legal actions that are not strings, such as 0"),
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

    with pytest.raises(KeyError, match=r"noted something of .c_0., which has no seat; seats are"):
        started(env_of(note))


def test_an_env_that_is_not_whole_says_what_is_missing():
    with pytest.raises(TypeError, match=r"play\(\) asks nobody: it must ask with `yield from table\.ask"):
        started(env_of(lambda self, table: table.ask("a_0", "hi") and None))
    with pytest.raises(AttributeError, match=r"the class must declare them, as seats = \{'player_0'"):
        type("Bare", (TextEnv,), {})()


def test_an_ask_that_asks_nobody_is_an_error_at_the_end():
    """Without `yield from`, `table.ask` gives a generator, and rules would go on as if somebody had answered."""

    def play(self, table):
        yield from table.ask("a_0")
        table.ask("a_0", "Are you sure?")
        kept = [table.ask("a_0"), table.ask("a_0", "And now?")]
        for one in kept:  # made first, asked later: fine
            yield from one

    env = started(env_of(play))
    with pytest.raises(TypeError, match=r"asks without effect: 1; write `yield from table\.ask") as caught:
        drive(env, Player(lambda decision: "yes", 0))
    assert "raised by the rules of" in caught.value.__notes__[0] and [text for _, text in env.log] == ["yes"] * 3
    env.reset(seed=1)  # starts anew
    assert env.agents


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
    with pytest.raises(RuntimeError, match="after the end: every agent has left"):
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
