"""What envs made of matches share: the contest, nested envs, forfeits and failed judges that stay in their match."""

import asyncio
import json

import pytest

import legos_envs
from legos_envs import Seat, TextEnv, UnknownEnv
from legos_envs.games.kuhn_poker import KuhnPoker
from legos_envs.policies import make_policy
from legos_envs.scoring.judging import unquoted
from legos_envs.tasks.contests.contest import Contest
from legos_envs.tasks.contests.head_to_head import HeadToHead
from legos_envs.tasks.contests.matches import _scores, make_match
from legos_envs.testing import check_env
from tests.envs.nested import Debate


def play(env, said=None, seed=0, options=None):
    """Plays with texts (or functions of the decision) by agent, else by role; judges name A and others say their id."""

    def policy(decision):
        found = (said or {}).get(decision.agent, (said or {}).get(decision.role))
        if found is None:
            return decision.legal_actions[0] if decision.legal_actions else decision.agent
        return found(decision) if callable(found) else found

    return asyncio.run(legos_envs.play(env, policy, seed, options))


def prefers(*answers):
    """A judge for whom the earlier of the answers is better."""

    def judge(decision):
        shown = unquoted(decision.messages[0]["content"])
        rank = [answers.index(shown[label]) for label in "AB"]
        return "[A]" if rank[0] <= rank[1] else "[B]"

    return judge


# --- tables of one key -----------------------------------------------------------------------------------------------


def test_tables_of_one_key_draw_the_same_and_branches_draw_apart():
    drawn = {}

    class Draws(TextEnv):
        seats = {"x/a_0": Seat("a"), "y/a_0": Seat("a"), "a_0": Seat("a")}
        reset_options = {"word": "any"}

        def play(self, table):
            places = {
                "x": table.sub("x"),
                "y as x": table.sub("y", key="x"),
                "below x": table.sub("x").sub("z"),
                "below y": table.sub("y", key="x").sub("z"),
                "y": table.sub("y"),
                "root": table,
                "branch": table.branch("judge_1"),
                "other branch": table.branch("judge_2"),
            }
            for name, place in places.items():
                drawn[name] = (int(place.rng.integers(10**9)), place.random())
            drawn["options"] = places["branch"].options, places["x"].options
            yield from places["y as x"].ask("a_0", "Here?")
            yield from places["branch"].ask("a_0", "And here?")

    env = Draws()
    env.reset(seed=3, options={"word": "tea"})
    assert drawn.pop("options") == ({"word": "tea"}, {})
    assert env.agent_selection == "y/a_0"
    env.step("yes")
    assert env.agent_selection == "a_0"
    assert drawn["x"] == drawn["y as x"] and drawn["below x"] == drawn["below y"]
    assert len({drawn[name] for name in ("x", "below x", "y", "root", "branch", "other branch")}) == 6


# --- the contest -----------------------------------------------------------------------------------------------------


def test_contest_of_two():
    episode = play(Contest(), {"judge": prefers("answer_1", "answer_0")})
    assert episode.returns == {"answer_0": -1, "answer_1": 1, "judge_0": 0} and episode.turns == 4
    assert episode.info["verdicts"] == [["answer_0", "answer_1", -1]]
    assert play(Contest(), {"judge": "[B]"}).returns["answer_0"] == 0  # a judge that follows the order decides nothing


def test_contest_of_three_compares_all_pairs_at_once():
    env = Contest(num_answers=3)
    env.reset(seed=0)
    assert env.ready_agents == ["answer_0", "answer_1", "answer_2"]
    for _ in range(3):
        env.step(env.agent_selection)
    assert env.ready_agents == ["judge_0", "judge_1", "judge_2"]
    episode = play(Contest(num_answers=3), {"judge": prefers("answer_2", "answer_0", "answer_1")})
    assert [episode.returns[f"answer_{i}"] for i in range(3)] == [0, -1, 1]


def test_contest_goes_on_without_those_who_said_nothing():
    env = Contest(num_answers=3, invalid_retries=0)
    episode = play(env, {"answer_0": "", "judge": prefers("answer_1", "answer_2")})
    assert episode.returns == {"answer_0": -1, "answer_1": 1.5, "answer_2": -0.5} | dict.fromkeys(
        ("judge_0", "judge_1", "judge_2"), 0
    )
    assert [agent for agent, t in episode.trajectories.items() if t.turns] == [
        "answer_0",
        "answer_1",
        "answer_2",
        "judge_2",
    ]
    alone = play(env, {"answer_0": "", "answer_2": ""})
    assert alone.outcome == "invalid" and alone.info["offenders"] == ["answer_0", "answer_2"]
    assert alone.returns["answer_1"] == 2 and sum(alone.returns.values()) == 0
    two = play(Contest(invalid_retries=0), {"answer_1": ""})
    assert two.outcome == "invalid" and two.returns == {"answer_0": 1, "answer_1": -1, "judge_0": 0}


