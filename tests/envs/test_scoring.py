"""What rules can do beside asking: options of nested tables, returns so far, penalties, episodes that have no score."""

import asyncio

import pytest

import legos_envs
from legos_envs import Forfeit, Seat, TextEnv, Unscored


class Contest(TextEnv):
    """Two answer, a judge decides."""

    name = "Contest-v0"
    zero_sum = True
    seats = {"left_0": Seat("author"), "right_0": Seat("author"), "judge_0": Seat("judge", trainable=False)}
    reset_options = {"prize": "what the winner gets"}

    def play(self, table):
        prize = table.options.get("prize", 1.0)
        yield from table.gather(table.ask(agent, "Write.") for agent in ("left_0", "right_0"))
        won = yield from table.ask("judge_0", "Who?", legal=("left", "right"))
        table.reward(f"{won}_0", prize)
        table.reward("right_0" if won == "left" else "left_0", -prize)


class Pair(TextEnv):
    """Two contests side by side; one that cannot be scored is void."""

    name = "Pair-v0"

    def __init__(self, careful=True, **kwargs):
        self.contest, self.careful = Contest(), careful
        self.seats = {f"match_{k}/{agent}": seat for k in range(2) for agent, seat in self.contest.seats.items()}
        super().__init__(**kwargs)

    def play(self, table):
        results = yield from table.gather(self.match(table.sub(f"match_{k}", {"prize": k + 1})) for k in range(2))
        table.note(results=results, outcome="played")

    def match(self, table):
        try:
            yield from self.contest.play(table)
        except Unscored:
            if not self.careful:
                raise
            return None
        except Forfeit as forfeit:
            table.penalize(forfeit)
        return table.returns["left_0"]


def play(env, **said):
    """Plays with fixed texts by agent, `"words"` and `"[left]"` where none is given."""

    def policy(decision):
        default = "[left]" if decision.role == "judge" else "words"
        return said.get(decision.agent, default)

    return asyncio.run(legos_envs.play(env, policy, 0))


def test_a_judge_that_is_not_understood_leaves_the_episode_without_a_score():
    episode = play(Contest(), judge_0="both were nice")
    assert episode.outcome == "unscored" and not episode.truncated
    assert episode.returns == {"left_0": 0, "right_0": 0, "judge_0": 0}
    assert "judge_0 was not understood" in episode.info["reason"]


def test_a_trainable_seat_still_forfeits():
    assert play(Contest(), left_0="").returns == {"left_0": -1, "right_0": 1, "judge_0": 0}


def test_nested_tables_have_their_own_options_and_returns():
    episode = play(Pair(), **{"match_1/judge_0": "[right]"})
    assert episode.info["results"] == [1, -2]
    assert episode.returns["match_1/right_0"] == 2


def test_an_unscored_branch_can_be_caught_and_else_ends_the_whole():
    said = {"match_0/judge_0": "hm", "match_1/left_0": ""}
    episode = play(Pair(), **said)
    assert episode.info["results"] == [None, -1] and episode.outcome == "played"
    assert episode.trajectories["match_1/left_0"].info["invalid"].startswith("the reply is empty")
    assert play(Pair(careful=False), **said).outcome == "unscored"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_rewards_must_be_finite(value):
    class Broken(TextEnv):
        seats = {"a": Seat("a")}

        def play(self, table):
            yield from table.ask("a", "?")
            table.reward("a", value)

    with pytest.raises(ValueError, match="must be a finite number; got"):
        play(Broken())


def test_spiral_preset_and_what_overrides_it():
    env = legos_envs.make("KuhnPoker-v0", preset="spiral").unwrapped
    assert (env.invalid_retries, env.invalid_reward, env.invalid_opponent_reward) == (0, -1.5, 0.5)
    assert legos_envs.make("KuhnPoker-v0", preset="spiral", invalid_retries=2).unwrapped.invalid_retries == 2
    with pytest.raises(ValueError, match="preset must be one of 'spiral'"):
        legos_envs.make("KuhnPoker-v0", preset="spirl")
