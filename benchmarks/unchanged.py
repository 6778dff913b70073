"""Does a rewrite leave results unchanged? Records a checkout's results, so that two recordings can be compared.

    python -m benchmarks.unchanged record before.json          # on the old checkout
    python -m benchmarks.unchanged record after.json           # on the new one
    python -m benchmarks.unchanged compare before.json after.json

It records the checksums of the adapter and of metrics.jsonl without times after six short runs, the JSON of three
evaluations, and the completions of 200 seeded engine requests. `--tree DIR` records another checkout with the packages
of this environment. About four minutes on two cores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SHORT = ["--steps", "6", "--batch-size", "32", "--eval.every", "3", "--eval.games", "32", "--checkpoint.every", "3"]
RUNS: dict[str, list[str]] = {
    "default Kuhn": ["--steps", "8", "--batch-size", "64", "--eval.every", "4"],
    "league psro": [
        *("--env", "KuhnPoker-v0", "--league.mode", "psro", "--league.snapshot-every", "1"),
        *("--league.payoff-games", "8", *SHORT),
    ],
    "several envs": ["--env", "KuhnPoker-v0=2", "--env", "Nim-v0", "--env", "MatrixGame-v0", *SHORT],
    "chat memory": ["--env", "KuhnPoker-v0", "--arg", "memory=chat", *SHORT],
    "gspo + gigpo": [
        *("--env", "Nim-v0", "--loss.name", "gspo", "--credit.name", "gigpo", "--group-size", "4"),
        *("--optim.minibatches", "2", *SHORT),
    ],
    "replay + curriculum": [
        *("--env", "ProposerSolver-v0", "--curriculum.sampler", "proposed_problems", "--replay.reuse", "2"),
        *("--credit.name", "hierarchical_grpo", *SHORT),
    ],
}
EVALUATIONS: dict[str, list[str]] = {
    "Kuhn, tiny": ["KuhnPoker-v0", "-m", "tiny", "--opponent", "random", "--opponent", "optimal", "-n", "64"],
    "two envs": ["Nim-v0", "TicTacToe-v0", "-m", "tiny", "--opponent", "random", "-n", "16"],
    "debate": ["Debate-v0", "-m", "tiny", "--opponent", "random", "-n", "8", "--seat", "judge=random"],
}
TIMES = ("seconds", "tokens_per_second", "wall", "time")

ENGINE = """
import json, sys
from inference import Engine, load
from inference.types import Request
try:
    from inference.types import SamplingParams
    def request(prompt, **sampling): return Request(prompt, SamplingParams(**sampling))
except ImportError:
    def request(prompt, **sampling): return Request(prompt, **sampling)
model, tokenizer, _ = load("tiny")
engine = Engine(model, tokenizer, max_rows=32)
texts = ["You hold a King. [bet] or [pass]?", "Nim: piles 3 4 5.", "Tic-tac-toe, your move:", "What is 12 + 7?"]
handles = []
for i in range(200):
    prompt = tokenizer.encode(texts[i % 4] + " " * (i % 3))
    sampling = dict(seed=i // 4, max_tokens=12, temperature=(0.0, 0.7, 1.0)[i % 3], top_p=(1.0, 0.9)[i % 2])
    if i % 5 == 0: sampling["top_k"] = 8
    handles.append(engine.submit(request(prompt, **sampling)))
done = {}
while len(done) < 200:
    for completion in engine.step():
        done[completion.request_id] = [list(completion.tokens), completion.finish_reason, completion.prompt_tokens]
json.dump([done[key] for key in sorted(done)], sys.stdout)
"""


def _run(arguments: list[str], tree: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=tree)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)[:300]} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if not k.startswith(TIMES)}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record(tree: Path) -> dict[str, Any]:
    """All results of a checkout."""
    out: dict[str, Any] = {"runs": {}, "evaluations": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in RUNS.items():
            path = Path(folder) / name.replace(" ", "_")
            _run(["-m", "legos_train", "train", *flags, "--run-dir", str(path), "--logs.progress", "plain"], tree)
            rows = [_timeless(json.loads(line)) for line in (path / "metrics.jsonl").read_text().splitlines()]
            out["runs"][name] = {
                "adapter": _sha((path / "adapter" / "adapters.safetensors").read_bytes()),
                "metrics": _sha(json.dumps(rows, sort_keys=True).encode()),
                "rows": rows,
            }
            print(f"{name}: {out['runs'][name]['adapter'][:12]} {out['runs'][name]['metrics'][:12]}", flush=True)
        for name, words in EVALUATIONS.items():
            text = _run(["-m", "legos_train", "eval", *words, "--json"], tree)
            out["evaluations"][name] = _timeless(json.loads(text))
            print(f"eval {name}: {_sha(json.dumps(out['evaluations'][name]).encode())[:12]}", flush=True)
    out["completions"] = json.loads(_run(["-c", ENGINE], tree))
    print(f"200 completions: {_sha(json.dumps(out['completions']).encode())[:12]}")
    return out


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two recordings differ, as lines of text."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = list(dict.fromkeys([*a, *b]))
        return [line for k in keys for line in differences(a.get(k), b.get(k), f"{path}/{k}")]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [line for i, (x, y) in enumerate(zip(a, b)) for line in differences(x, y, f"{path}/{i}")]
    return [] if a == b else [f"{path}: {str(a)[:200]} != {str(b)[:200]}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("file", type=Path)
    recording.add_argument("--tree", type=Path, default=Path.cwd())
    comparing = commands.add_parser("compare")
    comparing.add_argument("files", type=Path, nargs=2)
    arguments = parser.parse_args()
    if arguments.command == "record":
        arguments.file.write_text(json.dumps(record(arguments.tree.resolve())))
        return
    before, after = (json.loads(file.read_text()) for file in arguments.files)
    lines = differences(before, after)
    print("\n".join(lines[:100]) or "equal")
    raise SystemExit(bool(lines))


if __name__ == "__main__":
    main()
