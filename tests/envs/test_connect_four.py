"""Connect four: positions counted, lines and search checked against brute force, small boards solved."""

import asyncio
import random
import statistics
import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

import legos_envs
from legos_envs import Decision
from legos_envs.exact.minimax import minimax
from legos_envs.games.connect_four import ConnectFour
from legos_envs.games.connect_four_board import ConnectFourGame
from legos_envs.policies import make_policy

GAME = ConnectFourGame()
SIZES = [(6, 7, 4), (4, 4, 3), (3, 5, 4), (5, 2, 5), (2, 10, 2), (1, 4, 2), (10, 10, 6)]


def played(moves, game=GAME):
    state = (0, 0)
    for move in moves:
        state = game.next(state, move)
    return state


def random_position(game, rng, plies):
    state = (0, 0)
    for _ in range(plies):
        after = game.next(state, rng.choice(game.legal(state)))
        if game.player(after) is None:
            return state
        state = after
    return state


def test_positions_after_each_move_are_as_many_as_in_oeis_a212693():
    layer, counts = {(0, 0)}, [1]
    for _ in range(6):
        layer = {GAME.next(s, move) for s in layer if GAME.player(s) is not None for move in GAME.legal(s)}
        counts.append(len(layer))
    assert counts == [1, 7, 49, 238, 1120, 4263, 16422]


@given(st.sampled_from(SIZES), st.integers(0, 2**31))
def test_lines_are_those_of_the_board(size, seed):
    """Against a search through coordinates, on boards filled at random (gravity aside)."""
    rows, columns, connect = size
    game, rng = ConnectFourGame(*size), random.Random(seed)
    share = rng.random() * 0.7
    cells = {(row, column) for row in range(rows) for column in range(columns) if rng.random() < share}
    expected = any(
        all((row + k * up, column + k * right) in cells for k in range(connect))
        for row, column in cells
        for up, right in ((0, 1), (1, 0), (1, 1), (1, -1))
    )
    bits = sum(1 << column * (rows + 1) + row for row, column in cells)
    assert game.connected(bits) is expected


@given(st.sampled_from(SIZES), st.integers(0, 2**31), st.integers(0, 30))
def test_the_view_shows_the_board(size, seed, plies):
    game = ConnectFourGame(*size)
    state = random_position(game, random.Random(seed), plies)
    player = game.player(state)
    text = game.view(state, player)
    assert game.read(f"Rules.\n{text}\nNot legal.") == state
    assert text.startswith(f"You are {'XO'[player]}. Columns with room: {' '.join(game.legal(state))}.\n")
    lines = text.splitlines()[2:]
    assert len(lines) == size[0] and all(len(line.split(" ")) == size[1] for line in lines)
    for column, cells in enumerate(zip(*(line.split(" ") for line in lines))):
        assert "".join(cells).lstrip("_").count("_") == 0, "marks lie on one another"
        assert (str(column + 1) in game.legal(state)) == (cells[0] == "_")


@pytest.mark.parametrize(
    ("moves", "first"),
    [
        ("1212121", 1),  # a column
        ("1122334", 1),  # a row
        ("71122334", -1),  # a row for O
        ("12233434464", 1),  # a rising diagonal
        ("76655454424", 1),  # a falling diagonal
    ],
)
def test_rewards(moves, first):
    env = ConnectFour()
    env.reset(seed=0)
    for number, move in enumerate(moves):
        assert env.agent_selection == f"player_{number % 2}" and not env.ended
        env.step(f"[{move}]")
    assert env.ended
    assert env._cumulative_rewards == {"player_0": first, "player_1": -first}


def test_a_full_board_is_a_draw():
    env = ConnectFour(rows=2, columns=3, connect=3)
    env.reset(seed=0, options={"moves": "12231"})
    assert env.infos["player_1"]["legal_actions"] == ("[3]",), "the other columns are full"
    env.step("[3]")
    assert env.ended and env._cumulative_rewards == {"player_0": 0, "player_1": 0}


def test_the_prompt():
    env = ConnectFour()
    env.reset(seed=0, options={"moves": ["4", "4", "3"]})
    lines = env.observe("player_1")["messages"][0]["content"].splitlines()
    assert lines[0].startswith("Connect 4.") and lines[0].endswith("Reply with your move as [move].")
    empty = "_ _ _ _ _ _ _"
    assert lines[1:] == [
        "You are O. Columns with room: 1 2 3 4 5 6 7.",
        "1 2 3 4 5 6 7",
        *[empty] * 4,
        "_ _ _ O _ _ _",
        "_ _ X X _ _ _",
    ]


def test_sixteen_thousand_brackets_are_read_at_once():
    """An ancestor's regular expression took 4.7 s on them."""
    env = ConnectFour()
    env.reset(seed=0)
    start = time.process_time()
    env.step("[" * 16000)
    assert time.process_time() - start < 0.05
    assert env.observe("player_0")["messages"][-1]["content"].splitlines()[-1].startswith("Invalid move")


# --- solved boards and search ----------------------------------------------------------------------------------------


