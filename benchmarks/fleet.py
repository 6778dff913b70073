"""The gain from more servers, by simulation: N generators, one learner, pushed or pulled adapters.

    python -m benchmarks.fleet                                   # an 8B model on H100s, 1 to 10,000 servers
    python -m benchmarks.fleet --check                           # against real runs with 1 and 2 `legos serve`

Whole games, one after the other. A server plays `slots` games at a time, each for a random time whose mean follows from
its tokens per second. The client receives turns one by one, at `client_ms` of CPU time each. The learner takes batches
in order, `learn` seconds each, and publishes. Pushed weights leave one uplink server by server; pulled ones leave it
once, and every server downloads them over its own downlink. A game requests the newest weights by name, as in Legos, so
it waits if its server does not have them yet. At most `ahead` batches are in progress beyond the one being learned
from, which bounds staleness; 0 means alternating.

`--check` measures the inputs separately (how fast the servers answer a batch's requests when all are sent at once, what
a turn costs the client, how long learning takes), and compares the simulated games per second with those of the run.
"""

from __future__ import annotations

import argparse
import bisect
import heapq
import random
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.remote import play, serving, trainer
from legos_train import Trainer

SERVERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 10_000)


@dataclass(frozen=True)
class Plan:
    """One set-up. Sizes in bytes, times in seconds unless they say otherwise.

    Attributes:
        servers: how many generate.
        slots: games at a time on one server.
        tokens_per_second: that one server generates with all slots busy.
        game_tokens: generated in one game.
        turns: calls that a game takes.
        batch: games of a step.
        learn: seconds of a step's learning.
        adapter: bytes of one publication.
        uplink: bytes a second out of the learner's machine.
        downlink: bytes a second into one server.
        pull: servers take weights from a shared store.
        ahead: batches that may be under way beyond the one that is learned from.
        client_ms: milliseconds of the client's processor time a turn.
        spread: of the lengths of games, as standard deviation by mean. 0 where a server gives what ended games leave
            free to those that still run, as a small model on a CPU does.
    """

    servers: int
    slots: int = 64
    tokens_per_second: float = 5000.0
    game_tokens: float = 2000
    turns: int = 4
    batch: int = 512
    learn: float = 60.0
    adapter: float = 175e6
    uplink: float = 125e6
    downlink: float = 125e6
    pull: bool = True
    ahead: int = 0
    client_ms: float = 0.35
    spread: float = 0.5


@dataclass(frozen=True)
class Outcome:
    """Games a second, the mean staleness in steps, how busy each part was (1 is always), and the busiest part."""

    games_per_second: float
    staleness: float
    busy: dict[str, float]

    @property
    def bottleneck(self) -> str:
        """The part that was busiest; where none was, that each waits for the other."""
        name, share = max(self.busy.items(), key=lambda item: item[1])
        return name if share > 0.6 else "alternation"