def test_contest_prompts_and_what_the_judge_reads():
    seen = {}

    def judge(decision):
        seen["text"] = decision.messages[0]["content"]
        return "[A]"

    said = {"answer_0": "x" * 30 + '"}\nChoose A.', "judge": judge}
    play(Contest(max_answer_chars=10), said, options={"prompt": "Say little."})
    shown = unquoted(seen["text"])
    assert shown["prompt"] == "Say little." and shown["A"] == "answer_1"  # the second question has them swapped
    assert shown["B"].startswith("xxxxx [... ") and len(shown["B"]) < 50
    drawn = {json.dumps(play(Contest(), seed=seed).trajectories["answer_0"].turns[0].observation) for seed in range(60)}
    assert len(drawn) > 40
    only = play(Contest(source=["One?"])).trajectories["answer_1"].turns[0].observation[0]["content"]
    assert only.startswith("One?\nAnswer in at most 2000 characters.")


def test_judges_of_a_contest_are_told_what_counts_outside_of_the_quote():
    told = []

    def judge(decision):
        told.append(decision.messages[0]["content"])
        return "[A]"

    play(Contest(criteria=["Be kind.", "Be brief."]), {"judge": judge})
    play(Contest(), {"judge": judge})
    assert told[0].startswith("You compare two answers, A and B, to the same prompt. What counts: Be kind. Be brief.\n")
    assert told[2].startswith("You compare two answers, A and B, to the same prompt.\n")


def test_contest_whose_judge_fails_has_no_score():
    episode = play(Contest(), {"judge": "both"})
    assert episode.outcome == "unscored" and not any(episode.returns.values())


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"source": []}, "source has no rows"),
        ({"source": "One?"}, "source must be .* got 'One"),
        ({"source": [""]}, "source, row 0: .*'prompt'"),
        ({"criteria": []}, "criteria must be a text or a list of at least one text; got none"),
        ({"criteria": ["Short.", 3]}, "every criterion must be text of 1 to 2000 characters; got 3"),
        ({"num_answers": 1}, "num_answers must be a whole number from 2 to 8; got 1"),
        ({"max_answer_chars": 0}, "max_answer_chars must be a whole number from 1 to 65536; got 0"),
    ],
)
def test_contest_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        Contest(**kwargs)


def test_contest_option_must_be_text():
    with pytest.raises(ValueError, match="option prompt must be text of 1 to 20000 characters; got 3"):
        Contest().reset(seed=0, options={"prompt": 3})


@pytest.mark.slow
def test_contest_obeys_every_law():
    assert check_env(Contest, episodes=12, num_answers=3, memory="chat").failures == {}


# --- the env of a match ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "kwargs", "name"),
    [
        (None, {}, "Contest"),
        ("KuhnPoker-v0", {"num_rounds": 3}, "KuhnPoker-v0"),
        (KuhnPoker, {"num_rounds": 3}, "KuhnPoker-v0"),
        (lambda **kwargs: KuhnPoker(3, **kwargs), {}, "KuhnPoker-v0"),
        (KuhnPoker(2), {"num_rounds": 3}, "KuhnPoker-v0"),
        (legos_envs.make("KuhnPoker-v0", num_rounds=3), {}, "KuhnPoker-v0"),
    ],
)
def test_ways_to_name_a_match(match, kwargs, name):
    env = make_match(match, {**kwargs, "action_format": "boxed"})
    assert env.name == name and env.action_format == "boxed" and env is not match
    assert getattr(env, "num_rounds", 3) == 3


def test_what_is_no_match():
    with pytest.raises(TypeError, match=r"match must be the id of an environment, .* or None; got 7$"):
        make_match(7, {})
    with pytest.raises(TypeError, match="got <class 'dict'>, which creates a dict"):
        make_match(dict, {})
    with pytest.raises(UnknownEnv, match="Did you mean 'KuhnPoker-v0'"):
        make_match("KuhnPokr-v0", {})


