"""Training against `legos serve` is training against the engine in this process."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from inference import Incompatible, Request, RequestRefused, SamplingParams, ServerUnavailable, read_adapter
from inference.adapters import linear_shapes
from inference.client.packing import pack
from inference.loading import load
from legos_train import ConfigError, TrainConfig, Trainer, train
from legos_train.cli import main as cli
from legos_train.disk import MetricsFile
from legos_train.rollout.players import remote
from legos_train.run import build
from tests.inference.live import LiveServer, serving, wait_until
from tests.inference.stub import stubs
from tests.train.helpers import small

STEPS = 2


@pytest.fixture(scope="module")
def servers() -> Iterator[list[LiveServer]]:
    both = [LiveServer("tiny") for _ in range(2)]
    yield both
    for server in both:
        server.stop()


def steps(**settings: Any) -> list[dict[str, Any]]:
    trainer = Trainer(build(small(steps=STEPS, batch_size=4, **settings)))
    try:
        return [trainer.step() for _ in range(STEPS)]
    finally:
        trainer.parts.close()


@pytest.fixture(scope="module")
def alone() -> list[dict[str, Any]]:
    return steps()


def same(here: list[dict[str, Any]], there: list[dict[str, Any]]) -> None:
    assert [r["step"] for r in here] == [r["step"] for r in there]
    for a, b in zip(here, there, strict=True):
        assert a["reward"] == b["reward"] and a["outcomes"] == b["outcomes"]
        assert a["action_tokens"] == b["action_tokens"] and a["prompts"] == b["prompts"]
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-4)
        # The server computed with the weights it was sent, under the version they were sent as.
        assert b["mismatch_max"] < 1e-4 and b["staleness_max"] == 0


@pytest.mark.quick("2")
@pytest.mark.parametrize("count", [1, 2])
def test_a_run_against_servers_is_the_run_in_this_process(
    servers: list[LiveServer], alone: list[dict[str, Any]], count: int
) -> None:
    same(alone, steps(server={"urls": tuple(server.url for server in servers[:count])}))


@pytest.mark.slow
def test_servers_take_adapters_from_a_folder_by_name(alone: list[dict[str, Any]], tmp_path: Path) -> None:
    """As vLLM's resolver does: nobody tells the server, and an upload would be refused."""
    with serving("tiny", adapter_root=tmp_path, max_adapters=2) as server:
        same(alone, steps(server={"urls": (server.url,), "adapters": tmp_path}))
    assert not list(tmp_path.iterdir()), "the run has taken its adapters away"


