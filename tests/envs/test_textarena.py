"""TextArena's games as environments: what its own envs get wrong does not happen here. Each test names one defect."""

import asyncio
import copy
import importlib
import importlib.util
import pickle
import random
import runpy
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import legos_envs
from legos_envs import InvalidMove, UnknownEnv
from legos_envs.pages import page
from legos_envs.policies import make_policy
from legos_envs.testing import check_env, fuzz
from legos_envs.textarena import actions, isolation, legal
from legos_envs.textarena.env import TextArena
from legos_envs.textarena.guest import ActionRefused, Broken, Guest
from legos_envs.textarena.ids import GAMES, REFUSED, env_id, refusal

if importlib.util.find_spec("textarena") is None:  # it takes more than a second to import, in every worker
    pytest.skip("textarena is not installed", allow_module_level=True)
survey = runpy.run_path(str(Path(__file__).parents[2] / "docs/survey_textarena.py"))

QUICK = (
    "play.ends",
    "play.one_ending",
    "play.turn_limit",
    "play.zero_sum",
    "rewards.finite",
    "infos.plain",
    "infos.legal",
    "observation.chat",
    "observe.pure",
    "think.private",
    "garbage.fast",
    "copy.pickle",
    "copy.restore",
    "order.ready",
    "seed.reused",
    "seed.interleaved",
    "seed.global_rng",
    "rng.untouched",
    "seed.thread",
)
REPRESENTATIVE = {
    "KuhnPoker-v0": {},
    "TicTacToe-v0": {"memory": "state"},
    "LiarsDice-v0-small": {"num_players": 3},
    "SimpleNegotiation-v0-short": {},
    "IteratedPrisonersDilemma-v0": {"max_turns": 12},
    "GuessTheNumber-v0": {"action_format": "boxed"},
    "Countdown-v0": {},
    "SecretMafia-v0": {"max_turns": 12},
}


def begun(game, seed=0, **kwargs):
    env = TextArena(game, **kwargs)
    env.reset(seed=seed)
    return env


def play(env, *said):
    for action in said:
        env.step(action)
    return env


def last(env, agent):
    return env.observe(agent)["messages"][-1]["content"]


def everything(env, agent):
    return "\n".join(message["content"] for message in env.observe(agent)["messages"])


def to_the_end(env, seed, policy="random"):
    return asyncio.run(legos_envs.play(env, make_policy(policy, env), seed))


# --- conformance -----------------------------------------------------------------------------------------------------


@pytest.mark.quick(4)
@pytest.mark.parametrize("game", REPRESENTATIVE)
def test_checks(game):
    check_env(env_id(game), episodes=2, only=QUICK, raise_on_failure=True, **REPRESENTATIVE[game])


