"""A reward of your own on any env."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from legos_envs import Decision, Rubric, Unscored, make, play
from legos_envs.testing import check_env
from legos_envs.wrappers import FillSeats, RubricReward, TurnLimit
from tests.envs.nested import Debate
from tests.envs.small_envs import env_of, paying_early


def brief(text: str) -> float:
    return -len(text) / 100


def bold(texts: tuple[str, ...]) -> float:
    return float(sum("[bet]" in text for text in texts))


def first(decision: Decision) -> str:
    return (decision.legal_actions or ("Answer: 1",))[0]


def returns(env, policy=first, seed=0, **options):
    return asyncio.run(play(env, policy, seed, options or None)).returns


def bets(decision: Decision) -> str:
    return next((a for a in decision.legal_actions or () if "bet" in a), (decision.legal_actions or ("",))[0])


def test_rewards_are_added_or_replaced():
    plain = returns(make("KuhnPoker-v0"), bets)
    own = {agent: total for agent, total in plain.items()}
    added = returns(RubricReward(make("KuhnPoker-v0"), Rubric([bold], [0.5])), bets)
    replaced = returns(RubricReward(make("KuhnPoker-v0"), Rubric([bold, brief], [0.5, 0.0]), mode="replace"), bets)
    assert replaced == {"player_0": 0.5, "player_1": 0.0}, "only the first to act bets; weight 0 pays nothing"
    assert added == pytest.approx({agent: own[agent] + replaced[agent] for agent in own})
    one = returns(RubricReward(make("KuhnPoker-v0"), Rubric([bold]), mode="replace", roles=["player_1"]), bets)
    assert one == {"player_0": own["player_0"], "player_1": 0.0}


@pytest.mark.parametrize("mode", ["add", "replace"])
def test_what_was_paid_while_filled_seats_played_counts(mode):
    def paid(reward: float) -> float:
        return reward

    def junk(decision: Decision) -> str:
        return "junk"

    env = RubricReward(FillSeats(env_of(paying_early)(), {"a_0": junk}), Rubric([paid]), mode=mode)
    assert returns(env) == {"b_0": 28.0 if mode == "add" else 14.0}
    forfeited = RubricReward(FillSeats(make("KuhnPoker-v0"), {"player_0": junk}), Rubric([brief]), mode=mode)
    assert returns(forfeited) == {"player_1": 1.0}, "an episode that an invalid move ended keeps the env's rewards"


def test_functions_take_what_the_env_notes_and_what_it_paid():
    def near(answer: str | None, truth: str, reward: float, role: str, messages, info) -> float:
        assert messages[0]["role"] == "user" and info["truth"] == truth and role == "solver" and reward == 0.1
        return -abs(float(answer or 0) - float(truth))

    env = RubricReward(make("Dataset-v0"), Rubric([near]))
    env.reset(seed=0)
    env.step("Answer: 0")
    paid = 0.1 - float(env.infos["solver_0"]["truth"])
    assert env.rewards == {"solver_0": paid} == env._cumulative_rewards
    assert env.infos["solver_0"]["rubric"] == {"near": pytest.approx(paid - 0.1)}
    assert "rubric" not in env.env.infos["solver_0"], "the env inside is left as it is"


def test_what_the_env_has_settled_keeps_its_rewards():
    env = RubricReward(make("KuhnPoker-v0", invalid_retries=0), Rubric([bold]), mode="replace")
    plain = returns(make("KuhnPoker-v0", invalid_retries=0), lambda _: "no move")
    assert returns(env, lambda _: "no move") == plain and plain["player_0"] < 0


@pytest.mark.parametrize("env_id", ["EnsembleVote-v0", "CodeGen-v0"])
def test_a_seat_without_an_answer_is_not_scored_for_its_brevity(env_id):
    """Its forfeit ends no episode there; a rubric for short texts paid the empty one most."""

    def policy(decision: Decision) -> str:
        return "" if decision.agent.endswith("_0") else "A text of some length, for the others. Answer: 1"

    def short(text: str) -> float:
        return 1.0 - min(len(text), 100) / 100

    plain = returns(make(env_id), policy)
    got = returns(RubricReward(make(env_id), Rubric([short]), mode="replace"), policy)
    silent = [agent for agent in plain if agent.endswith("_0") and plain[agent] < 0]
    assert silent and all(got[agent] == plain[agent] for agent in silent)


def test_a_function_that_cannot_score_drops_the_episode():
    def never(text: str) -> float:
        raise Unscored("no scale at hand")

    for mode in ("add", "replace"):
        episode = asyncio.run(play(RubricReward(make("KuhnPoker-v0"), Rubric([never]), mode=mode), bets, 0))
        assert episode.outcome == "unscored" and episode.info["reason"] == "no scale at hand"
    assert set(episode.returns.values()) == {0.0}


def test_judges_are_not_scored_and_wrappers_compose():
    episode = asyncio.run(play(RubricReward(Debate(), Rubric([brief]), mode="replace"), first, 0))
    judges = [t for t in episode.trajectories.values() if t.role == "judge"]
    assert judges and all("rubric" not in t.info for t in judges)
    inner = RubricReward(make("KuhnPoker-v0"), Rubric([bold]), mode="replace")
    env = FillSeats(inner, {"player_1": first})
    assert returns(env, bets) == {"player_0": 1.0}


@pytest.mark.parametrize("mode", ["add", "replace"])
@pytest.mark.parametrize("name", ["KuhnPoker-v0", "Debate-v0"])
def test_it_conforms(name, mode):
    check_env(lambda: RubricReward(make(name), Rubric([brief, bold]), mode=mode), seeds=2)


def test_copies_and_restored_states_go_on_alike():
    env = RubricReward(make("TicTacToe-v0"), Rubric([brief]), mode="replace")
    env.reset(seed=3)
    env.step("[5]")
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    again = RubricReward(make("TicTacToe-v0"), Rubric([brief]), mode="replace")
    again.restore(env.state())
    ends = []
    for one in (env, *twins, again):
        for move in ("[1]", "[2]", "[3]", "[8]"):
            one.step(move)
        ends.append((one.rewards, one._cumulative_rewards, one.infos))
    assert ends[0] == ends[1] == ends[2] == ends[3] and set(ends[0][0].values()) == {-0.03}


@pytest.mark.parametrize("inner", ["add", "replace"])
@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_rubric_on_a_rubric_is_restored_with_what_both_paid(inner, moves):
    """The outer one sees as `reward` what the env and the inner one have paid."""

    def paid(reward: float) -> float:
        return reward

    def made():
        return RubricReward(
            TurnLimit(RubricReward(env_of(paying_early)(), Rubric([brief]), mode=inner), turns=100), Rubric([paid])
        )

    env, again, ends = made(), made(), []
    env.reset(seed=3)
    for _ in range(moves):
        env.step("a move")
    again.restore(env.state())
    for one in (env, again):
        while not any(one.terminations.values()):
            one.step("a move")
        ends.append({agent: info["rubric"]["paid"] for agent, info in one.infos.items()})
    own = {"add": 14.0, "replace": 0.0}[inner]
    assert ends[0] == ends[1] == {"a_0": pytest.approx(-0.06), "b_0": pytest.approx(own - 0.06)}


def test_mistakes_are_explained():
    with pytest.raises(ValueError, match="rubric must be a legos_envs"):
        RubricReward(make("Nim-v0"), brief)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"mode must be one of 'add', .* got 'replaced' .did you mean 'replace'"):
        RubricReward(make("Nim-v0"), Rubric([brief]), mode="replaced")
    with pytest.raises(ValueError, match=r"role 'player0' is unknown\. Did you mean 'player_0'"):
        RubricReward(make("Nim-v0"), Rubric([brief]), roles=["player0"]).reset(seed=0)

    def right(truht: str) -> float:
        return 0.0

    with pytest.raises(ValueError, match=r"fact of right\(\) 'truht' is unknown. Did you mean 'truth'"):
        returns(RubricReward(make("Dataset-v0"), Rubric([right])))
