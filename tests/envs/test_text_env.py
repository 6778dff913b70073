"""The core: rules as a generator, ready agents, conversations, copies, seeds."""

import copy
import pickle
from random import Random

import pytest

from legos_envs import Forfeit, Seat
from legos_envs.testing import check_env
from legos_envs.testing.harness import Player, drive, same
from tests.envs.nested import Debate, Tournament
from tests.envs.small_envs import choosing, contents, env_of, judge_says, started

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

    with pytest.raises(RuntimeError, match=r"branch 0 of branch 1 of the rules asks 'a_0' while branch 0 of"):
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


def test_a_person_sees_every_action_once_the_last_too(capsys):
    env = started(env_of(choosing), render_mode="human")
    env.step("[x]")
    env.step("[y]")
    assert capsys.readouterr().out == "[a_0] [x]\n[b_0] [y]\noutcome: ended\n"


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
