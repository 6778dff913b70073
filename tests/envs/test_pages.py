"""Every registered environment has a page; what the page says of it is true."""

import asyncio
import statistics

import pytest

import legos_envs
from legos_envs.pages import page
from legos_envs.policies import make_policy

IDS = legos_envs.registered()
EPISODES = 120


@pytest.mark.parametrize("id", IDS)
def test_page_is_complete_and_its_loop_runs(id, capsys):
    found = page(id)
    assert not found.missing, f"the page of {id} lacks {found.missing}"
    assert f'"{id}"' in found.facts["creation"] and f'"{id}"' in found.code
    assert len(found.code.splitlines()) <= 8
    exec(compile(found.code, id, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("id", IDS)
def test_scripted_players_get_what_the_page_says(id):
    """Within four standard errors of the mean."""
    compare_with_page(id, EPISODES)


@pytest.mark.slow
@pytest.mark.parametrize("id", IDS)
def test_many_episodes(id):
    compare_with_page(id, 1000)


def compare_with_page(id, count):
    claims = page(id).claims
    assert claims, "the page names no scripted players with expected returns"
    for claim in claims:
        make = lambda claim=claim: legos_envs.make(id, **claim.arguments)  # noqa: E731
        env = make()
        players = {name: make_policy(policy, env) for name, policy in claim.players.items()}

        def play_all(decision, players=players):
            found = (players.get(name) for name in (decision.agent, decision.role, "*"))
            return next(player for player in found if player is not None)(decision)

        episodes = asyncio.run(legos_envs.play_many(make, play_all, range(count), concurrency=1))
        for name, expected in claim.returns.items():
            got = [
                statistics.mean(t.total for t in e.trajectories.values() if name in (t.agent, t.role)) for e in episodes
            ]
            error = statistics.stdev(got) / count**0.5
            assert abs(statistics.mean(got) - expected) <= 4 * error + 0.005, (
                f"{claim}: {name} got {statistics.mean(got):.4f} +- {error:.4f}"
            )
