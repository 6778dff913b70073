"""TextArena's games as environments: what its own envs get wrong does not happen here. Each test names one defect."""

import copy
import importlib
import importlib.util
import pickle
import random
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import legos_envs
from legos_envs import UnknownEnv
from legos_envs.policies import make_policy
from legos_envs.testing import check_env, fuzz
from legos_envs.testing.pages import page
from legos_envs.textarena import isolation, legal
from legos_envs.textarena.env import TextArena
from legos_envs.textarena.guest import Broken, Guest
from legos_envs.textarena.ids import GAMES, REFUSED, env_id, refusal
from tests.envs.guests import REPRESENTATIVE, begun, everything, last, play, to_the_end

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


# --- conformance -----------------------------------------------------------------------------------------------------


@pytest.mark.quick(2)
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


@pytest.mark.parametrize(
    "game", ["KuhnPoker-v0", "Briscola-v0", "SecretMafia-v0", "SimpleBlindAuction-v0", "TwoDollar-v0"]
)
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
    with pytest.raises(UnknownEnv, match=f"'TextArena/{game}' cannot be created: .*{reason}"):
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


@pytest.mark.slow
def test_the_first_import_of_textarena_leaves_the_callers_generators_alone():
    code = """if 1:
        import random, sys
        import numpy as np
        import legos_envs
        random.seed(5)
        np.random.seed(5)
        if len(sys.argv) > 1:
            legos_envs.make("TextArena/PigDice-v0").reset(seed=1)
        print(random.random(), np.random.rand())"""
    said = [subprocess.check_output([sys.executable, "-c", code, *more], text=True) for more in ([], ["play"])]
    assert said[0] == said[1]


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


def test_a_game_prints_nothing_when_it_is_cut_off(capsys):
    env = begun("LogicPuzzle-v0", max_turns=3)
    to_the_end(env, 0)
    assert env.infos["player_0"]["outcome"] == "truncated" and capsys.readouterr().out == ""