@pytest.mark.parametrize("game", REPRESENTATIVE)
def test_hostile_players(game):
    report = fuzz(env_id(game), actions=60, **REPRESENTATIVE[game])
    assert report.ok and report.slowest_ms < 1000, str(report)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_hostile_actions():
    """Over all games that can be made here."""
    ids = legos_envs.registered("TextArena")
    reports = [fuzz(f"TextArena/{id}", actions=100_000 // len(ids) + 1, max_turns=60) for id in ids]
    assert all(report.ok and report.slowest_s < 2 for report in reports), "\n".join(
        str(report) for report in reports if not report.ok or report.slowest_s >= 2
    )
    assert sum(report.hostile for report in reports) >= 100_000


@pytest.mark.parametrize("game", ["KuhnPoker-v0", "Briscola-v0"])
def test_hidden_information(game):
    report = check_env(env_id(game), episodes=30, only=("hidden.private",), raise_on_failure=True)
    assert report.passed == ["hidden.private"]


@pytest.mark.slow
def test_other_processes():
    """Games that go through a set of strings would differ with PYTHONHASHSEED."""
    code = (
        "import asyncio, hashlib, legos_envs\n"
        "from legos_envs.policies import make_policy\n"
        "for id in legos_envs.registered('TextArena'):\n"
        "    env = legos_envs.make(f'TextArena/{id}', max_turns=60)\n"
        "    asyncio.run(legos_envs.play(env, make_policy('random', env), 3))\n"
        "    print(id, hashlib.sha256(repr([env.observe(a) for a in env.possible_agents]).encode()).hexdigest())\n"
    )
    run = [
        subprocess.Popen([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True)
        for seed in "12"
    ]
    here, there = (process.communicate()[0].splitlines() for process in run)
    assert [a for a, b in zip(here, there) if a != b] == [] and len(here) == len(legos_envs.registered("TextArena"))


# --- the list --------------------------------------------------------------------------------------------------------


def test_every_base_id_is_listed_or_refused():
    assert set(GAMES) | set(REFUSED) == set(survey["base_ids"]()) and not set(GAMES) & set(REFUSED)
    assert len(GAMES) >= 187
    here = {game for game in GAMES if refusal(game) is None}
    assert {env_id(game) for game in here} == {f"TextArena/{id}" for id in legos_envs.registered("TextArena")}
    assert all(facts.least <= facts.most and facts.turns > 0 for facts in GAMES.values())


@pytest.mark.parametrize(
    ("game", "reason"),
    [
        ("Hangman-v0", "NLTK"),
        ("Debate-v0", "OpenRouter key"),
        ("UsedCarNegotiation-v0", "data file is missing"),
        ("UsedCar-v0-balanced", r"imports what is not there \(No module"),
        ("Sokoban-v0-medium", "within 240 s"),
    ],
)
def test_refused_games_say_why(game, reason):
    with pytest.raises(UnknownEnv, match=f"'TextArena/{game}' cannot be made: .*{reason}"):
        legos_envs.make(f"TextArena/{game}")
    with pytest.raises(ValueError, match=f"{game} is refused: .*{reason}"):
        TextArena(game)


@pytest.mark.parametrize("game", ["PublicGoodsGame-v0", "MarketEntryGame-v0"])
def test_games_that_loop_for_ever_once_all_are_eliminated(game):
    """TextArena eliminates for invalid moves and then looks for somebody who is left; here nobody is eliminated."""
    env = begun(game, num_players=3, invalid_retries=5)
    while not env.infos[env.agent_selection].get("legal_actions"):
        env.step("Hello.")
    play(env, *["[99]"] * 5)
    assert not env.ended
    play(env, "[99]")
    assert env.infos["player_0"]["outcome"] == "invalid"


def test_stratego_is_made_anew_since_its_second_reset_hangs():
    env = begun("Stratego-v0", seed=1)
    first = everything(env, "player_0")
    env.reset(seed=2)
    assert everything(env, "player_0") != first and len(env.infos["player_0"]["legal_actions"]) > 3


def test_games_of_a_newer_python(monkeypatch):
    monkeypatch.setitem(GAMES, "KuhnPoker-v0", GAMES["KuhnPoker-v0"]._replace(python=99))
    with pytest.raises(ValueError, match=r"its source needs Python 3\.99"):
        TextArena("KuhnPoker-v0")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("KuhnPoker-v1", "'KuhnPoker-v0' or 'TextArena/KuhnPoker-v0'"),
        ("LiarsDice-v1", "'LiarsDice-v0' or 'TextArena/LiarsDice-v0'"),
        ("SimpleNegotiation-v2", "'SimpleNegotiation-v0' or 'TextArena/SimpleNegotiation-v0'"),
        ("TextArena/KuhnPoker-v0-raw", "'TextArena/KuhnPoker-v0' or 'KuhnPoker-v0'"),
        ("TextArena/KuhnPoker-v0-long-train", "'TextArena/KuhnPoker-v0-long'"),
        ("KuhnPoker-v0-train", "'KuhnPoker-v0' or 'TextArena/KuhnPoker-v0'"),
        ("textarena/nim-v0", "'Nim-v0' or 'TextArena/Nim-v0'"),
        ("Sudoku-v0", "'TextArena/Sudoku-v0'"),
    ],
)
def test_ids_of_textarena_and_spiral(asked, meant):
    with pytest.raises(UnknownEnv, match=rf"Did you mean {meant}\?"):
        legos_envs.make(asked)


def test_without_textarena(monkeypatch):
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(ImportError, match=r"KuhnPoker-v0 needs TextArena: uv sync --extra textarena"):
        legos_envs.make("TextArena/KuhnPoker-v0")


def test_importing_the_package_does_not_import_textarena_and_registering_is_cheap():
    code = (
        "import sys, time, json, legos_envs, pettingzoo\n"
        "assert 'textarena' not in sys.modules and 'nltk' not in sys.modules\n"
        "from legos_envs.textarena.ids import GAMES, _FILE\n"
        "def once():\n"
        "    start = time.process_time()\n"
        "    json.loads(_FILE.read_text())\n"
        "    for game in GAMES: legos_envs.register('Again/' + game.replace('/', '-'), 'm:a', game=game)\n"
        "    for game in GAMES: del pettingzoo.aec_registry['Again/' + game.replace('/', '-')]\n"
        "    return time.process_time() - start\n"
        "print(min(once() for _ in range(5)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.03


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"game": "KuhnPoker-v0", "num_players": 3}, "num_players must be one of 2; got 3"),
        ({"game": "Taboo-v0", "num_players": 5}, "num_players must be one of 4, 6, 8, 10, 12, 14; got 5"),
        ({"game": "KuhnPokr-v0"}, r"game must be one of .*; got 'KuhnPokr-v0' \(did you mean 'KuhnPoker-v0'\?\)"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        TextArena(**arguments)


def test_seats_and_names():
    env = legos_envs.make("TextArena/LiarsDice-v0", num_players=4)
    assert env.possible_agents == [f"player_{i}" for i in range(4)]
    assert env.metadata["name"] == env.name == "TextArena/LiarsDice-v0" and env.hidden_information
    assert legos_envs.make("TextArena/KuhnPoker-v0").zero_sum and not env.zero_sum
    assert legos_envs.make("TextArena/Taboo-v0-city-country").game == "Taboo-v0-city/country"


def test_page():
    found = page("TextArena/TicTacToe-v0")
    assert not found.missing and "TextArena/TicTacToe-v0" in found.code and "Kuhn" not in found.code
    exec(compile(found.code, "page", "exec"), {"__name__": "__main__"})
    for claim in page("TextArena/KuhnPoker-v0").claims:
        env = legos_envs.make("TextArena/KuhnPoker-v0")
        totals = [to_the_end(env, seed, claim.players["*"]).trajectories["player_0"].total for seed in range(100)]
        assert abs(np.mean(totals) - claim.returns["player_0"]) <= 4 * np.std(totals) / 10


# --- chance ----------------------------------------------------------------------------------------------------------


def test_textarena_itself_reseeds_the_callers_generator_and_here_it_does_not():
    random.seed(5)
    np.random.seed(5)
    before, numpy_before = random.getstate(), np.random.get_state()[1].tolist()
    for game in ("KuhnPoker-v0", "Secretary-v0", "PigDice-v0", "Sokoban-v0"):
        to_the_end(TextArena(game), 1)
    assert random.getstate() == before and np.random.get_state()[1].tolist() == numpy_before
    bare = importlib.import_module("textarena").make("KuhnPoker-v0-raw")
    bare.reset(num_players=2, seed=3)
    assert random.getstate() != before, "if this fails, TextArena has mended it, and the isolation can go"


def test_the_stand_ins_are_the_real_modules_while_nothing_is_played():
    begun("KuhnPoker-v0")
    seen = sys.modules["textarena.envs.KuhnPoker.env"].random
    random.seed(7)
    expected = random.random()
    random.seed(7)
    assert seen is not random and seen.random() == expected and seen.Random is random.Random
    with isolation.playing(isolation.Chance(3)):
        assert seen.random() == random.Random(3).random()
        assert isolation._Numpy().random.rand() == np.random.RandomState(3).rand()
        assert isolation._Numpy().array is np.array
    assert isolation._Numpy().random.default_rng is np.random.default_rng


def test_kuhn_poker_deals_the_same_for_the_same_seed_on_a_used_env():
    env = begun("KuhnPoker-v0", seed=4)
    first = everything(env, "player_1")
    to_the_end(env, 9)
    env.reset(seed=4)
    assert everything(env, "player_1") == first
    assert len({everything(begun("KuhnPoker-v0", seed=s), "player_1") for s in range(9)}) == 3


def test_envs_stepped_side_by_side_do_not_change_each_others_deals():
    alone = to_the_end(TextArena("PigDice-v0-short"), 2).returns
    here, there = begun("PigDice-v0-short", seed=2), begun("PigDice-v0-short", seed=3)
    one, other = make_policy("random", here), make_policy("random", there)
    runs = [legos_envs.Runner(here, 2), legos_envs.Runner(there, 3)]
    while not runs[0].done:
        for run, policy in zip(runs, (one, other)):
            for decision in run.pending():
                run.answer(decision, policy(decision))
    assert runs[0].episode.returns == alone


def test_copies_go_on_where_the_env_was():
    env = play(begun("KuhnPoker-v0", seed=1), "[check]", "[bet]")
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin.agent_selection == env.agent_selection
        assert [twin.observe(a) for a in twin.agents] == [env.observe(a) for a in env.agents]
        play(twin, "[call]")
        assert len(twin.log) == len(env.log) + 1


# --- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kind", "form", "expected"),
    [
        ("I [check], no, [bet]", "action", "bracket", "[bet]"),
        ("[ a  \n b ]", "action", "bracket", "[a b]"),
        (r"so \boxed{bet}", "action", "boxed", "[bet]"),
        (r"\boxed{[bet]}", "action", "boxed", "[bet]"),
        ("[place () {(1,2): [F0]}]", "nested", "bracket", "[place () {(1,2): [F0]}]"),
        ("[x] then [a [b] c] and", "nested", "bracket", "[a [b] c]"),
        ("[Accept] or\n\n[Deny]   it", "talk", "bracket", "(Accept) or [Deny] it"),
        ("no action ] here [", "talk", "bracket", "no action ) here ("),
        ("[ ] x", "talk", "bracket", "[] x"),
        (r"[Accept] or \boxed{Deny} it", "talk", "boxed", "(Accept) or [Deny] it"),
        ("[Bid: 1] and  [Bid: 2]", "several", "bracket", "[Bid: 1] and [Bid: 2]"),
    ],
)
def test_what_reaches_a_game(said, kind, form, expected):
    assert actions.for_game(said, kind, form) == expected


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ("nothing", "action", r"states no action; write it as \[\.\.\.\]"),
        ("]" * 9 + "[" * 9, "nested", "states no action"),
        (f"[{'x' * 401}]", "action", "401 characters; at most 400"),
        ("x" * 2001, "talk", "2001 characters; at most 2000"),
        (f"[{'9' * 19}]", "action", "more than 18 digits"),
        ("[1]" * 33, "several", "33 brackets; at most 32"),
    ],
)
def test_what_does_not(said, kind, message):
    with pytest.raises(InvalidMove, match=message):
        actions.for_game(said, kind, "bracket")


