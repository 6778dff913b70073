"""Small storms; `python -m benchmarks.storm --full` makes the large ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import storm, storm_health, storm_mutations, storm_processes


def quiet(text: str) -> None:
    """Progress, which nobody watches here."""


@pytest.mark.slow
def test_swaps_under_load_mix_no_versions_and_fail_no_request(random_model_dir: Path) -> None:
    found = storm.swaps(str(random_model_dir), 60, 8, quiet)
    assert found["faults"] == {}
    assert (found["swaps"], found["corrupt_refused"]) == (48, 12)
    assert found["requests"] >= 8 and found["versions_seen"] >= 8


@pytest.mark.slow
def test_clients_that_drop_leave_nothing_behind_and_harm_nobody(random_model_dir: Path) -> None:
    found = storm.drops(str(random_model_dir), 150, 16, quiet)
    assert found["faults"] == {} and found["seconds_to_baseline"] <= 2.0
    assert found["cut_off"] > 50 and len(found["where"]) >= 10


def test_the_oracles_of_the_storms_see_what_is_wrong(random_model_dir: Path) -> None:
    """A completion of another version, one cut short, and one that never came are all told."""
    import json

    from benchmarks.wire import Reply

    adapters = storm.ConstantAdapters(str(random_model_dir))
    a, b = adapters.token(3), adapters.token(4)
    state: dict[str, object] = {"tokens": 0, "versions": set()}

    def faults(tokens: list[int], *, status: int = 200, asked: int = 2, **more: object) -> str:
        choice = {"token_ids": tokens, "policy_version": 3, "finish_reason": "length", "adapter": "policy", **more}
        reply = Reply(status, {}, json.dumps({"choices": [choice]}).encode())
        return " ".join(storm._mixed(reply, {"stream": False, "max_tokens": asked}, adapters, state))

    assert a != b and faults([a, a]) == "" and faults([a, b], token_versions=[3, 4]) == ""
    assert "mixed versions" in faults([a, b]) and "mixed versions" in faults([b, b])
    assert "of 1 tokens" in faults([a]) and "503" in faults([a, a], status=503)


@pytest.mark.parametrize("corrupt", storm.CORRUPT)
def test_every_corrupt_body_differs_from_the_good_one(random_model_dir: Path, corrupt: str) -> None:
    import safetensors.numpy

    weights = storm.ConstantAdapters(str(random_model_dir)).weights(1)
    body = safetensors.numpy.save(weights)
    changed, headers = storm.CORRUPT[corrupt](weights, body)
    assert changed != body and len(headers["X_Content_SHA256"]) == 64


@pytest.mark.slow
def test_a_server_starts_serves_and_stops_with_exit_code_0(random_model_dir: Path) -> None:
    """One that is stopped while a request runs is in test_running.py."""
    found = storm_processes.cycles(str(random_model_dir), 1, quiet)
    assert found["exit_codes"] == {"0": 1} and found["faults"] == {}


@pytest.mark.slow
def test_a_server_under_attack_says_that_it_is_well(random_model_dir: Path) -> None:
    """How fast it says so is measured by the benchmark: here another process may have the machine."""
    found = storm_health.health(str(random_model_dir), 0.5, quiet)
    assert len(found["attacks"]) > 15 and not [fault for fault in found["faults"] if " ms" not in fault]
    assert all(row["probes"] > 0 for row in found["attacks"].values())


MUTATED = pytest.mark.parametrize(
    "count", [500, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)


@pytest.mark.slow
@MUTATED
def test_mutated_requests_are_answered_without_5xx(
    random_model_dir: Path, adapter_bytes: Callable[..., bytes], count: int
) -> None:
    found = storm_mutations.mutations(str(random_model_dir), adapter_bytes(1), count, 14, quiet)
    assert found["faults"] == {} and found["cases"] == count
    assert {"200", "400", "404", "405"} <= set(found["answers"])  # it reaches the routes, and beyond their checks
    assert found["answers"]["200"] > count // 20
