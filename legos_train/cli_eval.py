"""`legos eval ENV -m POLICY --opponent POLICY -n GAMES`: a policy in every seat, on paired seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import legos_envs
from legos_train.cli import parser
from legos_train.evaluation import exactly
from legos_train.evaluation.games import Game, Pairing, Record
from legos_train.evaluation.journal import Journal
from legos_train.evaluation.playing import Stage
from legos_train.evaluation.setting import Setting, add_playing, check
from legos_train.evaluation.summary import comparisons, row
from legos_train.evaluation.text import comparison_text, row_text
from legos_train.policies import WORDS

ITSELF = "self"


def run(arguments: Sequence[str]) -> int:
    p = parser(
        "eval",
        f"Measure policies, without training: every policy in every seat, on the same seeds.\n\n{WORDS}",
    )
    p.add_argument("env", nargs="+")
    p.add_argument("-m", "--policy", action="append", required=True)
    p.add_argument("--opponent", action="append", help="default: random; `self`: the policy itself")
    p.add_argument("-n", "--games", type=int, default=256, help="per policy and opponent (256)")
    p.add_argument("--samples", type=int, default=1, metavar="K", help="repeat each seed K times: mean@K, pass@k")
    add_playing(p)
    options = p.parse_args(arguments)
    check(p, options)
    if options.samples < 1:
        p.error(f"--samples must be at least 1, got {options.samples}")
    setting = Setting(options)
    with Journal(options.out) as journal, setting.stage(journal) as stage:
        pairings = [
            setting.pairing(env, policy, policy if opponent == ITSELF else opponent)
            for env in options.env
            for policy in dict.fromkeys(options.policy)
            for opponent in opponents(setting, env, options.opponent)
        ]
        games = {one.key: list(one.games(options.games, options.seed, options.samples)) for one in pairings}
        failures = stage.play([game for some in games.values() for game in some])
        played = [(pairing, journal_of(journal, games[pairing.key])) for pairing in pairings]
        rows = []
        for pairing, records in played:
            failed = [failures[g.key] for g in games[pairing.key] if g.key in failures]
            zero_sum = setting.zero_sum(pairing.env)
            found = row(pairing, records, options.seed, samples=options.samples, failed=failed, zero_sum=zero_sum)
            found["advice"] += setting.remarks(pairing)
            rows.append({**found, **exact_part(setting, stage, pairing)})
        results = {"results": rows, "comparisons": comparisons(played, options.seed, options.samples)}
        journal.write_results(results)
    show(results, options.json)
    return 1 if failures else 0


def opponents(setting: Setting, env: str, given: Sequence[str] | None) -> list[str]:
    """The opponents of an env: none but `self` where there is one side only."""
    alone = len(setting.pairing(env, "random", "random").sides) == 1
    return [ITSELF] if alone else list(dict.fromkeys(given or ["random"]))


def journal_of(journal: Journal, games: Sequence[Game]) -> list[Record]:
    """The records of games that are there, in the order of the schedule."""
    return [journal.records[game.key] for game in games if game.key in journal.records]


def exact_part(setting: Setting, stage: Stage, pairing: Pairing) -> dict[str, Any]:
    """`exact`, where the game can be solved and the policy's probabilities are known."""
    env = setting.env(pairing.env)
    bare = env.unwrapped
    if not exactly.solvable(bare):
        return {}
    policy, illegal = _table(stage, pairing, bare, pairing.policy)
    if policy is None:
        return {}
    found: dict[str, Any] = exactly.report(bare, policy)
    if illegal is not None:
        found["illegal"] = illegal
    opponent, _ = _table(stage, pairing, bare, pairing.opponent)
    if opponent is not None and pairing.opponent != pairing.policy:
        found["against_opponent"] = {
            seat: exactly.value_against(bare.game, policy, opponent, player)
            for player, seat in enumerate(bare.possible_agents)
        }
    return {"exact": found}


def _table(stage: Stage, pairing: Pairing, env: Any, word: str) -> tuple[exactly.Table | None, float | None]:
    """The probabilities of a policy, and how much of them goes to illegal answers (None: code gives none)."""
    if (known := exactly.code_table(env, word)) is not None:
        return known, None
    player = stage.player(pairing.env, pairing.args, word)
    if not hasattr(player, "renderer"):
        return None, None
    infos = legos_envs.exact.info_sets(env.game)
    probabilities, leftover = exactly.action_probabilities(env, [player] * env.game.num_players, infos)
    return probabilities, sum(leftover.values()) / len(leftover)


def show(results: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(results))
        return
    for one in results["results"]:
        for line in row_text(one):
            print(line)
    for one in results["comparisons"]:
        for line in comparison_text(one):
            print(line)