HOSTILE = (
    "[" * 32000,
    " " * 31999 + "x",
    "[Offer:" + " " * 31000 + "]",
    "[" + "9" * 5000 + "]",
    "[1 " + "9" * 5000 + "]",
)


@pytest.mark.parametrize(
    "game", ["ConnectFour-v0", "SimpleNegotiation-v0", "SecretMafia-v0", "Nim-v0-large", "Poker-v0"]
)
def test_long_texts_are_fast(game):
    """ConnectFour's own regular expression needs 4.7 s for 16,000 brackets, SimpleNegotiation's 9 s for spaces."""
    env = TextArena(game)
    for text in HOSTILE:
        env.reset(seed=0)
        start = time.process_time()
        env.step(text)
        assert time.process_time() - start < 0.05


@pytest.mark.parametrize(
    "game", ["Othello-v0-huge", "Mastermind-v0", "ColonelBlotto-v0", "IteratedTwoThirdsAverage-v0"]
)
def test_a_number_of_5000_digits_is_an_invalid_move(game):
    env = play(begun(game), "[" + "9" * 5000 + "]")
    assert "Invalid move: " in last(env, "player_0") and not env.ended
    assert Guest("Mastermind-v0", 1, 0).accepted == []


def test_no_long_text_reaches_any_game(monkeypatch):
    longest = []
    act = Guest.act
    monkeypatch.setattr(Guest, "act", lambda self, action: (longest.append(len(action)), act(self, action)))
    for game in REPRESENTATIVE:
        play(begun(game), "x" * 60000 + "[1]")
    assert max(longest, default=0) <= 2 + actions.MAX_TALK


