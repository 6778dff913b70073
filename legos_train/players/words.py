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
from legos_envs import Policy, exact, policies
from legos_train.errors import PolicyError

if TYPE_CHECKING:
    from legos_train.players.endpoint import EndpointPlayer
from legos_train.players.actors import TOKENS, default_tokens
from legos_train.players.chat_api import checked_word, is_endpoint
from legos_train.players.names import (
    PUBLISHED,
    fingerprint,
    is_code,
    locate,
    read_weights,
    run_and_weights,
    run_settings,
    spelled,
)
from legos_train.players.player import ModelPlayer
from legos_train.players.player_options import Flag, PlayerOptions
from legos_train.players.policy_kinds import policy_help
from legos_train.players.replies import read_reply
from legos_train.players.strategies import FILE, is_strategy, strategy_table, write_strategy

__all__ = [
    "PUBLISHED",
    "Cast",
    "Flag",
    "PlayerOptions",
    "fingerprint",
    "is_code",
    "is_endpoint",
    "is_strategy",
    "locate",
    "policy_help",
    "read_weights",
    "run_and_weights",
    "run_settings",
    "saved_strategy",
    "spelled",
    "strategy_table",
    "write_strategy",
]


class Cast:
    """Creates players and keeps one engine per base model, so that adapters share it.

    Arguments that are not below are described in `PlayerOptions`.

    Args:
        env: the env in which scripted policies play, unless `player` is given another.
        draw: how models and endpoints draw tokens, unless `player` is given another temperature.
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
        self.timeout, self.connections, self.body = (
            timeout,
            connections,
            {**self._filters(), **self._thinking_body(), **(body or {})},
        )
        self._engines: dict[str, tuple[Any, Any]] = {}
        self._endpoints: dict[tuple[str, float, str | None], EndpointPlayer] = {}
        self._models: dict[str, ModelPlayer] = {}

    @classmethod
    def from_options(cls, options: PlayerOptions, env: AECEnv | None = None, **others: Any) -> Cast:
        """A cast with these options, `reply` as `ask`, and `others`."""
        own = {one.name for one in fields(PlayerOptions)} - {one.name for one in fields(DrawParams)} - {"reply"}
        named = {name: getattr(options, name) for name in own}
        return cls(env, draw=DrawParams.of(options), ask=read_reply(options.reply).ask, **named, **others)

    def player(
        self, spec: str, env: AECEnv | None = None, *, temperature: float | None = None, system: str | None = None
    ) -> Policy | ModelPlayer:
        """The player named `spec`.

        Args:
            env: the env that the policy will play, instead of the cast's.
            temperature: of models and endpoints, instead of the cast's.
            system: the system prompt, instead of the cast's.
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
            return saved_strategy(spec, self.env if env is None else env)
        if is_endpoint(spec):
            warmth = self.draw.temperature if temperature is None else temperature
            return self._endpoint(spec, warmth, self.system if system is None else system)
        if spec not in self._models:
            self._models[spec] = self._model(*locate(spec))
        found = self._models[spec]
        found = found if system is None else replace(found, system=system)
        return found if temperature is None else replace(found, draw=replace(found.draw, temperature=temperature))

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
        sampling |= {name: value for name, value in asked.items() if value not in ("auto", None, "")} | self._filters()
        if is_endpoint(spec):
            return {**sampling, "body": self.body} if self.body else sampling
        base, adapter = locate(spec)
        own = {"renderer": self.renderer, "adapter": None if adapter is None else fingerprint(adapter)}
        from inference.loading import base_digest, bundled_digest

        if base in BUNDLED or (Path(base) / "config.json").exists():  # models on the hub keep their names
            own["weights"] = bundled_digest(base) or base_digest(Path(base))[:12]
        return {**sampling, **own}

    def _filters(self) -> dict[str, Any]:
        """The numbers of `draw` besides the temperature that change something, which are fields of a request, too."""
        return replace(self.draw, temperature=UNCHANGED.temperature).unusual

    def _thinking_body(self) -> dict[str, Any]:
        """The thinking switch and its limit as fields of a request, with vLLM's names."""
        body: dict[str, Any] = {}
        if self.thinking != "auto":
            body["chat_template_kwargs"] = {"enable_thinking": THINKING[self.thinking]}
        if self.thinking_tokens is not None:
            body["thinking_token_budget"] = self.thinking_tokens
        return body

    def _endpoint(self, spec: str, temperature: float, system: str | None) -> EndpointPlayer:
        from legos_train.players.endpoint import EndpointPlayer

        key = spec, temperature, system
        if key not in self._endpoints:
            try:
                self._endpoints[key] = EndpointPlayer(
                    spec,
                    temperature=temperature,
                    max_tokens=self.max_tokens or TOKENS,
                    system=system,
                    ask=self.ask,
                    timeout=self.timeout,
                    connections=self.connections,
                    body=self.body,
                )
            except ValueError as error:
                raise PolicyError(str(error)) from None
        return self._endpoints[key]

    def _model(self, base: str, adapter: Path | None) -> ModelPlayer:
        from inference import Engine
        from inference.text import Renderer

        room = self.max_tokens or default_tokens(base)
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
        return ModelPlayer(
            engine,
            renderer,
            name,
            self.draw,
            max_tokens=room,
            system=self.system,
            thinking_tokens=self.thinking_tokens,
        )

    def reach(self, specs: Iterable[str]) -> None:
        """Checks that the endpoints among the names are reachable, before games start.

        Raises:
            ServerUnavailable: one is not; the message names the endpoint.
        """
        from legos_train.players.endpoint import reach

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


def _check(spec: str) -> None:
    try:
        checked_word(spec)
    except ValueError as error:
        raise PolicyError(str(error)) from None


def saved_strategy(spec: str, env: Any) -> policies.TabularPolicy:
    """The player of a strategy directory, for an env.

    Raises:
        PolicyError: the env has no solvable game, or the strategy is for another.
    """
    try:
        infosets = exact.info_sets(policies.game_env(env).game)
        return policies.TabularPolicy(env, strategy_table(spec, infosets).__getitem__)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{spec} cannot play here: {error}") from None