def simulate(plan: Plan, steps: int = 12, seed: int = 0) -> Outcome:
    """Plays `steps` steps; the first third warms up."""
    rng = random.Random(seed)
    mean = plan.game_tokens * plan.slots / plan.tokens_per_second  # of a game, with all slots busy
    send, take = plan.adapter / plan.uplink, plan.adapter / plan.downlink
    free = [(0.0, server) for server in range(plan.servers) for _ in range(plan.slots)]
    heapq.heapify(free)
    sent = [0.0]  # when the uplink begins with each version
    ends = [0.0]  # when each version is made
    client = uplink = played = stale = generating = upload = 0.0

    def there(version: int, server: int) -> float:
        """When a server has a version."""
        if version == 0:
            return 0.0
        return sent[version] + (send + take if plan.pull else (server + 1) * send)

    for step in range(steps):
        allowed = ends[max(0, step - plan.ahead)]  # the batch may not begin before
        done: list[tuple[float, int]] = []
        for _ in range(plan.batch):
            at, server = heapq.heappop(free)
            asked = max(at, allowed)
            version = bisect.bisect_right(ends, asked) - 1
            length = rng.gammavariate(plan.spread**-2, mean * plan.spread**2) if plan.spread else mean
            end = max(asked, there(version, server)) + length
            generating += length
            heapq.heappush(free, (end, server))
            done.append((end, version))
        for end, _ in sorted(done):  # one thread takes them back
            client = max(client, end) + plan.turns * plan.client_ms / 1000
        ends.append(max(client, ends[-1]) + plan.learn)
        if step >= steps // 3:
            played += plan.batch
            stale += sum(step - version for _, version in done)
        sent.append(max(uplink, ends[-1]))
        uplink = sent[-1] + send * (1 if plan.pull else plan.servers)
        upload += send * (1 if plan.pull else plan.servers)
    whole = max(ends[-1], uplink)
    return Outcome(
        played / (ends[-1] - ends[steps // 3]),
        stale / played,
        {
            "generation": generating / (ends[-1] * plan.servers * plan.slots),
            "learning": steps * plan.learn / ends[-1],
            "the client": steps * plan.batch * plan.turns * plan.client_ms / 1000 / ends[-1],
            "publishing": upload / whole,
        },
    )


def table(plan: Plan) -> None:
    print("           alternating                          2 batches ahead")
    print("servers    games/s  bottleneck, push | pull     games/s  stale  bottleneck, push | pull")
    for servers in SERVERS:
        row = f"{servers:7}"
        for ahead in (0, 2):
            found = [simulate(replace(plan, servers=servers, pull=pull, ahead=ahead)) for pull in (False, True)]
            speeds = " | ".join(f"{one.games_per_second:6.2f}" for one in found)
            what = " | ".join(one.bottleneck for one in found)
            stale = f"  {found[1].staleness:4.1f}" if ahead else ""
            row += f"   {speeds}{stale}  {what:27}"
        print(row.rstrip())


def check(steps: int, games: int = 256) -> None:
    """Real runs of Kuhn poker with 1 and 2 servers, and what the simulation makes of their parts."""
    with tempfile.TemporaryDirectory() as folder, serving(2, Path(folder)) as urls:
        for count in (1, 2):
            run = trainer(games, tuple(urls[:count]))
            try:
                rows = [_measured(run, step + 1) for step in range(steps + 1)][1:]
            finally:
                run.parts.close()
            play, cpu, turns, learn, flood = (statistics.median(column) for column in zip(*rows, strict=True))
            plan = Plan(
                servers=count,
                slots=-(-games // count),
                tokens_per_second=turns / flood / count,
                game_tokens=turns / games,
                turns=max(1, round(turns / games)),
                batch=games,
                learn=learn,
                adapter=0.0,
                client_ms=1000 * cpu / turns,
                spread=0.0,
            )
            real, said = games / (play + learn), simulate(plan).games_per_second
            print(f"{count} server(s): {real:.1f} games/s measured, {said:.1f} simulated ({said / real - 1:+.0%})")


def _measured(run: Trainer, step: int) -> tuple[float, float, float, float, float]:
    """Measures one step.

    Returns:
        Seconds of play, processor seconds of the client, turns, seconds of learning, and seconds until the requests of
        such a step are answered when all are sent at once.
    """
    engine: Any = run.parts.sync.generator.engine  # type: ignore[attr-defined]
    asked: list[Any] = []
    submit = engine.submit
    engine.submit = lambda request: asked.append(request) or submit(request)
    seconds, cpu, _ = play(run, step)
    engine.submit = submit
    begun = time.perf_counter()
    waiting = {engine.submit(request) for request in asked}
    while waiting:
        waiting -= {done.request_id for done in engine.step()}
    flood = time.perf_counter() - begun
    begun = time.perf_counter()
    run.assign_credit(run.play(step), run.learner.step)
    again = time.perf_counter() - begun
    begun = time.perf_counter()
    run.learn(again)
    return seconds, cpu, float(len(asked)), time.perf_counter() - begun, flood


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("slots", "turns", "batch"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Plan(1), name))
    for name in ("tokens_per_second", "game_tokens", "learn", "adapter", "uplink", "downlink", "client_ms"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=getattr(Plan(1), name))
    parser.add_argument("--check", action="store_true", help="compare with real runs on this machine")
    parser.add_argument("--steps", type=int, default=6, help="measured steps of --check (default: %(default)s)")
    options = vars(parser.parse_args())
    steps = options.pop("steps")
    if options.pop("check"):
        check(steps)
    else:
        table(Plan(1, **options))


if __name__ == "__main__":
    main()
