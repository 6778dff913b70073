"""Policies without a model: what they say, how often, and what they say when they cannot."""

import asyncio
import math
from collections import Counter

import pytest

import legos_envs
from legos_envs import Decision, exact, play
from legos_envs.games.kuhn_poker import KuhnPoker, KuhnPokerGame
from legos_envs.policies import HumanPolicy, NoInput, RandomPolicy, ScriptedPolicy, TabularPolicy, make_policy, optimal
from legos_envs.registry import families


def decision(seed=0, legal=("[a]", "[b]"), turn=0, agent="player_0", messages=()):
    info = {} if legal is None else {"legal_actions": legal}
    return Decision(agent, agent, {"messages": tuple(messages)}, info, turn, seed)


def user(text):
    return {"role": "user", "content": text}


def mean_returns(env, policies, episodes):
    async def run():
        return [await play(env, policies, seed) for seed in range(episodes)]

    done = asyncio.run(run())
    assert all(episode.outcome is None and not episode.truncated for episode in done)
    return {agent: sum(e.returns[agent] for e in done) / episodes for agent in env.possible_agents}


def test_random_is_uniform_and_a_function_of_the_seed():
    policy = RandomPolicy()
    said = Counter(policy(decision(seed, ("[a]", "[b]", "[c]"))) for seed in range(3000))
    assert set(said) == {"[a]", "[b]", "[c]"}
    assert all(abs(count - 1000) < 5 * math.sqrt(3000 * 2 / 9) for count in said.values())
    assert [policy(decision(seed)) for seed in range(50)] == [RandomPolicy()(decision(seed)) for seed in range(50)]


def test_random_says_a_sentence_where_any_text_is_legal():
    assert RandomPolicy()(decision(legal=None)) == RandomPolicy()(decision(seed=9, legal=None))
    assert RandomPolicy("Hello.")(decision(legal=None)) == "Hello."


@pytest.mark.parametrize("action_format", ["bracket", "boxed"])
def test_a_script_names_moves_and_they_are_written_in_the_format(action_format):
    env = legos_envs.make("TicTacToe-v0", action_format=action_format)
    policies = {"player_0": ScriptedPolicy(["1", "2", "3"]), "player_1": ScriptedPolicy(["4", "5"])}
    episode = asyncio.run(play(env, policies, 0))
    assert episode.returns == {"player_0": 1.0, "player_1": -1.0}
    written = {"bracket": "[1]", "boxed": "\\boxed{1}"}[action_format]
    assert episode.trajectories["player_0"].turns[0].action == written


def test_a_script_says_other_text_as_it_stands():
    assert ScriptedPolicy(["I fold, I think."])(decision(legal=("[call]", "[fold]"))) == "I fold, I think."
    assert ScriptedPolicy(lambda d: "FOLD")(decision(legal=("[call]", "[fold]"))) == "[fold]"


def test_a_script_that_is_over_says_so():
    with pytest.raises(IndexError, match="'player_0' has 1 lines, but turn 1 needs another"):
        ScriptedPolicy(["a"])(decision(turn=1))
    with pytest.raises(TypeError, match="a function or a list"):
        ScriptedPolicy("bet")


def test_a_tabular_policy_plays_its_probabilities():
    env = KuhnPoker()

    def mostly_bet(infoset):
        return {infoset.legal[0]: 0.2, infoset.legal[1]: 0.8}

    policy = TabularPolicy(env, mostly_bet)
    env.reset(seed=0)
    said = Counter(
        policy(Decision("player_0", "player_0", env.observe("player_0"), env.infos["player_0"], 0, seed))
        for seed in range(4000)
    )
    assert set(said) == {"[check]", "[bet]"}
    assert abs(said["[bet]"] - 3200) < 5 * math.sqrt(4000 * 0.16)


@pytest.mark.parametrize("memory", ["state", "chat"])
@pytest.mark.parametrize("action_format", ["bracket", "boxed"])
def test_played_returns_agree_with_exact_ones(memory, action_format):
    env = KuhnPoker(memory=memory, action_format=action_format)

    def mine(infoset):
        bold = {"J": 0.7, "Q": 0.3, "K": 0.9}[infoset.view[-2]]
        return {"check": 1 - bold, "bet": bold} if "check" in infoset.legal else {"call": bold, "fold": 1 - bold}

    expected, episodes = exact.expected_returns(KuhnPokerGame(), mine), 1200
    got = mean_returns(env, TabularPolicy(env, mine), episodes)
    assert abs(got["player_0"] - expected[0]) < 4 * 1.5 / math.sqrt(episodes)


@pytest.mark.parametrize("seat", ["player_0", "player_1"])
@pytest.mark.parametrize(("id", "kwargs"), [("TicTacToe-v0", {}), ("TicTacToe-v0", {"memory": "chat"})])
def test_optimal_never_loses_at_tic_tac_toe(id, kwargs, seat):
    env = legos_envs.make(id, **kwargs)
    best = optimal(env)

    async def run():
        return [
            await play(env, dict.fromkeys(env.possible_agents, RandomPolicy()) | {seat: best}, s) for s in range(60)
        ]

    returns = [episode.returns[seat] for episode in asyncio.run(run())]
    assert min(returns) >= 0 and max(returns) == 1


def test_optimal_wins_nim_from_every_heap_that_is_not_a_multiple_of_four():
    env = legos_envs.make("Nim-v0")
    policies = {"player_0": optimal(env), "player_1": RandomPolicy()}

    async def run():
        for heap in (5, 6, 7, 9, 10, 11):
            for seed in range(5):
                assert (await play(env, policies, seed, {"heap": heap})).returns["player_0"] == 1

    asyncio.run(run())