PAGE = Path(__file__).parents[2] / "docs/training.md"
COMMANDS = re.findall(r"^legos train (--(?:server|generate) \"?http.*?)\s*(?:#.*)?$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.quick("--generate*")  # `--server`: test_a_run_against_servers_is_the_run_in_this_process
@pytest.mark.parametrize("command", COMMANDS)
def test_the_documented_commands_run(servers: list[LiveServer], command: str, tmp_path: Path) -> None:
    """With other addresses and fewer games."""
    addresses = iter(server.url for server in servers)
    words = shlex.split(re.sub(r"http://[\w.-]+:8000", lambda _: next(addresses), command))
    short = ["--steps", "1", "--batch-size", "4", "--eval.every", "0", "--eval.games", "2"]
    assert cli.main(["train", *words, *short, "--run-dir", str(tmp_path / "run")]) in (0, 3)
    [row] = MetricsFile.read(tmp_path / "run/metrics.jsonl")
    assert row["mismatch_max"] < 1e-4


def test_the_commands_are_found() -> None:
    assert [command.partition(" ")[0] for command in COMMANDS] == ["--server", "--generate"]


def info(engine: Any, endpoint: Any) -> dict[str, Any]:
    """The adapters that a server says it has."""
    return dict(engine.background.call(endpoint.client.info()).adapters)


def test_every_publish_is_there_by_name_at_every_server(servers: list[LiveServer]) -> None:
    trainer = Trainer(build(small(steps=STEPS, batch_size=4, server={"urls": tuple(s.url for s in servers)})))
    confirmed: list[tuple[int, str]] = []
    engine = trainer.parts.sync.generator.engine  # type: ignore[attr-defined]
    publish = engine.publish

    def listening(name: str, weights: Any, **more: Any) -> str:
        digest: str = publish(name, weights, **more)
        confirmed.append((more["version"], digest))
        return digest

    engine.publish = listening
    try:
        for _ in range(STEPS):
            trainer.step()
            digest = pack(trainer.parts.backend.policy.trainable(), trainer.config.lora.scale).digest
            assert confirmed[-1] == (trainer.learner.step, digest)
            for endpoint in engine.fleet.endpoints:
                wait_until(lambda: engine.name_of("policy") in info(engine, endpoint))  # noqa: B023
                adapter = info(engine, endpoint)[engine.name_of("policy")]
                assert (adapter.version, adapter.digest) == confirmed[-1]
        assert [version for version, _ in confirmed] == [1, 2] and len({d for _, d in confirmed}) == 2
        assert min(endpoint.served for endpoint in engine.fleet.endpoints) > 0, "both play"
    finally:
        trainer.parts.close()


def test_a_server_with_another_model_is_refused_before_the_first_step(
    servers: list[LiveServer], random_model_dir: Path, tmp_path: Path
) -> None:
    other = LiveServer(random_model_dir)
    try:
        with pytest.raises(Incompatible, match=r"base model.*Start the server with the same model"):
            train(small(tmp_path / "run", server={"urls": (other.url,)}), quiet=True)
        with pytest.raises(Incompatible, match="base model"):
            train(small(tmp_path / "pool", server={"urls": (servers[0].url, other.url)}), quiet=True)
        assert not (tmp_path / "run" / "metrics.jsonl").exists() and not (tmp_path / "pool" / "start.json").exists()
    finally:
        other.stop()


@pytest.fixture(scope="module")
def narrow() -> Iterator[LiveServer]:
    one = LiveServer("tiny", max_adapters=4)
    yield one
    one.stop()


def league_at(server: LiveServer, steps: int, pool: int, *folder: Path) -> TrainConfig:
    league = {"mode": "fsp", "snapshot_every": 2, "opponents": ("base",), "pool": pool}
    return small(*folder, steps=steps, batch_size=4, league=league, server={"urls": (server.url,)})


def test_a_server_that_takes_too_few_adapters_is_refused_before_the_first_step(
    narrow: LiveServer, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"most 4 adapters.* needs 5 .*--max-adapters 5, or set league\.pool = 2"):
        train(league_at(narrow, 40, 3, tmp_path / "run"), quiet=True)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    with pytest.raises(ConfigError, match="needs 5"):
        build(league_at(narrow, 5, 25))


@pytest.mark.slow
def test_a_server_that_takes_just_enough_adapters_is_enough(narrow: LiveServer) -> None:
    short = Trainer(build(league_at(narrow, 4, 25)))  # two policies, two snapshots; a third when a policy has left
    try:
        for _ in range(4):
            short.step()
        assert short.parts.league is not None and len(short.parts.league.pool) == 3
    finally:
        short.parts.close()


def test_a_server_whose_room_others_take_is_warned_of(narrow: LiveServer) -> None:
    bystander = remote.RemoteEngine((narrow.url,))
    weights = {f"model.layers.0.self_attn.q_proj.lora_{side}": w for side, w in zip("ab", _pair())}
    try:
        bystander.start()
        for name in ("one", "two", "three"):
            bystander.publish(name, weights, scale=1.0)
        wait_until(lambda: len(info(bystander, bystander.fleet.endpoints[0])) == 3)
        with pytest.warns(UserWarning, match=r"room for 1 more adapters besides the 3 of others.* needs up to 2"):
            build(small(steps=2, batch_size=8, server={"urls": (narrow.url,)})).close()
    finally:
        bystander.close()


def _pair() -> tuple[Any, Any]:
    width, out = linear_shapes(load("tiny")[0])["model.layers.0.self_attn.q_proj"]
    pair = mx.zeros((width, 2)), mx.ones((2, out))
    mx.eval(pair)
    return pair


@pytest.mark.slow
def test_a_server_that_dies_ends_the_run_and_a_resume_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "OUTAGE", 0.5)
    settings: dict[str, Any] = {"steps": 3, "batch_size": 8, "checkpoint": {"every": 1}}
    server = LiveServer("tiny")

    def dies(record: dict[str, Any]) -> None:
        if record["step"] == 1:
            server.kill()

    try:
        config = small(tmp_path / "run", server={"urls": (server.url,)}, **settings)
        with pytest.raises(ServerUnavailable, match=f"no server is usable: {server.url}"):
            train(config, quiet=True, on_step=dies)
        assert [r["step"] for r in MetricsFile.read(tmp_path / "run" / "metrics.jsonl")] == [1]
        server.restart()  # without any adapter
        assert train(config, quiet=True, resume=True).steps == 3
    finally:
        server.stop()
    train(small(tmp_path / "alone", **settings), quiet=True)
    same(*(MetricsFile.read(tmp_path / name / "metrics.jsonl") for name in ("alone", "run")))


def test_a_key_is_asked_for_and_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = LiveServer("tiny", keys=("secret",))
    try:
        settings: dict[str, Any] = {
            "steps": 1,
            "batch_size": 8,
            "server": {"urls": (server.url,), "api_key_env": "THE_KEY"},
        }
        with pytest.raises(RequestRefused, match="401"):
            Trainer(build(small(**settings)))
        monkeypatch.setenv("THE_KEY", "secret")
        trainer = Trainer(build(small(**settings)))
        trainer.step()
        trainer.parts.close()
    finally:
        server.stop()


@pytest.mark.parametrize("odd", [{"backend": "process"}, {"in_flight": "keep"}])
def test_asynchronous_settings_that_servers_cannot_keep(odd: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"is for local generation|generates locally"):
        small(server={"urls": ("http://127.0.0.1:1",)}, asynchronous={"enabled": True, **odd})


def test_the_base_is_asked_of_vllm_under_an_adapter_that_changes_nothing(tmp_path: Path) -> None:
    """Beside requests of an adapter vLLM 0.32 computes those of the base wrongly."""
    with stubs(1, tmp_path) as [server]:
        engine = remote.RemoteEngine((server.url,), run="r", shelf=tmp_path)
        try:
            engine.start()
            path = "model.layers.0.self_attn.q_proj"
            engine.publish("policy", {f"{path}.lora_a": mx.ones((4, 2)), f"{path}.lora_b": mx.ones((2, 4))}, scale=2.0)
            number = engine.submit(Request((5, 6), SamplingParams(max_tokens=4, stop_ids=frozenset((2,)))))
            while not (done := engine.step()):
                continue
            assert [(one.request_id, one.adapter, one.policy_version) for one in done] == [(number, None, 0)]
            name = server.asked[-1]["model"]
            weights = read_adapter(tmp_path / name).weights
            assert name.startswith("r.base-v0-") and not mx.any(weights[f"{path}.lora_b"]).item()
        finally:
            engine.close()
