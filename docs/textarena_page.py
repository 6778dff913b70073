"""The page about TextArena's games for the documentation, with the tables of games.json in it."""

from __future__ import annotations

from typing import Any

from legos_envs.textarena.ids import NAMESPACE, Facts, env_id

TEXT = """# TextArena's games

`legos_envs.make("{namespace}/KuhnPoker-v0")` turns a game of [TextArena](https://github.com/LeonGuertler/TextArena)
0.7.4 into an environment like any other here. It needs `pip install "legos-selfplay[textarena]"`; importing
`legos_envs` registers the ids and imports nothing of TextArena.

This page is written by `python docs/survey_textarena.py`. It makes and plays every one of TextArena's {total} base
ids ({passing} pass, {refusing} are refused) and runs the checks of `legos_envs.testing` on each that starts offline.

## What is isolated, and how

- **Chance.** TextArena draws from Python's global `random` and reseeds it at every reset. Its modules get a
  stand-in for `random` (and for `numpy`), which draws from the episode's own generator while one of these environments
  calls them, and from the real module at any other time. The caller's generators are never touched. A seed gives the
  same episode beside others, in a thread, in another process.
- **State.** Every episode makes a new game, without TextArena's wrappers, which keep text of the previous episode.
  Pickling, copying and `restore` replay the actions.
- **Who sees what.** After every call the messages of all players are collected and each player gets their own, so
  looking changes nothing and one player's messages reach nobody else.
- **What is said.** The action is extracted from the public text (after any thought) before the game sees it: the last
  `[...]` counts, in every game. Whitespace is collapsed; an action may have 400 characters, talk 2,000, a number 18
  digits. So no regular expression of a game ever meets a long text (one of them needs 4.7 s for 16,000 brackets).
  In talking games the other brackets become round ones; `SimpleBlindAuction` and `ThreePlayerIPD` read several.
- **Invalid moves.** A move that a game calls invalid is invalid here too: only the mover sees the reason, nobody sees
  the text, and the game returns to its state before the move. After `invalid_retries` (default 1) the episode ends
  with `invalid_reward`. TextArena's own error allowance, its eliminations and its rewards for invalid moves are not
  used. Three things that it calls invalid are moves that fail, and follow its rules: a mine in Minesweeper, a wrong
  letter in Crosswords, a wrong digit in Sudoku.
- **Rewards** are TextArena's, as finite floats. Four games pass the reason in place of the reward; these pay the
  rewards they mean. At `max_turns` a puzzle pays the share that is done.
- **Errors of a game** on an action make that action invalid. If the action was listed as legal, or if the error leaves
  the mover no action, the episode ends as `"unscored"`. Three games call code that does not exist and are patched:
  FifteenPuzzle and Tak at a win, CharacterConclave whenever somebody speaks.

## The games

| id | players | random episodes take up to |
|---|---|---|
{games}

Games marked with a Python version need at least that version to read their source.

## Refused

| id | why |
|---|---|
{refused}
"""


def written(found: dict[str, Any]) -> str:
    """The page, for the contents of games.json."""
    games = []
    for game, row in found["games"].items():
        facts = Facts(*row)
        players = "1" if facts.most == 1 else f"{facts.least}-{facts.most}" if facts.most > facts.least else facts.least
        steps = f", by {facts.step}" if facts.step > 1 else ""
        python = f" (Python 3.{facts.python})" if facts.python > 11 else ""
        games.append(f"| `{env_id(game)}`{python} | {players}{steps} | {facts.turns} turns |")
    refused = [f"| `{env_id(game)}` | {_cell(why)} |" for game, why in found["refused"].items()]
    return TEXT.format(
        namespace=NAMESPACE,
        total=len(games) + len(refused),
        passing=len(games),
        refusing=len(refused),
        games="\n".join(games),
        refused="\n".join(refused),
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
