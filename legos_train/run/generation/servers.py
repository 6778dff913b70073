"""The servers of `server.urls`, checked to give the same results as the trainer.

Digests prove it if a server reports them (`legos serve`). Behaviour is checked too: the server samples a few tokens,
with the base and with an adapter that changes a lot, and the trainer's engine computes their probabilities.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from inference import (
    Completion,
    Engine,
    Incompatible,
    Request,
    RequestRefused,
    SamplingParams,
    base_digest,
    check_compatible,
)
from inference.loading import find_model
from inference.text import Conversation, Renderer, template_digest, tokenizer_digest
from legos_train.config import TrainConfig
from legos_train.errors import ConfigError
from legos_train.model import WeightStore, World
from legos_train.rollout.players import RemoteEngine

logger = logging.getLogger(__name__)
PROBE = "probe"
QUESTIONS = ("[bet] or [pass]?", "Name a number between one and seven.", "What do you answer, and why?", "1 2 3 4")
TOKENS = 8
SPREAD = 0.05
"""Standard deviation of the probe adapter's second matrices, so that it moves log-probabilities by tenths."""


def remote_engine(
    config: TrainConfig,
    engine: Engine,
    renderer: Renderer,
    backend: WeightStore,
    adapters: int,
    run_id: str,
    world: World | None,
) -> RemoteEngine:
    """A checked engine on the servers. The first rank removes adapters that are no longer needed.

    `adapters`: maximum number published at a time; two for a policy that is being replaced.

    Raises:
        ConfigError: a server accepts fewer adapters than that.
        InferenceError: a server cannot be reached, accepts no adapters, or computes something else than the trainer.
    """
    settings = config.server
    remote = RemoteEngine(
        settings.urls,
        settings.api_key_env,
        run=run_id,
        follows=world is not None and world.rank > 0,
        shelf=settings.adapters,
        timeout=settings.timeout,
        sessions=settings.sessions,
        vocab=backend.vocabulary,
    )
    try:
        remote.start()
        check_identity(remote, identity_of(config.model, engine.tokenizer, backend.vocabulary), config.context)
        check_room(remote, adapters, max(1, len(config.learner)))
        check_template(remote, engine.tokenizer)
        most = config.sampling.max_mismatch or backend.capabilities.rounding
        check_numbers(remote, engine, renderer, backend, config.lora.scale, most)
    except BaseException:
        remote.close()
        raise
    return remote


def identity_of(model: str, tokenizer: Any, vocabulary: int) -> dict[str, Any]:
    """What a server must match: the keywords of `inference.check_compatible`."""
    path = find_model(model)
    return {
        "base_digest": base_digest(path),
        "tokenizer_digest": tokenizer_digest(path),
        "template_digest": template_digest(tokenizer),
        "vocab": vocabulary,
    }


def check_identity(remote: RemoteEngine, identity: Mapping[str, Any], context: int) -> None:
    """Rejects a server that reports serving something else.

    Raises:
        Incompatible: its digests differ, or its context is too short.
    """
    for endpoint in remote.fleet.endpoints:
        if endpoint.info is not None:
            check_compatible(endpoint.info, **identity)
        if 0 < endpoint.context < context:
            raise Incompatible(
                f"{endpoint.url} accepts {endpoint.context} tokens; this run needs {context}: start it with a "
                "longer --max-model-len, or lower `context`"
            )