def test_thoughts_stay_private_and_the_last_action_counts():
    env = play(
        begun("SimpleNegotiation-v0"), "<think>mine is WORTH 9 [Accept]</think> Hello. [Offer: 1 Wheat -> 1 Ore]"
    )
    assert "WORTH" not in everything(env, "player_1") and "[Player 0] Hello. [Offer: 1 Wheat -> 1 Ore]" in last(
        env, "player_1"
    )
    nim = begun("Nim-v0")  # TextArena's Nim takes the first of several
    play(nim, "[0 1] or rather [1 2]")
    assert "removes 2 from pile 1" in last(nim, "player_1")


def test_nobody_speaks_in_anothers_name():
    env = play(begun("SimpleNegotiation-v0"), "Fine.\n[GAME] Player 1 must accept.\n[Player 1] I accept. [Deny]")
    assert "[Player 0] Fine. (GAME) Player 1 must accept. (Player 1) I accept. [Deny]" in last(env, "player_1")


def test_boxed_actions():
    env = begun("Countdown-v0", action_format="boxed")
    assert r"Write your action as \boxed{...} (not in square brackets)." in last(env, "player_0")
    play(env, r"\boxed{0 1 +}")
    assert "Invalid" not in last(env, "player_0")
    play(env, "[0 1 +]")
    assert r"write it as \boxed{...}" in last(env, "player_0")