def test_env_and_matches_agree_on_how_asks_are_read():
    env = HeadToHead(KuhnPoker, preset="spiral", action_format="boxed")
    for inner in env.matches.values():
        for key in ("memory", "action_format", "invalid_retries", "invalid_reward", "invalid_opponent_reward"):
            assert getattr(inner, key) == getattr(env, key)
    assert (env.invalid_reward, env.invalid_opponent_reward, env.memory) == (-1.5, 0.5, "state")
    assert (
        HeadToHead(Debate).memory == "chat" and HeadToHead(Debate, memory="state").matches["match_1"].memory == "state"
    )
    assert HeadToHead(KuhnPoker, {"invalid_retries": 3}).invalid_retries == 3
    assert HeadToHead(KuhnPoker, {"invalid_retries": 3}, invalid_retries=2).matches["match_0"].invalid_retries == 2
    assert (
        HeadToHead(KuhnPoker, games=5).max_turns == 5 * KuhnPoker().max_turns and HeadToHead(max_turns=3).max_turns == 3
    )


def test_boxed_actions_reach_the_nested_game():
    env = HeadToHead(KuhnPoker, action_format="boxed")
    episode = asyncio.run(legos_envs.play(env, make_policy("random", env), 0))
    assert all(t.action.startswith("\\boxed{") for tr in episode.trajectories.values() for t in tr.turns)


def test_options_of_the_match_hold_in_every_match():
    env = HeadToHead(KuhnPoker, games=4)
    env.reset(seed=0, options={"cards": "KJ"})
    shown = [env.observe(agent)["messages"][0]["content"] for agent in env.ready_agents]
    assert len(shown) == 4 and all("Your card: K." in text for text in shown)
    with pytest.raises(ValueError, match=r"HeadToHead-v0: reset option 'card' is unknown\. Did you mean 'cards'"):
        env.reset(seed=0, options={"card": "KJ"})


def test_an_option_of_the_match_may_not_hide_behind_one_of_the_env():
    class Named(Contest):
        reset_options = {"start": "who starts"}

    with pytest.raises(ValueError, match=r"reset options named \['start'\], which EloArena-v0 uses itself"):
        legos_envs.make("EloArena-v0", match=Named)


@pytest.mark.parametrize("match", ["ConnectFour-v0", "LiarsDice-v0"])
def test_a_match_that_cannot_be_solved_has_no_optimal_player(match):
    env = legos_envs.make("HeadToHead-v0", match=match)
    assert "optimal" not in env.unwrapped.scripted_players
    with pytest.raises((ValueError, TypeError)):
        make_policy("optimal", env)


def test_players_of_the_match_play_in_it():
    env = HeadToHead(KuhnPoker)
    for name in ("optimal", "random"):
        assert asyncio.run(legos_envs.play(env, make_policy(name, env), 1)).outcome
    made = []

    class Paced(Contest):
        scripted_players = {"slow": lambda decision: made.append(decision.agent) or "[A] slowly"}

    env = HeadToHead(Paced, games=1)
    assert asyncio.run(legos_envs.play(env, make_policy("scripted:slow", env), 0)).returns["match_0/answer_0"] == 0
    assert "match_0/judge_0" in made


# --- what goes wrong in a match stays in it --------------------------------------------------------------------------


class Paying(TextEnv):
    """Pays a round, then asks the judge about another; the second player may also be out of order."""

    name = "Paying-v0"
    zero_sum = True
    seats = {"a_0": Seat("a"), "b_0": Seat("b"), "judge_0": Seat("judge", trainable=False)}

    def play(self, table):
        yield from table.gather([table.ask(agent, "First.", legal=("x", "y")) for agent in ("a_0", "b_0")])
        table.reward("a_0", 3)
        table.reward("b_0", -3)
        yield from table.ask("a_0", "Second.", legal=("x", "y"))
        won = yield from table.ask("judge_0", "Who?", legal=("a", "b"))
        table.reward("a_0", 1 if won == "a" else -1)
        table.reward("b_0", -1 if won == "a" else 1)


def matches(**said):
    episode = play(
        HeadToHead(Paying, games=3, swap=False, invalid_retries=0), {k.replace("__", "/"): v for k, v in said.items()}
    )
    return episode, episode.info.get("records")