def check_room(remote: RemoteEngine, adapters: int, learners: int = 1) -> None:
    """Rejects a server with room for too few adapters, and warns if others occupy that room.

    Raises:
        ConfigError: a server would refuse one of the adapters.
    """
    for endpoint in remote.fleet.endpoints:
        if endpoint.info is None or (most := endpoint.info.max_adapters) is None:
            continue
        if most < adapters:
            raise ConfigError(
                f"the server {endpoint.url} accepts at most {most} adapters, and this run needs {adapters} at a time "
                f"(the policy, its next version, the league's snapshots): start it with --max-adapters {adapters}"
                + (f", or set league.pool = {pool}" if (pool := most // learners - 2) > 0 else "")
            )
        others = sum(not name.startswith(f"{remote.run}.") for name in endpoint.info.adapters)
        if most - others < adapters:
            warnings.warn(
                f"the server {endpoint.url} has room for {most - others} more adapters besides the {others} of others, "
                f"and this run needs up to {adapters}: it fails if one is refused, unless others are removed",
                stacklevel=2,
            )


def check_template(remote: RemoteEngine, tokenizer: Any) -> None:
    """Rejects a server that renders conversations differently from the trainer's tokenizer.

    Games are sent as token ids, so this affects no game; but it reveals a different tokenizer or model.

    Raises:
        Incompatible: the ids differ.
    """
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    try:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    except Exception as error:  # a template can fail in any way; then there is nothing to compare
        logger.info("chat templates are not compared: %s", error)
        return
    ours = list(tokenizer.encode(text, add_special_tokens=False))
    for endpoint in remote.fleet.endpoints:
        if endpoint.kind != "vllm":
            continue
        body = {"model": endpoint.base, "messages": messages}
        try:
            answer = remote.background.call(endpoint.client.call("POST", "/tokenize", body))
        except RequestRefused as error:
            logger.info("%s does not report its chat template: %s", endpoint.url, error)
            continue
        if (theirs := answer.get("tokens")) != ours:
            raise Incompatible(
                f"{endpoint.url} has another tokenizer or template: {QUESTIONS[0]!r} is {theirs!r:.120} there and "
                f"{ours!r:.120} here. Start it with the trainer's model, and without --chat-template"
            )


def check_numbers(
    remote: RemoteEngine, engine: Engine, renderer: Renderer, backend: WeightStore, scale: float, most: float
) -> None:
    """Rejects a server whose log-probabilities differ from the trainer's, and checks every server that comes back.

    Args:
        remote: the servers.
        engine: the trainer's, over the same base.
        renderer: builds the prompts.
        backend: gives the shapes of an adapter.
        scale: scale of adapters.
        most: maximum difference per token, in nats.

    Raises:
        Incompatible: base or adapter differ by more; the message says by how much.
    """
    prompts = [Conversation(renderer).prompt([{"role": "user", "content": text}]) for text in QUESTIONS]
    probe = _probe_adapter(backend)
    if probe:
        engine.publish(PROBE, probe, scale=scale, version=0)
        remote.publish(PROBE, probe, scale=scale, version=0)
    try:
        for endpoint in remote.fleet.endpoints:
            said = _ask(remote, endpoint, prompts, None)
            gap = _gap(engine, prompts, said, None)
            line = f"{endpoint.url} ({endpoint.kind} {endpoint.version}".rstrip() + f"): base {gap:.2g}"
            _refuse(endpoint.url, "the base model", gap, most)
            if probe:
                said = _ask(remote, endpoint, prompts, PROBE)
                gap = _gap(engine, prompts, said, PROBE)
                _refuse(endpoint.url, "an adapter", gap, most)
                if gap >= _gap(engine, prompts, said, None):
                    raise Incompatible(
                        f"{endpoint.url} returns base-model output for an adapter's name: it does not apply "
                        "adapters (vLLM: --enable-lora, and --max-lora-rank of at least lora.rank)"
                    )
                line += f", adapter {gap:.2g}"
            logger.info("%s nats from here at most; %.2g are accepted (sampling.max_mismatch)", line, most)
    finally:
        if probe:
            engine.unpublish(PROBE)
            remote.unpublish(PROBE)


def _probe_adapter(backend: WeightStore) -> dict[str, Any]:
    """Adapter weights that change the model's output; empty if the backend gives no arrays."""
    shapes = _Shapes()
    with suppress(TypeError):  # weights held elsewhere cannot be published here
        backend.publish(shapes, PROBE, backend.snapshot(0))
    draws = np.random.default_rng(7)
    return {
        name: w + SPREAD * draws.standard_normal(w.shape, np.float32) if name.endswith("lora_b") else w
        for name, w in shapes.weights.items()
    }


class _Shapes:
    """Captures what a backend publishes."""

    def __init__(self) -> None:
        self.weights: dict[str, Any] = {}

    def publish(self, name: str, weights: Mapping[str, Any], version: int) -> None:
        self.weights = dict(weights)

    def unpublish(self, name: str) -> None: ...

    def drop_caches(self) -> None: ...

    def close(self) -> None: ...


def _ask(
    remote: RemoteEngine, endpoint: Any, prompts: Sequence[Sequence[int]], adapter: str | None
) -> list[Completion]:
    """One server's completions of the prompts."""
    sampling = SamplingParams(max_tokens=TOKENS, seed=1, stop_ids=frozenset())
    requests = [Request(prompt, replace(sampling, seed=number), adapter) for number, prompt in enumerate(prompts)]
    there = remote.name_of(adapter)

    async def attempt(number: int) -> list[Completion]:
        if number:  # it may have been restarted
            await endpoint.identify()
        publication = remote.fleet.adapters.base if there is None else remote.fleet.adapters[there]
        answers: list[Completion] = await endpoint.complete(requests, publication, None)
        return answers

    return remote.background.call(remote.fleet.retry.run(attempt))


def _gap(engine: Engine, prompts: Sequence[Sequence[int]], said: Sequence[Completion], adapter: str | None) -> float:
    """The largest difference, in nats, between a server's and the trainer's log-probabilities of the sampled tokens."""
    ours = engine.score(prompts, [one.tokens for one in said], adapter)
    return max(float(abs(mine - one.logprobs).max()) for mine, one in zip(ours, said, strict=True))


def _refuse(url: str, what: str, gap: float, most: float) -> None:
    if not math.isfinite(gap) or gap > most:
        raise Incompatible(
            f"{url}: log-probabilities of {what} differ from the trainer's by {gap:.3g} nats; at most {most:g} are "
            "accepted. Start it with the trainer's model in the trainer's precision (vLLM: --dtype float32), or, if it "
            "rounds that much, raise sampling.max_mismatch"
        )
