"""From the name of a policy, of any of `POLICY_KINDS`, to a player."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingzoo import AECEnv

from inference import BUNDLED, DrawParams
from inference.address import KEY_PLACE, SECRET_NAME
from inference.thoughts import THINKING
from inference.types import UNCHANGED, Dequantize, Threads
from legos_envs import Policy, policies
from legos_train.errors import PolicyError
from legos_train.rollout.players.actors import TOKENS, default_tokens
from legos_train.rollout.players.chat_api import checked_word, is_endpoint
from legos_train.rollout.players.names import fingerprint, is_code, locate, read_weights
from legos_train.rollout.players.player import ModelPlayer
from legos_train.rollout.players.player_options import PlayerOptions
from legos_train.rollout.players.replies import read_reply
from legos_train.rollout.players.strategies import FILE, is_strategy, strategy_player

if TYPE_CHECKING:
    from legos_train.rollout.players.endpoint import EndpointPlayer


class Cast:
    """Creates players and keeps one engine per base model, so that adapters share it.

    Arguments that are not below are described in `PlayerOptions`.

    Args:
        env: the env in which scripted policies play, unless `player` is given another.
        draw: how models and endpoints draw tokens, unless `player` is told otherwise.
        system: prepended to every conversation of models and endpoints.
        ask: template of prompts to models and endpoints, see `replies`; "" for none.
        body: additional fields of requests to endpoints.
    """

    def __init__(
        self,
        env: AECEnv | None = None,
        *,
        draw: DrawParams = UNCHANGED,
        max_tokens: int | None = PlayerOptions.max_tokens,
        renderer: str = PlayerOptions.renderer,
        system: str | None = None,
        thinking: str = PlayerOptions.thinking,
        thinking_tokens: int | None = PlayerOptions.thinking_tokens,
        dequantize: Dequantize = PlayerOptions.dequantize,
        threads: Threads | None = PlayerOptions.threads,
        ask: str = "",
        timeout: float = PlayerOptions.timeout,
        connections: int = PlayerOptions.connections,
        body: Mapping[str, Any] | None = None,
    ):
        if given := [name for name in body or () if SECRET_NAME.fullmatch(name)]:
            raise PolicyError(f"the field {given[0]!r} would be stored with the results: a key belongs in {KEY_PLACE}")
        self.env = env
        self.draw, self.max_tokens, self.renderer, self.system = draw, max_tokens, renderer, system
        self.thinking, self.thinking_tokens, self.ask = thinking, thinking_tokens, ask
        self.dequantize, self.threads = dequantize, threads
        self.timeout, self.connections, self._own_body = timeout, connections, dict(body or {})
        self._engines: dict[str, tuple[Any, Any]] = {}
        self._endpoints: dict[Any, EndpointPlayer] = {}
        self._models: dict[str, tuple[Any, Any, str | None, int]] = {}

    @classmethod
    def from_options(cls, options: PlayerOptions, env: AECEnv | None = None, **others: Any) -> Cast:
        """A cast with these options, `reply` as `ask`, and `others`."""
        own = {one.name for one in fields(PlayerOptions)} - {one.name for one in fields(DrawParams)} - {"reply"}
        named = {name: getattr(options, name) for name in own}
        return cls(env, draw=DrawParams.of(options), ask=read_reply(options.reply).ask, **named, **others)

    def player(
        self,
        spec: str,
        env: AECEnv | None = None,
        *,
        draw: DrawParams | None = None,
        max_tokens: int | None = None,
        thinking_tokens: int | None = None,
        system: str | None = None,
    ) -> Policy | ModelPlayer:
        """The player named `spec`. What is given replaces what the cast has.

        Args:
            env: the env that the policy will play.
            draw: how models and endpoints draw tokens.
            max_tokens: maximum tokens per action of models and endpoints.
            thinking_tokens: maximum tokens per thought of models and endpoints.
            system: the system prompt.
            spec: a name of any of `POLICY_KINDS`.

        Raises:
            PolicyError: no such policy exists, or it does not fit the env.
        """
        _check(spec)
        if is_code(spec):
            try:
                return policies.make_policy(spec, self.env if env is None else env)
            except (ValueError, TypeError) as error:
                raise PolicyError(str(error)) from error
        if is_strategy(spec):
            return strategy_player(spec, self.env if env is None else env)
        draw = self.draw if draw is None else draw
        max_tokens = self.max_tokens if max_tokens is None else max_tokens
        thinking_tokens = self.thinking_tokens if thinking_tokens is None else thinking_tokens
        system = self.system if system is None else system
        if is_endpoint(spec):
            return self._endpoint(spec, draw, max_tokens, thinking_tokens, system)
        if spec not in self._models:
            self._models[spec] = self._model(*locate(spec))
        engine, renderer, adapter, usual_tokens = self._models[spec]
        return ModelPlayer(
            engine,
            renderer,
            adapter,
            draw,
            max_tokens=max_tokens or usual_tokens,
            system=system,
            thinking_tokens=thinking_tokens,
        )

    def identity(self, spec: str, temperature: float | None = None) -> dict[str, Any]:
        """What, besides its name, determines a policy's play, as JSON values: equal for equal evaluations.

        Raises:
            PolicyError: no such policy exists.
        """
        _check(spec)
        if is_code(spec):
            return {}
        if is_strategy(spec):
            return {"strategy": hashlib.sha256((Path(spec) / FILE).read_bytes()).hexdigest()[:12]}
        warmth = self.draw.temperature if temperature is None else temperature
        sampling = {"temperature": warmth, "max_tokens": self.max_tokens, "system": self.system}
        asked = {"thinking": self.thinking, "thinking_tokens": self.thinking_tokens, "ask": self.ask}
        sampling |= {name: value for name, value in asked.items() if value not in ("auto", None, "")} | _filters(
            self.draw
        )
        if is_endpoint(spec):
            return {**sampling, "body": self.body} if self.body else sampling
        base, adapter = locate(spec)
        own = {"renderer": self.renderer, "adapter": None if adapter is None else fingerprint(adapter)}
        from inference.loading import base_digest, bundled_digest

        if base in BUNDLED or (Path(base) / "config.json").exists():  # models on the hub keep their names
            own["weights"] = bundled_digest(base) or base_digest(Path(base))[:12]
        return {**sampling, **own}

    @property
    def body(self) -> dict[str, Any]:
        """Fields of every request to an endpoint besides those that all endpoints know."""
        return self._body(self.draw, self.thinking_tokens)

    def _body(self, draw: DrawParams, thinking_tokens: int | None) -> dict[str, Any]:
        """As `body`, for one player. The thinking switch and its limit have vLLM's names."""
        body = _filters(draw)
        if self.thinking != "auto":
            body["chat_template_kwargs"] = {"enable_thinking": THINKING[self.thinking]}
        if thinking_tokens is not None:
            body["thinking_token_budget"] = thinking_tokens
        return body | self._own_body

    def _endpoint(
        self, spec: str, draw: DrawParams, max_tokens: int | None, thinking_tokens: int | None, system: str | None
    ) -> EndpointPlayer:
        from legos_train.rollout.players.endpoint import EndpointPlayer

        key = spec, draw, max_tokens, thinking_tokens, system
        if key not in self._endpoints:
            try:
                self._endpoints[key] = EndpointPlayer(
                    spec,
                    temperature=draw.temperature,
                    max_tokens=max_tokens or TOKENS,
                    system=system,
                    ask=self.ask,
                    timeout=self.timeout,
                    connections=self.connections,
                    body=self._body(draw, thinking_tokens),
                )
            except ValueError as error:
                raise PolicyError(str(error)) from None
        return self._endpoints[key]

    def _model(self, base: str, adapter: Path | None) -> tuple[Any, Any, str | None, int]:
        """The engine of a model, its renderer, the name of the adapter there, and its usual number of tokens."""
        from inference import Engine
        from inference.text import Renderer

        if base not in self._engines:
            engine = Engine.load(base, dequantize=self.dequantize, threads=self.threads)
            try:
                renderer = Renderer(engine.tokenizer, self.renderer, THINKING[self.thinking], ask=self.ask)
            except ValueError as error:
                engine.close()
                raise PolicyError(f"{base}: {error}") from None
            self._engines[base] = engine, renderer
        engine, renderer = self._engines[base]
        name = None
        if adapter is not None:
            name = str(adapter)
            weights, scale, version = read_weights(adapter)
            engine.publish(name, weights, scale=scale, version=version)
        return engine, renderer, name, default_tokens(base)

    def reach(self, specs: Iterable[str]) -> None:
        """Checks that the endpoints among the names are reachable, before games start.

        Raises:
            ServerUnavailable: one is not; the message names the endpoint.
        """
        from legos_train.rollout.players.endpoint import reach

        for spec in dict.fromkeys(filter(is_endpoint, specs)):
            reach(spec)

    def revive(self) -> None:
        """Makes endpoints that were given up usable again."""
        for endpoint in self._endpoints.values():
            endpoint.revive()

    def drop_caches(self) -> None:
        """Drops the models' caches."""
        for engine, _ in self._engines.values():
            engine.drop_caches()

    def close(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.close()
        for engine, _ in self._engines.values():
            engine.close()
        self._endpoints, self._engines, self._models = {}, {}, {}


def _filters(draw: DrawParams) -> dict[str, Any]:
    """The numbers besides the temperature that change something, which are fields of a request, too."""
    return replace(draw, temperature=UNCHANGED.temperature).unusual


def _check(spec: str) -> None:
    try:
        checked_word(spec)
    except ValueError as error:
        raise PolicyError(str(error)) from None
