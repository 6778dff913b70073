"""Every registered environment has a page; what the page says of it is true."""

import asyncio
import inspect
import statistics

import pytest

import legos_envs
from legos_envs.policies import make_policy
from legos_envs.testing.pages import constructor_arguments, described_arguments, page
from tests.envs import sweeps

IDS = legos_envs.registered()
RARE = ("ConnectFour-v0", "LiarsDice-v0", "Nim-v0", "RedBlue-v0", "SimpleNegotiation-v0")
"""Their returns depend on what few episodes have."""


@pytest.mark.parametrize("id", IDS)
def test_page_is_complete_and_its_loop_runs(id, capsys):
    found = page(id)
    assert not found.missing, f"the page of {id} lacks {found.missing}"
    assert f'"{id}"' in found.facts["creation"] and f'"{id}"' in found.code
    assert len(found.code.splitlines()) <= 8
    exec(compile(found.code, id, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("id", IDS)
def test_the_page_names_every_argument_and_option(id):
    """They come from `Args:` of the class, the constructor's defaults and `reset_options`."""
    env, arguments = legos_envs.make(id), page(id).sections["Arguments"]
    own = [name for name in inspect.signature(type(env).__init__).parameters if name not in ("self", "kwargs")]
    assert all(f"`{name}`" in arguments for name in own)
    assert all(f"| `{name}` | {text} |" in arguments.replace("\\|", "|") for name, text in env.reset_options.items())
    names = {name for names in described_arguments(type(env)) for name in names.split(", ")}
    assert names - {"**kwargs"} <= {parameter.name for parameter in constructor_arguments(type(env))}


def test_the_page_says_what_the_arguments_of_every_environment_mean_and_are_here():
    """The error about an unknown argument sends people here; the page used to name them and no more."""
    arguments = page("KuhnPoker-v0").sections["Arguments"]
    for line in (
        '| `memory` | `"state"` | ',
        "| `invalid_retries` | `1` | number of retries ",
        "| `max_turns` | `6` | maximum number of actions ",
    ):
        assert line in arguments


def test_a_module_that_says_little_gets_a_page_all_the_same(tmp_path):
    (tmp_path / "plain.py").write_text(
        "from legos_envs import Seat, TextEnv, register\n\n\n"
        'class Plain(TextEnv):\n    name = "Plain-v0"\n    seats = {"player_0": Seat("player")}\n\n'
        '    def play(self, table):\n        yield from table.ask("player_0", "Speak.")\n\n\n'
        'register("Plain-v0", Plain)\n'
    )
    id = f"{tmp_path / 'plain.py'}:Plain-v0"
    made = page(id)
    assert list(made.facts) == ["creation"] and id in made.code and list(made.sections) == ["Arguments", "Versions"]
    assert made.missing[0] == "fact 'seats'" and "There are no reset options." in made.text


@pytest.mark.parametrize("id", sweeps.ids())
def test_scripted_players_get_what_the_page_says(id):
    """Within four standard errors of the mean."""
    compare_with_page(id, 120 if id in RARE else 30)


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
