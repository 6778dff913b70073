"""People at the table: taking back, commands, what is shown, models and endpoints in the other seats."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import legos_envs
from legos_envs import Decision, Policy
from legos_envs.policies import HumanPolicy, RandomPolicy, make_policy
from legos_train.cli.play_table import PlayerLeft, PlaySession
from legos_train.observe.plain_text import repeated, squared


class Terminal:
    """Types the given lines and keeps what is shown."""

    def __init__(self, *lines: str):
        self.lines, self.shown = list(lines), ""

    def read(self, prompt: str) -> str:
        if not self.lines:
            raise EOFError
        self.shown += f"{prompt}{self.lines[0]}\n"
        return self.lines.pop(0)

    def write(self, text: str) -> None:
        self.shown += f"{text}\n"


def played(
    lines: Sequence[str], env_id: str = "TicTacToe-v0", opponent: Policy | None = None, seed: int = 3
) -> tuple[PlaySession, legos_envs.Episode, str]:
    terminal = Terminal(*lines)
    env = legos_envs.make(env_id)
    env.reset(seed=0)
    first, *others = env.possible_agents
    policy = opponent or make_policy("scripted:first", env)
    table = PlaySession(env, {first: None, **dict.fromkeys(others, policy)}, seed, terminal.read, terminal.write)
    return table, asyncio.run(table.play()), terminal.shown


def actions(episode: legos_envs.Episode) -> dict[str, list[str]]:
    return {agent: [turn.action for turn in t.turns] for agent, t in episode.trajectories.items()}


def test_a_typo_is_taken_back_and_the_game_goes_on_from_there() -> None:
    _, straight, _ = played(["5", "3", "7"])  # the opponent takes the first free cell: 1, then 2
    table, back, shown = played(["5", "9", "undo", "3", "7"])
    assert actions(back) == actions(straight) and back.returns == straight.returns == {"player_0": 1, "player_1": -1}
    assert "taken back: [9]" in shown
    assert [answer.text for answer in table.answers] == ["[5]", "[1]", "[3]", "[2]", "[7]"]
    assert shown.count("Board:\n  O 2 3\n  4 X 6\n  7 8 9") == 2, "the position is shown again"


def test_taking_back_twice_and_at_the_first_move() -> None:
    _, episode, shown = played(["/undo", "9", "8", "undo", "undo", "5", "3", "7"])
    assert "nothing to take back yet" in shown and shown.count("taken back") == 2
    assert actions(episode)["player_0"] == ["[5]", "[3]", "[7]"]


def test_nobody_is_asked_again_for_what_stands() -> None:
    asked: list[int] = []

    def opponent(decision: Decision) -> str:
        asked.append(decision.turn)
        assert decision.legal_actions is not None
        return decision.legal_actions[len(asked) % len(decision.legal_actions)]  # never the same twice

    table, episode, _ = played(["5", "9", "undo", "/quit"][:3] + [str(k) for k in range(1, 10)] * 3, opponent=opponent)
    assert asked[:3] == [0, 1, 1], "its first answer stands, its second is asked for anew"
    assert actions(episode)["player_1"][0] == table.answers[1].text


async def coming(decision: Decision) -> str:
    """An endpoint's place: a coroutine function."""
    await asyncio.sleep(0)
    return RandomPolicy()(decision)


def test_undo_against_an_opponent_that_answers_later() -> None:
    table, episode, shown = played(["5", "undo", "1", *"23456789" * 8], opponent=coming)
    assert "taken back: [5]" in shown and actions(episode)["player_0"][0] == "[1]"
    assert [answer.text for answer in table.answers if answer.agent == "player_1"] == actions(episode)["player_1"]


WORDS = ("[rock]", "[paper]", "[scissors]")


class Renderer:
    """Each word one token, told messages as their length and a mark for where they begin."""

    stop_ids = (9,)

    def start(self, messages: Sequence[dict[str, str]], system: str | None) -> tuple[int, ...]:
        return (-1, *(len(message["content"]) for message in messages))

    def extend(self, prompt: tuple[int, ...], sampled: tuple[int, ...], messages: Sequence[dict[str, str]]) -> Any:
        return (*prompt, *sampled, *(len(message["content"]) for message in messages))

    def reply(self, tokens: Sequence[int]) -> str:
        return WORDS[tokens[0]]


class Engine:
    """Answers each request two steps later, by its seed alone, and keeps the prompts."""

    def __init__(self, ending: str = "stop"):
        self.prompts: list[tuple[int, ...]] = []
        self.waiting: list[Any] = []
        self.ending = ending

    def submit(self, request: Any) -> int:
        self.prompts.append(request.prompt)
        tokens = (request.sampling.seed % 3, 9)
        answer = SimpleNamespace(request_id=len(self.prompts), tokens=tokens, finish_reason=self.ending, error="broken")
        self.waiting += [None, answer]
        return len(self.prompts)

    def step(self) -> list[Any]:
        answer = self.waiting.pop(0)
        return [] if answer is None else [answer]


def against_a_model(engine: Engine, *lines: str, **player: Any) -> legos_envs.Episode:
    from legos_train.rollout.players import ModelPlayer

    env = legos_envs.make("MatrixGame-v0", rounds=4, memory="chat")
    env.reset(seed=0)
    terminal = Terminal(*lines)
    model: Any = ModelPlayer(engine, Renderer(), **player)  # type: ignore[arg-type]
    table = PlaySession(env, {"player_0": None, "player_1": model}, 5, terminal.read, terminal.write)
    return asyncio.run(table.play())