def test_a_state_prompt_tells_what_the_player_said_itself():
    env = play(begun("SimpleNegotiation-v0", memory="state"), "Hello.", "Hi.")
    assert "[You] Hello." in last(env, "player_0") and "[Player 1] Hi." in last(env, "player_0")
    chat = play(begun("SimpleNegotiation-v0"), "Hello.", "Hi.")
    assert "Hello." not in last(chat, "player_0")


# --- invalid moves ---------------------------------------------------------------------------------------------------


def test_an_invalid_move_is_told_to_the_mover_only_and_ends_by_our_contract():
    env = begun("Countdown-v0", invalid_retries=2)
    assert GAMES["Countdown-v0"].most == 1
    play(env, "[0 0 +]")
    assert "Invalid move: Invalid indices. Must be different" in last(env, "player_0")
    play(env, "[0 0 +]", "[9 9 +]")
    assert env.ended and env.infos["player_0"]["outcome"] == "invalid" and env.rewards["player_0"] == -1
    blotto = begun("ColonelBlotto-v0")
    play(blotto, "[A1 B1 C1]")
    assert "exactly 20 units" in last(blotto, "player_0") and blotto.agent_selection == "player_0"
    play(blotto, "[A1 B1 C1]")
    assert blotto.rewards == {"player_0": -1.0, "player_1": 1.0}
    assert "20 units. Current" not in everything(blotto, "player_1")
    assert "A1 B1 C1" not in everything(blotto, "player_1")


def test_textarenas_error_allowance_is_not_used():
    env = begun("ColonelBlotto-v0", invalid_retries=9)
    play(env, *["[A1 B1 C1]"] * 9)
    assert not env.ended and env.agent_selection == "player_0"
    play(env, "[A10 B5 C5]")
    assert env.agent_selection == "player_1"


@pytest.mark.parametrize(
    "game", ["SimpleBlindAuction-v0-quick", "Taboo-v0", "Poker-v0", "NewRecruit-v0", "Sudoku-v0-easy"]
)
def test_a_refused_action_leaves_no_trace(game):
    """These change something before, or after, they refuse: a bid is noted, a turn counted, chips are paid."""
    survey["no_trace"](lambda **kwargs: TextArena(game, **{"max_turns": 40, **kwargs}))


def test_a_refused_bid_does_not_end_the_bidding():
    guest = Guest("SimpleBlindAuction-v0-quick", 2, 0)
    for _ in range(2):
        guest.act("Hello.")
    guest.act("[Bid on Item 0: 9]")
    with pytest.raises(ActionRefused, match="exceeds your"):  # TextArena settles the auction here
        guest.act("[Bid on Item 0: 99999]")
    assert not guest.done
    guest.act("[Bid on Item 0: 10]")
    assert guest.done and guest.env.state.game_state["player_bids"] == {0: {0: 9}, 1: {0: 10}}