def test_optimal_for_matrix_games():
    env = legos_envs.make("MatrixGame-v0", game="prisoners_dilemma", rounds=3)
    assert mean_returns(env, optimal(env), 3) == {"player_0": 3, "player_1": 3}


def test_the_same_seat_in_a_mounted_env_is_recognised():
    env = KuhnPoker()
    env.reset(seed=0)
    policy = TabularPolicy(env, lambda infoset: {infoset.legal[1]: 1.0})
    assert policy(Decision("match_3/player_0", "pro", env.observe("player_0"), {}, 0, 0)) == "[bet]"


def test_a_tabular_policy_says_when_it_does_not_know_the_prompt():
    policy = optimal(KuhnPoker())
    with pytest.raises(LookupError, match=r"'player_0' matches no information set of KuhnPoker-v0: 'Your move\?'"):
        policy(decision(messages=[user("Your move?")]))


def test_optimal_needs_a_game():
    class Chatter(legos_envs.TextEnv):
        name = "Chatter-v0"
        seats = {"a": legos_envs.Seat("a")}

        def play(self, table):
            yield from table.ask("a", "Say something.")

    with pytest.raises(TypeError, match="Chatter-v0 has no exact solution"):
        optimal(Chatter())
    assert make_policy("scripted:last", Chatter())(decision(legal=None))


def test_policies_by_name():
    env = legos_envs.make("TicTacToe-v0")
    assert isinstance(make_policy("random", env), RandomPolicy)
    assert isinstance(make_policy("human", env), HumanPolicy)
    assert isinstance(make_policy("optimal", env), TabularPolicy)
    assert make_policy("scripted:first", env)(decision()) == "[a]"
    assert make_policy("scripted:last", env)(decision()) == "[b]"
    env.reset(seed=0)
    first_move = Decision("player_0", "player_0", env.observe("player_0"), env.infos["player_0"], 0, 0)
    assert make_policy("scripted:greedy", env)(first_move) == "[5]"


def test_an_env_brings_its_own_scripted_players():
    class Talkative(KuhnPoker):
        scripted_players = {"bold": lambda decision: decision.legal_actions[-1]}

    assert make_policy("scripted:bold", Talkative())(decision()) == "[b]"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("optmal", "Did you mean 'optimal'"),
        ("greedy", "Did you mean 'scripted:greedy'"),
        ("scripted:gredy", "Did you mean 'scripted:greedy'"),
        ("zzz", "Accepted: 'random', 'optimal', 'human', 'scripted:first'"),
    ],
)
def test_unknown_names_get_a_hint(name, hint):
    with pytest.raises(ValueError, match=f"policy '{name}' is unknown.*{hint}"):
        make_policy(name, legos_envs.make("TicTacToe-v0"))


class Terminal:
    """A person: what is typed, and what was shown."""

    def __init__(self, *lines):
        self.lines, self.shown = list(lines), []

    def read(self, prompt):
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)

    def write(self, text):
        self.shown.append(text)


def test_a_human_may_leave_out_the_format_and_is_asked_again():
    terminal = Terminal("raise", "", "BET ")
    human = HumanPolicy(terminal.read, terminal.write)
    assert human(decision(legal=("[check]", "[bet]"), messages=[user("Your card: K.")])) == "[bet]"
    assert terminal.shown[0] == "Your card: K."
    assert terminal.shown[1:] == [
        "Not understood: 'raise'. Legal: [check] [bet]",
        "Not understood: ''. Legal: [check] [bet]",
    ]


def test_a_human_reads_every_message_once():
    terminal = Terminal("hello", "again", "new")
    human = HumanPolicy(terminal.read, terminal.write)
    first = [user("Welcome.")]
    then = [*first, {"role": "assistant", "content": "hello"}, user("They said hi.")]
    assert human(decision(legal=None, messages=first)) == "hello"
    assert human(decision(legal=None, messages=then, turn=1)) == "again"
    assert terminal.shown == ["Welcome.", "They said hi."]
    human(decision(legal=None, messages=first, seed=1))  # the next episode begins alike
    assert terminal.shown[2:] == ["Welcome."]


def test_a_human_who_leaves_is_an_error():
    with pytest.raises(NoInput, match=r"the input ended while 'player_0' was to act at turn 0; give it \[a\] \[b\]"):
        HumanPolicy(Terminal().read, print)(decision())


def test_a_human_plays_a_whole_game():
    env = legos_envs.make("Nim-v0")
    terminal = Terminal(*["1"] * 12)
    policies = {"player_0": HumanPolicy(terminal.read, terminal.write), "player_1": optimal(env)}
    episode = asyncio.run(play(env, policies, 0, {"heap": 8}))
    assert episode.returns["player_1"] == 1
    assert any("Heap: 8." in text for text in terminal.shown)


@pytest.mark.parametrize("env_id", sorted(one for ids in families().values() for one in ids if one != "ConnectFour-v0"))
def test_every_scripted_player_answers_in_every_seat(env_id):
    """As `legos eval ID -m scripted:NAME --opponent self` asks of it, also where it is made for another role."""
    for name in legos_envs.make(env_id).unwrapped.scripted_players:
        env = legos_envs.make(env_id)
        asyncio.run(legos_envs.play(env, make_policy(f"scripted:{name}", env), seed=0))