@pytest.mark.quick(1)
@pytest.mark.parametrize(("size", "value"), [((3, 3, 3), 0), ((3, 4, 3), 1), ((4, 3, 3), 0), ((2, 4, 3), 0)])
def test_full_search_plays_perfectly_on_small_boards(size, value):
    """In every position the moves it names are optimal; where the best is a draw they are all that are."""
    game = ConnectFourGame(*size)
    solution = minimax(game)
    assert solution.value == value
    for state, worth in solution.values.items():
        player = game.player(state)
        if player is None:
            continue
        optimal = {move for move in game.legal(state) if solution.values[game.next(state, move)] == worth}
        named = set(game.best_moves(state, size[0] * size[1]))
        assert named == optimal if worth == 0 else named and named <= optimal


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_alpha_beta_names_the_moves_that_plain_minimax_names(depth):
    @cache
    def worth(state, left):
        """To the player to move; sooner wins count more."""
        player = GAME.player(state)
        if player is None:
            return -left - 1 if GAME.returns(state) != (0, 0) else 0
        if left == 0:
            return 0
        return max(-worth(GAME.next(state, move), left - 1) for move in GAME.legal(state))

    rng = random.Random(depth)
    for _ in range(60 // depth**2 + 3):
        state = random_position(GAME, rng, rng.randrange(8, 36))
        values = {move: -worth(GAME.next(state, move), depth - 1) for move in GAME.legal(state)}
        best = tuple(move for move, value in values.items() if value == max(values.values()))
        assert GAME.best_moves(state, depth) == best


def test_what_each_depth_sees():
    assert GAME.best_moves(played("112233"), 1) == ("4",)
    assert len(GAME.best_moves(played("11223"), 1)) == 7, "a block is beyond one ply"
    assert GAME.best_moves(played("11223"), 2) == ("4",)
    assert GAME.best_moves(played("4431"), 2) == tuple("1234567"), "nothing to win or to block"
    assert GAME.best_moves(played("4431"), 3) == ("5",), "three in a row with both ends open cannot be blocked"


def returns_of(env, players, seat, count):
    policies = {name: make_policy(policy, env) for name, policy in players.items()}
    return [asyncio.run(legos_envs.play(env, policies, seed)).returns[seat] for seed in range(count)]


@pytest.mark.slow
def test_searching_two_plies_beats_random_play_by_a_wide_margin():
    """More than 0.7 in either seat, at 95 % confidence; one ply is clearly less."""
    for seat, other in (("player_0", "player_1"), ("player_1", "player_0")):
        got = returns_of(ConnectFour(), {seat: "scripted:depth_2", other: "random"}, seat, 120)
        low = statistics.mean(got) - 1.96 * statistics.stdev(got) / len(got) ** 0.5
        assert low > 0.7
    got = returns_of(ConnectFour(), {"player_0": "scripted:depth_1", "player_1": "scripted:depth_2"}, "player_1", 60)
    assert statistics.mean(got) - 1.96 * statistics.stdev(got) / len(got) ** 0.5 > 0.4


@pytest.mark.parametrize("memory", ["state", "chat"])
def test_search_plays_from_the_prompt_alone(memory):
    env = ConnectFour(memory=memory)
    env.reset(seed=0, options={"moves": "112233"})
    env.step("what?")  # in a chat, the retry does not show the board again
    for seed in range(5):
        decision = Decision("player_0", "player_0", env.observe("player_0"), env.infos["player_0"], 1, seed)
        assert make_policy("scripted:depth_4", env)(decision) == "[4]"
    blank = Decision("player_0", "player_0", {"messages": ({"role": "user", "content": "Hello."},)}, {}, 0, 0)
    with pytest.raises(LookupError, match="'player_0' has seen no board of 6 rows and 7 columns"):
        make_policy("scripted:depth_1", env)(blank)


def test_the_full_board_is_refused_by_exact_evaluation_at_once():
    start = time.process_time()
    with pytest.raises(ValueError, match=r"ConnectFourGame\(rows=6, columns=7, connect=4\) is too large for exact"):
        make_policy("optimal", ConnectFour())
    assert time.process_time() - start < 0.1
    assert make_policy("optimal", ConnectFour(rows=3, columns=3, connect=3))


# --- arguments -------------------------------------------------------------------------------------------------------


def test_random_openings():
    env, lengths = ConnectFour(random_opening=6), set()
    for seed in range(80):
        env.reset(seed=seed)
        assert not env.ended
        board = env.game.read(env.observe(env.agent_selection)["messages"][0]["content"])
        lengths.add((board[0] | board[1]).bit_count())
    assert lengths == set(range(7))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": 0}, "rows must be a whole number from 1 to 10; got 0"),
        ({"columns": 11}, "columns must be a whole number from 1 to 10; got 11"),
        ({"connect": 8}, "connect must be a whole number from 2 to 7; got 8"),
        ({"connect": 1}, "connect must be"),
        ({"rows": 2.0}, "rows must be"),
        ({"random_opening": 7}, "random_opening must be a whole number from 0 to 6; got 7"),
        ({"rows": 1, "columns": 3, "connect": 3, "random_opening": 3}, "from 0 to 2"),
    ],
)
def test_bad_arguments_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ConnectFour(**wrong)


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        (4, "must be a list of columns"),
        ("8", "'8' is not legal at that point"),
        (["4", None], "None is not legal"),
        ("1111111", "'1' is not legal"),
        ("12121212", "'2' is not legal"),
        ("1212121", "ends the game"),
    ],
)
def test_bad_openings_are_refused(moves, message):
    with pytest.raises(ValueError, match=f"option moves.*{message}"):
        ConnectFour().reset(seed=0, options={"moves": moves})