def test_a_model_goes_on_as_if_nothing_had_been_taken_back() -> None:
    """Its conversation is gone through again, with the tokens that it sampled."""
    straight, back = Engine(), Engine()
    first = against_a_model(straight, "rock", "paper", "rock", "rock")
    second = against_a_model(back, "rock", "scissors", "rock", "undo", "undo", "paper", "rock", "rock")
    assert actions(first) == actions(second) and len(actions(first)["player_1"]) == 4
    assert back.prompts[0] == straight.prompts[0] and back.prompts[-3:] == straight.prompts[-3:]
    assert all(prompt.count(-1) == 1 for prompt in straight.prompts), "one conversation"
    assert straight.prompts[2][: len(straight.prompts[1])] == straight.prompts[1]


def test_a_model_that_fails_or_has_no_room() -> None:
    with pytest.raises(RuntimeError, match="the engine failed on 'player_1': broken"):
        against_a_model(Engine("error"), "rock")
    engine = Engine()
    episode = against_a_model(engine, *["rock"] * 4, context=2)
    assert engine.prompts == [] and episode.outcome == "invalid" and actions(episode)["player_1"][0] == ""


def test_help_and_the_other_commands() -> None:
    _, _, shown = played(["?", "legal", "look", "LOOK", "frog", "5", "3", "7"])
    assert "/undo" in shown and "take back your last entry" in shown
    assert "Legal: [1] [2]" in shown and shown.count("Board:\n  1 2 3\n  4 5 6\n  7 8 9") == 3
    assert "Not understood: 'frog'" in shown
    with pytest.raises(PlayerLeft):
        played(["quit"])


def test_where_any_text_will_do_only_a_slash_makes_a_command() -> None:
    """In a debate somebody may say `undo`."""
    terminal = Terminal("undo", "/undo", "What I mean.", "/legal", "More.", *["More."] * 5)
    env = legos_envs.make("Debate-v0")
    env.reset(seed=0)
    players: dict[str, Policy | None] = {agent: RandomPolicy() for agent in env.possible_agents}
    table = PlaySession(env, {**players, "pro_0": None}, 1, terminal.read, terminal.write)
    episode = asyncio.run(table.play())
    assert actions(episode)["pro_0"][0] == "What I mean." and "taken back: undo" in terminal.shown
    assert "any text" in terminal.shown


def test_a_fresh_prompt_that_repeats_the_last_one_is_shown_again() -> None:
    terminal = Terminal("rock", "paper")
    human = HumanPolicy(terminal.read, terminal.write)
    legal = ("[rock]", "[paper]")
    for turn in range(2):
        observation = {"messages": ({"role": "user", "content": "Your move."},)}
        human(Decision("player_0", "player_0", observation, {"legal_actions": legal}, turn, 0))
    assert terminal.shown.count("Your move.") == 2


def test_rules_are_shown_once_and_again_when_asked_for() -> None:
    _, _, shown = played(["5", "frog", "3", "undo", "3", "7"])
    assert shown.count("Three own marks in a row") == 1 and shown.count("You are X.") == 5
    _, _, shown = played(["5", "look", "3", "7"])
    assert shown.count("Three own marks in a row") == 2


def test_boards_in_rows() -> None:
    assert squared("You are X. Board: X 2 3 4 O 6 7 8 9") == "You are X. Board:\n  X 2 3\n  4 O 6\n  7 8 9"
    for text in ("Board: 1 2 3 4 5 6 7 8 9 a", "Board: AB CD E F G H I J K", "The heap: 9 coins are on the Board: yes"):
        assert squared(text) == text


def test_a_board_is_not_torn_where_it_repeats() -> None:
    rules, before, now = ["Rules."], ["_ _ X", "_ _ _", "_ _ _"], ["_ _ X", "_ _ _", "O _ _"]
    assert repeated([*rules, *now], [*rules, *before]) == 1
    assert repeated([*rules, "Heap: 3."], [*rules, "Heap: 5."]) == 1 and repeated(rules, rules) == 1
    assert repeated(now, []) == 0


def test_legal_actions_that_were_told_in_any_form_are_not_told_twice() -> None:
    _, _, four = played(["4"] * 3 + ["3"] * 3 + ["2"] * 9, "ConnectFour-v0")
    assert "Columns with room: 1 2 3 4 5 6 7." in four and "Legal:" not in four


def test_between_two_people_the_screen_is_handed_over() -> None:
    """Whose turn begins is said before anything is shown that only they may see; one person alone is not disturbed."""
    terminal = Terminal("bet", "call")
    env = legos_envs.make("KuhnPoker-v0")
    env.reset(seed=0)

    def pass_on(agent: str) -> None:
        terminal.write(f"now {agent}")

    table = PlaySession(env, dict.fromkeys(env.possible_agents), 3, terminal.read, terminal.write, pass_on)
    asyncio.run(table.play())
    before, _, after = terminal.shown.partition("now player_1\n")
    assert "You are player 0" in before and "You are player 1" not in before and "You are player 1" in after
    assert terminal.shown.count("now ") == 1 and table.since() == []


def test_how_the_others_answered_the_last_entry_can_be_told() -> None:
    table, episode, _ = played(["bet"], "KuhnPoker-v0")
    (said,) = table.since()
    assert (said.agent, [said.text], said.by_person) == ("player_1", actions(episode)["player_1"], False)
