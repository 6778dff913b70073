"""Rollouts: hundreds of episodes at once, every model action with the tokens it was sampled as.

One loop, no threads and no clock: hand out decisions, step the engine, take answers. So in synchronous mode a batch of
episodes is a function of the seeds and the weights alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingzoo import AECEnv

from inference import Completion, ContextOverflow, Engine, Request
from inference.render import Conversation, Renderer
from legos_envs import Decision, Episode, Policy, Runner


@dataclass(slots=True)
class ModelPlayer:
    """A seat answered by a model: an engine, one of its adapters (None: the base), and how to sample."""

    engine: Engine
    renderer: Renderer
    adapter: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 16
    system: str | None = None
    context: int | None = None


Player = ModelPlayer | Policy


@dataclass(slots=True)
class EpisodeRequest:
    """One episode to play. `players` by agent, else by role, else `"*"`."""

    env: str
    seed: int
    players: Mapping[str, Player]
    options: Mapping[str, Any] = field(default_factory=dict)
    group: int | str | None = None
    salt: int = 0


@dataclass(slots=True)
class Live:
    """An episode being played: its runner and the conversations of its model seats."""

    index: int
    request: EpisodeRequest
    runner: Runner
    conversations: dict[str, Conversation] = field(default_factory=dict)


class Rollouts:
    """Plays batches of episodes.

    Args:
        make_env: makes an env of the given name; envs are kept and used again.
        concurrency: most episodes being played at a time.
    """

    def __init__(self, make_env: Callable[[str], AECEnv], concurrency: int = 1024):
        self.make_env, self.concurrency = make_env, concurrency
        self._idle: dict[str, list[AECEnv]] = {}

    def run(self, requests: Sequence[EpisodeRequest], on_done: Callable[[int], None] | None = None) -> list[Episode]:
        """Plays all requests; the episodes come back in their order.

        Args:
            on_done: called with the number of finished episodes whenever it has grown.
        """
        episodes: list[Episode | None] = [None] * len(requests)
        flying: dict[tuple[int, int], tuple[Live, Decision, ModelPlayer, tuple[int, ...]]] = {}
        engines: dict[int, Engine] = {}
        queue = list(enumerate(requests))[::-1]
        ready: dict[int, Live] = {}  # by index: two answers of one episode may come in one step
        finished = reported = live = 0
        while queue or flying or ready:
            while queue and live < self.concurrency:
                index, request = queue.pop()
                ready[index] = self._begin(index, request)
                live += 1
            for game in ready.values():
                for key, flight in self._advance(game, engines):
                    flying[key] = flight
                if game.runner.done:
                    episodes[game.index] = game.runner.episode
                    self._idle[game.request.env].append(game.runner.env)
                    finished, live = finished + 1, live - 1
            ready = {}
            for name, engine in engines.items():
                for completion in engine.step():
                    flight = flying.pop((name, completion.request_id), None)
                    if flight is not None and not flight[0].runner.done:  # else: its episode hit the turn limit
                        game = self._answer(completion, *flight)
                        ready[game.index] = game
            if on_done and finished > reported:
                on_done(finished)
                reported = finished
        return [episode for episode in episodes if episode is not None]

    def _begin(self, index: int, request: EpisodeRequest) -> Live:
        idle = self._idle.setdefault(request.env, [])
        env = idle.pop() if idle else self.make_env(request.env)
        return Live(index, request, Runner(env, request.seed, request.options, group=request.group, salt=request.salt))

    def _advance(self, game: Live, engines: dict[int, Engine]) -> list[tuple[Any, Any]]:
        """Answers every scripted seat that can act and submits every model seat; returns what was submitted."""
        submitted: list[tuple[Any, Any]] = []
        moved = True
        while moved:
            moved = False
            for decision in game.runner.pending():
                player = _player(game.request.players, decision)
                if not isinstance(player, ModelPlayer):
                    said = player(decision)
                    if not isinstance(said, str):
                        if inspect.iscoroutine(said):
                            said.close()
                        raise TypeError(
                            f"the policy of {decision.agent!r} must return a str here, got {type(said).__name__}; "
                            "asynchronous policies are for legos_envs.play"
                        )
                    game.runner.answer(decision, said)
                    moved = True
                    continue
                conversation = game.conversations.get(decision.agent)
                if conversation is None:
                    conversation = Conversation(player.renderer, player.system)
                    game.conversations[decision.agent] = conversation
                prompt = conversation.prompt(decision.messages)
                key = self._submit(player, prompt, decision)
                if key is None:  # an overflow is this seat's invalid move, not the end of everybody's episode
                    game.runner.answer(
                        decision, "", prompt_tokens=prompt, action_tokens=(), logprobs=(), finish_reason="overflow"
                    )
                    moved = True
                    continue
                engines[id(player.engine)] = player.engine
                submitted.append((key, (game, decision, player, prompt)))
        return submitted

    @staticmethod
    def _submit(player: ModelPlayer, prompt: tuple[int, ...], decision: Decision) -> tuple[int, int] | None:
        room = player.max_tokens if player.context is None else min(player.max_tokens, player.context - len(prompt))
        if room < 1:
            return None
        try:
            number = player.engine.submit(
                Request(
                    prompt,
                    room,
                    player.temperature,
                    player.top_p,
                    seed=decision.seed,
                    stop_ids=player.renderer.stop_ids,
                    adapter=player.adapter,
                )
            )
        except ContextOverflow:
            return None
        return id(player.engine), number

    @staticmethod
    def _answer(
        completion: Completion, game: Live, decision: Decision, player: ModelPlayer, prompt: tuple[int, ...]
    ) -> Live:
        if completion.finish_reason == "error":
            raise RuntimeError(f"the engine failed on {decision.agent!r}: {completion.error}")
        game.conversations[decision.agent].record(completion.tokens)
        game.runner.answer(
            decision,
            player.renderer.reply(completion.tokens),
            prompt_tokens=prompt,
            action_tokens=completion.tokens,
            logprobs=completion.logprobs,
            policy_version=completion.policy_version,
            finish_reason=completion.finish_reason,
        )
        return game


def _player(players: Mapping[str, Player], decision: Decision) -> Player:
    player = players.get(decision.agent) or players.get(decision.role) or players.get("*")
    if player is None:
        raise KeyError(
            f"nobody plays {decision.agent!r} (role {decision.role!r}); players are given for {sorted(players)}"
        )
    return player