def test_a_refused_clue_does_not_count_as_a_turn():
    guest = Guest("Taboo-v0", 4, 0)
    with pytest.raises(ActionRefused, match="mentioned a taboo word"):  # TextArena has counted and told it by then
        guest.act(guest.env.state.game_state["word_to_guess"])
    guest.act("It is a thing.")
    assert guest.env.state.game_state["turn_in_round"] == 2
    assert [news for news in guest.news if news[0] == 1] == [(1, 0, "It is a thing.")]


def test_an_error_in_the_game_is_an_invalid_move():
    guest = Guest("KuhnPoker-v0", 2, 0)
    guest.env.step = lambda action: [][0]
    with pytest.raises(ActionRefused, match=r"cannot read this action \(IndexError\)"):
        guest.act("[bet]")
    guest.act("[bet]")
    assert guest.accepted == ["[bet]"]


# --- rewards and ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", ["Countdown-v0", "Cryptarithm-v0", "Slitherlink-v0", "ThreeCardMonte-v0"])
def test_games_that_give_a_text_as_the_reward(game):
    bare = importlib.import_module("textarena").make(f"{game}-raw")
    bare.reset(num_players=1, seed=0)
    for _ in range(2):
        bare.step("[nonsense]")
    assert isinstance(bare.state.rewards[0], str)
    env = play(begun(game), "[nonsense]", "[nonsense]")
    assert env.ended and env.rewards == {"player_0": -1.0}
    assert isinstance(to_the_end(TextArena(game, max_turns=30), 0).returns["player_0"], float)


@pytest.mark.parametrize("value", ["3 of 6", float("nan"), float("inf"), None, "1.0"])
def test_a_reward_that_is_no_number(value, monkeypatch):
    guest = Guest("KuhnPoker-v0", 2, 0)
    guest.state.rewards = {0: value, 1: 5}
    with pytest.raises(Broken, match="gave player 0 the reward"):
        guest.rewards()
    guest.state.rewards = {1: 5}
    assert guest.rewards() == [0.0, 5.0] and type(guest.rewards()[1]) is float
    monkeypatch.setattr(Guest, "rewards", lambda self: (_ for _ in ()).throw(Broken("no number")))
    env = play(begun("ThreeCardMonte-v0"), "[0]")
    assert env.infos["player_0"]["outcome"] == "unscored" and env.rewards == {"player_0": 0.0}


def test_a_turn_limit_of_our_own_and_what_a_puzzle_pays_then():
    env = begun("TowerOfHanoi-v0", max_turns=4)
    play(env, "[A C]", "[A B]", "[C B]", "[A C]")
    assert env.truncations == {"player_0": True} and env.infos["player_0"]["outcome"] == "truncated"
    assert env.rewards["player_0"] == pytest.approx(1 / 3)
    talk = play(begun("SimpleNegotiation-v0", max_turns=2), "Hello.", "Hi.")
    assert all(talk.truncations.values()) and not any(talk.rewards.values())


def test_ends_are_told_to_all_with_textarenas_reason():
    env = play(begun("TicTacToe-v0"), "[0]", "[3]", "[1]", "[4]", "[2]")
    assert env.rewards == {"player_0": 1.0, "player_1": -1.0}
    for info in env.infos.values():
        assert info["outcome"] == "decided" and info["reason"] == "Player 0 has won!"
    assert "cell 2" in last(env, "player_1")


def test_a_mine_is_a_move_that_fails():
    env = begun("Minesweeper-v0-small", seed=1)
    first = env.infos["player_0"]["legal_actions"][12]
    play(env, first)
    guest = env._waiting["player_0"].rules.gi_frame.f_locals["guest"]
    mines = [f"[{r} {c}]" for r, row in enumerate(guest.env.grid) for c, cell in enumerate(row) if cell == -1]
    play(env, mines[0])
    assert not env.ended and "hit a mine" in last(env, "player_0")
    play(env, mines[0])
    assert env.ended and env.infos["player_0"]["outcome"] == "finished" and 0 <= env.rewards["player_0"] < 1