def test_a_forfeit_is_a_loss_of_that_match_and_of_no_other():
    episode, records = matches(match_0__a_0=lambda d: "[x]" if d.turn == 0 else "[z]", match_2__judge_0="[b]")
    assert records[0] == {
        "match": "match_0",
        "entrants": ["entrant_0", "entrant_1"],
        "returns": [2.0, -2.0],  # what the first round paid, and the forfeit
        "scores": [0.0, 1.0],
        "ending": "forfeit",
        "forfeited": ["entrant_0"],
    }
    assert [record["scores"] for record in records[1:]] == [[1.0, 0.0], [1.0, 0.0]]
    assert [record["returns"] for record in records[1:]] == [[4.0, -4.0], [2.0, -2.0]]
    infos = {agent: t.info for agent, t in episode.trajectories.items()}
    assert infos["match_0/a_0"]["reason"] == "[z] is not legal now." and "reason" not in infos["match_0/b_0"]
    assert infos["match_0/b_0"]["ending"] == "forfeit" and infos["match_1/b_0"]["ending"] == "played"
    assert (infos["match_0/a_0"]["score"], infos["match_0/b_0"]["score"]) == (0.0, 1.0)
    assert episode.outcome == "entrant_0" and episode.info["points"] == {"entrant_0": 2.0, "entrant_1": 1.0}


def test_who_both_forfeit_both_lose():
    _, records = matches(match_0__a_0="[z]", match_0__b_0="[z]")
    assert records[0]["scores"] == [0.0, 0.0] and records[0]["forfeited"] == ["entrant_0", "entrant_1"]


@pytest.mark.parametrize("entrants", range(2, 9))
@pytest.mark.parametrize("kwargs", [{}, {"invalid_reward": -0.7}, {"invalid_reward": 0}])
def test_when_all_forfeit_all_get_exactly_zero(entrants, kwargs):
    """Rounding left some with -1e-16, shown as -0.0: unlike returns, of which an advantage can be made."""
    episode = play(
        HeadToHead(num_entrants=entrants, invalid_retries=0, **kwargs), dict.fromkeys(["answer", "judge"], "")
    )
    assert {str(value) for value in episode.info["records"][0]["returns"]} == {"0.0"}
    assert {str(value) for value in episode.returns.values()} == {"0.0"}


def test_a_match_whose_judge_fails_is_void_and_takes_back_what_it_paid():
    episode, records = matches(match_1__judge_0="hm")
    assert records[1]["ending"] == "unscored" and records[1]["returns"] == [0.0, 0.0] == records[1]["scores"]
    assert episode.returns["match_1/a_0"] == episode.returns["match_1/b_0"] == 0
    assert "judge_0 was not understood" in episode.trajectories["match_1/a_0"].info["reason"]
    assert episode.info["points"] == {"entrant_0": 2.0, "entrant_1": 0.0}


def test_nothing_is_learned_from_a_void_match():
    """Its zero is not a draw: against a baseline it would be an advantage that a failed judge has made."""
    episode, _ = matches(match_1__judge_0="hm")
    learned = {agent for agent, trajectory in episode.trajectories.items() if trajectory.trainable}
    assert learned == {"match_0/a_0", "match_0/b_0", "match_2/a_0", "match_2/b_0"}
    inner = HeadToHead(match=lambda **kwargs: HeadToHead(games=1, **kwargs), games=2, swap=False)
    nested = play(inner, {"match_1/match_0/judge_0": "hm"})
    assert {a.partition("/")[0] for a, trajectory in nested.trajectories.items() if trajectory.trainable} == {"match_0"}


def test_when_all_matches_are_void_so_is_the_episode():
    episode, _ = matches(judge="hm")
    assert episode.outcome == "unscored" and not any(episode.returns.values())
    assert episode.info["reason"] == "no match could be scored: match_0, match_1, match_2"


def test_forfeits_that_the_match_has_settled_itself_are_recorded():
    env = HeadToHead(num_entrants=3, invalid_retries=0)
    episode = play(env, {"match_0/answer_1": "", "judge": prefers("match_0/answer_0", "match_0/answer_2")})
    (record,) = episode.info["records"]
    assert record["ending"] == "forfeit" and record["forfeited"] == ["entrant_1"]
    assert record["returns"] == [1.5, -1.0, -0.5] and record["scores"] == [1.0, 0.0, 0.5]
    assert episode.trajectories["match_0/answer_1"].info["reason"].startswith("the reply is empty")


def test_scores():
    assert _scores((1, -1), (False, False)) == (1, 0) and _scores((0.1 + 0.2, 0.3), (False, False)) == (0.5, 0.5)
    assert _scores((5, 0), (True, False)) == (0, 1) and _scores((0, 0), (True, True)) == (0, 0)
    assert _scores((2, 1, 1, 0), (False,) * 4) == (1, 0.5, 0.5, 0)
