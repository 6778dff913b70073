"""A user's program, as strict as mypy can be."""

import asyncio
from collections.abc import Mapping

import legos_envs
from inference import SamplingParams
from legos_envs import Decision, Episode, Rubric, Rules, Seat, Table, TextEnv, exact, make, register
from legos_envs.policies import make_policy
from legos_envs.testing import check_env
from legos_envs.wrappers import FillSeats, RubricReward, SingleAgent
from legos_envs.wrappers.numeric import Numeric


class Bargain(TextEnv):
    """One offer."""

    name = "Bargain-v0"
    seats = {"seller_0": Seat("seller"), "buyer_0": Seat("buyer")}

    def __init__(self, most: int = 5) -> None:
        self.most = most
        super().__init__(memory="chat")

    def play(self, table: Table) -> Rules[None]:
        cost, value = (int(table.rng.integers(1, 6)) for _ in range(2))
        price: str = yield from table.ask("seller_0", f"It cost {cost}.", legal=list("123456789"))
        answer: str = yield from table.ask("buyer_0", f"Worth {value}, for {price}.", legal=("take", "leave"))
        if answer == "take":
            table.reward("seller_0", int(price) - cost)


register("Bargain-v0", Bargain)


def first(decision: Decision) -> str:
    return decision.legal_actions[0] if decision.legal_actions else "yes"


def brief(text: str) -> float:
    return max(0.0, 1 - len(text) / 100)


def step() -> float:
    env = make("KuhnPoker-v0")
    env.reset(seed=0)
    total = 0.0
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        total += reward
        answer = first(Decision(agent, info["role"], observation, info, 0, 0))
        env.step(None if terminated or truncated else answer)
    return total


def numbers() -> int:
    env = Numeric(FillSeats(make("TicTacToe-v0"), {"player_1": "random"}), mask="info")
    env.reset(seed=0)
    seat = SingleAgent(env)
    observation, info = seat.reset(seed=1)
    return int(env.action_space("player_0").n) + len(observation) + int(info["action_mask"].sum())


async def played() -> Mapping[str, float]:
    episode: Episode = await legos_envs.play(make("Nim-v0"), first, 0)
    return episode.returns


def exactly() -> float:
    env = legos_envs.make("KuhnPoker-v0")
    assert isinstance(env, legos_envs.GameEnv)
    return exact.nash_conv(env.game, exact.uniform)


def training() -> None:
    from legos_train import Actor, Arena, TrainConfig, train

    arena = Arena()
    arena.add_env("KuhnPoker-v0", weight=2.0)
    arena.add_actor(Actor("rps/player_1", model="random"))
    arena.add_env("brief", lambda: RubricReward(make("GSM8K-v0"), Rubric([brief], weights=[0.1])))
    train(arena, TrainConfig(steps=2, batch_size=16))


if __name__ == "__main__":
    print(step(), numbers(), asyncio.run(played()), exactly(), SamplingParams(max_tokens=3))
    print(check_env("Nim-v0", episodes=5, only=["infos.plain"]).ok, make_policy("random", make("Nim-v0")))