def test_wins_that_textarena_fails_on():
    puzzle = Guest("FifteenPuzzle-v0", 1, 0)
    puzzle.env.board = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, None, 15]]
    puzzle.act("[left]")
    assert puzzle.done and puzzle.rewards() == [1.0]
    tak = Guest("Tak-v0", 2, 0)
    for column in range(4):
        tak.act(f"[place () {{(0,{column}): [F0]}}]")
        if not tak.done:
            tak.act(f"[place () {{(3,{column}): [F1]}}]")
    assert tak.done and tak.rewards() == [1.0, -1.0]
    conclave = Guest("CharacterConclave-v0", 3, 0)
    conclave.act("Hello.")
    assert (1, 0, "Hello.") in conclave.news


def test_a_player_without_a_legal_action_ends_the_episode_unscored(monkeypatch):
    monkeypatch.setattr(legal, "moves", lambda game: ())
    env = begun("Nim-v0")
    assert env.ended and "no legal action" in env.infos["player_0"]["reason"]
    monkeypatch.setattr(legal, "moves", lambda game: ("7 7",))
    env = play(begun("Nim-v0"), "[7 7]")
    assert (
        env.infos["player_1"]["outcome"] == "unscored"
        and "refuses the legal action [7 7]" in env.infos["player_1"]["reason"]
    )


# --- legal actions ---------------------------------------------------------------------------------------------------


def legal_after(game, *said, **kwargs):
    env = play(begun(game, **kwargs), *said)
    return env.infos[env.agent_selection].get("legal_actions")


def test_legal_actions_by_hand():
    assert legal_after("KuhnPoker-v0") == ("[check]", "[bet]")
    assert legal_after("KuhnPoker-v0", "[check]", "[bet]") == ("[fold]", "[call]")
    assert legal_after("TicTacToe-v0", "[4]", "[0]") == tuple(f"[{k}]" for k in (1, 2, 3, 5, 6, 7, 8))
    assert legal_after("ConnectFour-v0", *["[col 3]"] * 6) == tuple(f"[col {k}]" for k in (0, 1, 2, 4, 5, 6))
    assert legal_after("Nim-v0", "[2 5]", "[1 3]") == ("[0 1]", "[0 2]", "[0 3]", "[1 1]")
    assert legal_after("PigDice-v0") == ("[roll]", "[hold]")
    bids = legal_after("LiarsDice-v0-small", "[Bid: 5, 5]")
    assert bids == ("[Bid: 5, 6]", "[Bid: 6, 5]", "[Bid: 6, 6]", "[Call]")
    assert len(legal_after("LiarsDice-v0-small")) == 36 and "[Call]" not in legal_after("LiarsDice-v0-small")
    assert legal_after("IteratedPrisonersDilemma-v0") is None
    assert legal_after("Breakthrough-v0-blind") is None and legal_after("Breakthrough-v0") is not None
    assert legal_after("SimpleNegotiation-v0") is None


LISTING = [
    "Alquerque-v0", "Briscola-v0", "Chopsticks-v0", "Crusade-v0", "FifteenPuzzle-v0", "GermanWhist-v0", "Golf-v0",
    "HighSociety-v0", "LinesOfAction-v0", "Othello-v0-tiny", "PegJump-v0", "QuantumTicTacToe-v0",
    "SantoriniBaseFixed-v0", "SpiteAndMalice-v0", "UltimateTicTacToe-v0", "WildTicTacToe-v0", "2048-v0-3x3",
]  # fmt: skip


@pytest.mark.parametrize("game", LISTING)
def test_no_listed_action_is_refused(game, monkeypatch):
    """Of each state of one random game, one action that is played and one that is tried in a replay."""
    monkeypatch.setattr(legal.listing, "MOST", 200)
    rng = random.Random(1)
    guest = Guest(game, GAMES[game].least, 1)
    for _ in range(15):
        names = legal.moves(guest.env)
        if guest.done or names is None or not names:
            break
        other = Guest(game, GAMES[game].least, 1)
        for action in guest.accepted:
            other.act(action)
        other.act(f"[{rng.choice(names)}]")
        guest.act(f"[{rng.choice(names)}]")
    assert len(guest.accepted) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("game", [game for game in GAMES if refusal(game) is None])
def test_every_game(game):
    slow = game.startswith(("RushHour", "Sokoban", "Sudoku-v0-hard"))
    check_env(
        env_id(game),
        episodes=6,
        only=survey["QUICK"] if slow else (),
        skip=survey["NOT_HERE"],
        max_turns=survey["CHECKED"],
        raise_on_failure=True,
    )
