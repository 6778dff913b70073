"""Turns actors into local players: the engine with an adapter, code, another model, an endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pettingzoo import AECEnv

from inference import DrawParams
from inference.text import Renderer
from legos_train.rollout.players.actors import BASE, LEAGUE, OWN, POLICY, TOKENS, Actor, adapter_name
from legos_train.rollout.players.player import Engines, ModelPlayer, Player
from legos_train.rollout.players.words import Cast


class Roster:
    """Creates players once and keeps them. `engine` serves the policy, its snapshots and the base.

    `context`: maximum tokens of a prompt and its action. `policy`: the live policy's adapter; None: the base.
    """

    def __init__(self, engine: Engines, renderer: Renderer, context: int, policy: str | None = POLICY):
        self.engine, self.renderer, self.context, self.policy = engine, renderer, context, policy
        self._players: dict[Any, Player] = {}
        self._envs: dict[str, AECEnv] = {}
        self._cast = Cast(ask=renderer.ask, threads=None)  # threads: as the run has set them

    def player(self, actor: Actor, label: str, make_env: Callable[[], AECEnv]) -> Player:
        """The player of an actor in an env; `make_env` is called if a scripted player needs the game.

        Raises:
            PolicyError: the actor's model is a name that matches no policy.
        """
        if callable(actor.model):
            return actor.model
        own = actor.model in OWN or actor.model.startswith(LEAGUE)
        key = (actor, "" if own else label)
        if key not in self._players:
            self._players[key] = self._model(actor) if own else self._other(actor, label, make_env)
        return self._players[key]

    def players(self, actors: Mapping[str, Actor], label: str, make_env: Callable[[], AECEnv]) -> dict[str, Player]:
        return {key: self.player(actor, label, make_env) for key, actor in actors.items()}

    def _model(self, actor: Actor) -> ModelPlayer:
        assert isinstance(actor.model, str)
        return ModelPlayer(
            self.engine,
            self.renderer,
            self._adapter(actor.model, actor.learner),
            DrawParams.of(actor),
            actor.max_tokens or TOKENS,
            actor.system_prompt or None,
            self.context,
            actor.thinking_tokens,
        )

    def _adapter(self, model: str, learner: str | None) -> str | None:
        """The engine's name of the live policy or of a snapshot, `league:step_40`; None for the base."""
        weights = self.policy if model == POLICY else None if model == BASE else model.removeprefix(LEAGUE)
        return None if weights is None else adapter_name(weights, learner)

    def _other(self, actor: Actor, label: str, make_env: Callable[[], AECEnv]) -> Player:
        assert isinstance(actor.model, str)
        if label not in self._envs:
            self._envs[label] = make_env()
        return self._cast.player(
            actor.model,
            self._envs[label],
            draw=DrawParams.of(actor),
            max_tokens=actor.max_tokens,
            thinking_tokens=actor.thinking_tokens,
            system=actor.system_prompt or None,
        )

    def drop_caches(self) -> None:
        """Drops the caches of other models; `engine` belongs to the caller."""
        self._cast.drop_caches()

    def close(self) -> None:
        self._cast.close()
