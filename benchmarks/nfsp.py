"""OpenSpiel's NFSP on the games of the learning table, with the CPU time of the table's row.

    uv run --with open_spiel --with dm-tree --with torch python -m benchmarks.nfsp LiarsDice-v0 --seeds 0 1 2

For each id and seed the bundled model is trained as in `benchmarks.learning_tasks` (finished cells in `--out` are
reused). NFSP (PyTorch, one thread, the settings of OpenSpiel's own example for Leduc poker) then gets the same CPU
seconds, not counting imports and measuring. Both numbers are NashConv; for NFSP, the last and the lowest of ten
measurements.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from benchmarks.learning_tasks import cell

GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "KuhnPoker-v0": ("kuhn_poker", {}),
    "LeducPoker-v0": ("leduc_poker", {}),
    "LiarsDice-v0": ("liars_dice", {"numdice": 1, "dice_sides": 3}),
}
"""OpenSpiel's names of the same games."""
MEASUREMENTS = 10


def agents_of(env: Any, seed: int) -> list[Any]:
    """Two learners with the settings of OpenSpiel's nfsp_leduc_pytorch.py."""
    from open_spiel.python.pytorch import nfsp

    return [
        nfsp.NFSP(
            player,
            env.observation_spec()["info_state"][0],
            env.action_spec()["num_actions"],
            [128],
            2_000_000,
            0.1,
            batch_size=128,
            rl_learning_rate=0.01,
            sl_learning_rate=0.01,
            min_buffer_size_to_learn=1000,
            learn_every=64,
            optimizer_str="sgd",
            seed=seed + player,
            replay_buffer_capacity=200_000,
            loss_str="mse",
            update_target_network_every=19_200,
            discount_factor=1.0,
            epsilon_decay_duration=20_000_000,
            epsilon_start=0.06,
            epsilon_end=0.001,
        )
        for player in range(2)
    ]


def nash_conv(game: Any, agents: list[Any]) -> float:
    """Of the average policies."""
    from open_spiel.python import policy, rl_environment
    from open_spiel.python.algorithms import exploitability
    from open_spiel.python.pytorch import nfsp

    class Average(policy.Policy):  # type: ignore[misc]
        def action_probabilities(self, state: Any, player_id: Any = None) -> dict[int, float]:
            player, legal = state.current_player(), state.legal_actions()
            seen: dict[str, Any] = {"info_state": [None, None], "legal_actions": [None, None], "current_player": player}
            seen["info_state"][player] = state.information_state_tensor(player)
            seen["legal_actions"][player] = legal
            step = rl_environment.TimeStep(observations=seen, rewards=None, discounts=None, step_type=None)
            with agents[player].temp_mode_as(nfsp.MODE.AVERAGE_POLICY):
                chances = agents[player].step(step, is_evaluation=True).probs
            return {action: float(chances[action]) for action in legal}

    return float(exploitability.nash_conv(game, Average(game, [0, 1])))


def train(env_id: str, seconds: float, seed: int) -> dict[str, float]:
    """NFSP for so many CPU seconds: `episodes`, and NashConv `first`, `last` and `lowest`."""
    import numpy as np
    import torch
    from open_spiel.python import rl_environment

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)
    name, params = GAMES[env_id]
    env = rl_environment.Environment(name, **params)
    env.seed(seed)
    agents = agents_of(env, seed)
    found, episodes, used = [nash_conv(env.game, agents)], 0, 0.0
    for part in range(1, MEASUREMENTS + 1):
        start = time.process_time()
        while used + time.process_time() - start < seconds * part / MEASUREMENTS:
            step = env.reset()
            while not step.last():
                player = step.observations["current_player"]
                step = env.step([agents[player].step(step).action])
            for agent in agents:
                agent.step(step)
            episodes += 1
        used += time.process_time() - start
        found.append(nash_conv(env.game, agents))
    return {"episodes": episodes, "first": found[0], "last": found[-1], "lowest": min(found[1:])}


def main() -> None:
    """The command of the module text."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="+", choices=[*GAMES], metavar="ID")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=Path("runs/learning"))
    options = parser.parse_args()
    options.model, options.games = None, 512
    options.out.mkdir(parents=True, exist_ok=True)
    for env_id in options.ids:
        for seed in options.seeds:
            row = cell(env_id, seed, options, [])
            other = train(env_id, row["cpu_seconds"], seed)
            print(
                f"{env_id:14} seed {seed:2}  {row['cpu_seconds']:4.0f} CPU-s  legos {row['before']:.3f} -> "
                f"{row['after']:.3f}  NFSP {other['first']:.3f} -> {other['last']:.3f}, lowest "
                f"{other['lowest']:.3f}, {other['episodes']:,} episodes  ratio {row['after'] / other['lowest']:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
