"""`legos eval ENV -m POLICY --opponent POLICY -n GAMES`: a policy in every seat, on paired seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import legos_envs
from legos_envs import exact
from legos_train.cli import parse_assignments, parser
from legos_train.evaluate import OUTCOMES, exact_metrics, head_to_head, policy_metrics, solvable
from legos_train.policies import Cast
from legos_train.rollout import ModelPlayer, Rollouts


def run(arguments: Sequence[str]) -> int:
    p = parser("eval", "Measure policies, without training.\n\n" + (Cast.player.__doc__ or ""))
    p.add_argument("env", nargs="+")
    p.add_argument("-m", "--policy", action="append", required=True)
    p.add_argument("--opponent", action="append", help="default: random")
    p.add_argument("-n", "--games", type=int, default=256)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--temperature", type=float, default=1.0)
    p.add_argument("--max-tokens", type=int, default=64)
    p.add_argument("--renderer", default="auto")
    p.add_argument("--arg", action="append", default=[], metavar="NAME=VALUE", help="constructor argument of the env")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    options = p.parse_args(arguments)
    if options.games < 1:
        p.error(f"--games must be at least 1, got {options.games}")
    kwargs = parse_assignments(options.arg, "--arg")
    results = [
        evaluate(env, policy, opponent, options, kwargs)
        for env in options.env
        for policy in options.policy
        for opponent in options.opponent or ["random"]
    ]
    if options.json:
        print(json.dumps({"results": results}))
    else:
        for result in results:
            _print(result)
    return 0


def evaluate(env_id: str, policy: str, opponent: str, options: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """One row of the results: games of `policy` against `opponent`, and exact numbers where there are some."""
    env: Any = legos_envs.make(env_id, **kwargs)
    env.reset(seed=0)
    seats = [agent for agent, info in env.infos.items() if info.get("trainable", True)]
    cast = Cast(env, temperature=options.temperature, max_tokens=options.max_tokens, renderer=options.renderer)
    try:
        player, other = cast.player(policy), cast.player(opponent)
        rollouts = Rollouts(lambda _: legos_envs.make(env_id, **kwargs), concurrency=256)
        found = head_to_head(rollouts, env_id, seats, player, other, options.games, options.seed)
        result = {"env": env_id, "policy": policy, "opponent": opponent, **found}
        if numbers := _exact(env, policy, player):
            result["exact"] = numbers
        return result
    finally:
        cast.close()


def _exact(env: Any, name: str, player: Any) -> dict[str, float]:
    if not solvable(env):
        return {}
    if isinstance(player, ModelPlayer):
        return exact_metrics(env, [player] * env.game.num_players)
    infos = exact.info_sets(env.game)
    if name == "random":
        return policy_metrics(env, {info: exact.uniform(info) for info in infos})
    if name == "optimal":
        solution = exact.nash(env.game)
        return policy_metrics(env, {info: solution(info) for info in infos})
    return {}


def _print(result: dict[str, Any]) -> None:
    low, high = result["ci95"]
    print(f"{result['env']}: {result['policy']} against {result['opponent']}, {result['games']} games")
    print(f"  mean return {result['mean']:+.4f}  (95 % interval {low:+.4f} .. {high:+.4f})")
    print("  by seat     " + "  ".join(f"{seat} {value:+.4f}" for seat, value in result["seats"].items()))
    print("  outcomes    " + "  ".join(f"{kind} {result[kind]:.1%}" for kind in OUTCOMES if result[kind]))
    for name, value in result.get("exact", {}).items():
        print(f"  exact       {name} {value:.4f}")
