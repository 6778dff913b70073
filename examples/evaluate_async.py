"""Evaluate any coroutine on an environment, without training: here one that waits a moment and plays at random.

Hundreds of games are in flight at once, and every answer is stepped as soon as it arrives.
"""

import asyncio

import legos_envs
from legos_envs import Decision


async def slow_random(decision: Decision) -> str:
    await asyncio.sleep(0.01)  # your API call goes here, with decision.messages
    legal = decision.legal_actions or ("",)
    return legal[decision.seed % len(legal)]


def main(games: int = 200) -> float:
    episodes = asyncio.run(
        legos_envs.play_many(lambda: legos_envs.make("TicTacToe-v0"), slow_random, range(games), concurrency=64)
    )
    mean = sum(episode.returns["player_0"] for episode in episodes) / games
    print(f"{games} games of random play: the first player earns {mean:+.3f} a game")
    return mean


if __name__ == "__main__":
    main()
