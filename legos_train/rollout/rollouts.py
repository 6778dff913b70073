"""Rollouts: hundreds of concurrent episodes, every model action with its sampled tokens.

One loop without a clock: hand out decisions, step the engine, collect answers. In synchronous mode a batch of episodes
therefore depends only on the seeds and the weights, except for slow operations: policies that are coroutine functions
(endpoints) and slow steps (`slow_steps.py`) run alongside the loop, and a formula on which math-verify times out counts
as wrong.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pettingzoo import AECEnv

from inference import Completion, ContextOverflow, Request, SamplingParams, UnknownRequest
from legos_envs import Decision, Episode, Runner
from legos_envs.records import Turn
from legos_train.rollout.jobs import Job
from legos_train.rollout.live_episode import LiveEpisode, OpenTurn, turn_of
from legos_train.rollout.players import Background, Engines, ModelPlayer
from legos_train.rollout.slow_steps import SlowSteps, may_take_long


@dataclass(slots=True, frozen=True)
class Question:
    """The parts that requests for the same observation of the same player have in common.

    `messages` and `player` are held so that no other object gets their ids.
    """

    messages: tuple[dict[str, str], ...]
    player: ModelPlayer
    prompt: tuple[int, ...]
    sampling: SamplingParams


MAX_QUESTIONS = 4096
Flight = tuple[LiveEpisode, Decision, ModelPlayer, tuple[int, ...], SamplingParams]
"""A pending answer: its episode, decision, player, prompt and sampling."""
Done = Callable[[int, Episode, Mapping[str, bool]], None]
Failed = Callable[[int, BaseException], None]


class Rollouts:
    """Plays batches of episodes.

    Args:
        make_env: creates an env of the given name and arguments; envs are kept and reused.
        concurrency: maximum number of concurrent episodes.
    """

    def __init__(self, make_env: Callable[..., AECEnv], concurrency: int = 1024):
        self.make_env, self.concurrency = make_env, concurrency
        self._idle: dict[str, list[AECEnv]] = {}
        self._background: Background | None = None
        self._slow: SlowSteps | None = None
        self._questions: dict[tuple[int, int], Question] = {}
        """By the ids of observation and player: envs of small games return the same object whenever a position
        recurs."""

    def run(self, jobs: Sequence[Job], on_done: Callable[[int], None] | None = None) -> list[Episode]:
        """Plays all jobs; returns their episodes in the same order.

        Args:
            jobs: jobs with players in place of actors.
            on_done: called with the number of finished episodes whenever it grows.
        """
        episodes: dict[int, Episode] = {}

        def done(index: int, episode: Episode, declared: Mapping[str, bool]) -> None:
            episodes[index] = episode

        reported = 0
        for _ in self.stream(jobs, done):
            if on_done and len(episodes) > reported:
                reported = len(episodes)
                on_done(reported)
        return [episodes[index] for index in range(len(jobs))]

    def stream(self, jobs: Sequence[Job], done: Done, failed: Failed | None = None) -> Generator[None]:
        """Plays all jobs, yielding after every engine step (weights may be published then).

        Args:
            jobs: jobs with players in place of actors.
            done: called with index, episode and agent -> declared trainable, as episodes end.
            failed: called with index and error if a policy or an engine failed on an episode, which is then abandoned;
                without it the error is raised.
        """
        flying: dict[tuple[int, int], Flight] = {}
        engines: dict[int, Engines] = {}
        queue = list(enumerate(jobs))[::-1]
        ready: dict[int, LiveEpisode] = {}  # by index: two answers of one episode may arrive in one step
        live: dict[int, LiveEpisode] = {}
        self._questions.clear()  # a player may have changed

        def give_up(game: LiveEpisode, error: Exception) -> None:
            if failed is None:
                raise error
            if live.pop(game.index, None) is not None:
                ready.pop(game.index, None)
                for key in [key for key, flight in flying.items() if flight[0] is game]:
                    del flying[key]
                    with contextlib.suppress(UnknownRequest):  # it ended in the same step
                        engines[key[0]].abort(key[1])
                failed(game.index, error)

        try:
            while queue or live:
                while queue and len(live) < self.concurrency:
                    index, job = queue.pop()
                    ready[index] = live[index] = self._begin(index, job)
                for game in list(ready.values()):
                    if game.index not in live or self._busy(game):  # a thread may still be stepping it
                        continue
                    try:
                        if not game.runner.done:
                            self._advance(game, engines, flying)
                    except Exception as error:
                        give_up(game, error)
                        continue
                    if game.runner.done:
                        del live[game.index]
                        self._idle[_env_key(game.job)].append(game.runner.env)
                        done(game.index, game.runner.episode, game.declared)
                ready = {}
                waiting = self._background.pending if self._background else 0
                for name in _waited_for(flying, engines):
                    for completion in engines[name].step():
                        flight = flying.pop((name, completion.request_id), None)
                        if flight is not None and not flight[0].runner.done:  # else: its episode hit the turn limit
                            try:
                                stepped = self._answer(completion, *flight)
                            except Exception as error:
                                give_up(flight[0], error)
                                continue
                            if stepped:
                                ready[flight[0].index] = flight[0]
                if waiting:
                    slow = self._slow is not None and self._slow.running
                    wait = 0.0 if flying or ready else 0.05 if slow else 1.0
                    for (game, decision), said in self._background.ready(wait):  # type: ignore[union-attr]
                        if game.runner.done or live.get(game.index) is not game:
                            continue
                        if isinstance(said, BaseException):
                            if not isinstance(said, Exception):
                                raise said
                            give_up(game, said)
                        else:
                            try:
                                if self._step(game, decision, turn_of(decision, said)):
                                    ready[game.index] = game
                            except Exception as error:
                                give_up(game, error)
                if self._slow and self._slow.running:
                    for game, failure in self._slow.ended(0.0 if flying or ready else 0.05):
                        if live.get(game.index) is not game:
                            continue
                        if failure is not None:
                            if not isinstance(failure, Exception):
                                raise failure
                            give_up(game, failure)
                        else:
                            ready[game.index] = game
                yield
        finally:  # for episodes that ended at the turn limit, or a batch that was stopped
            for name, number in flying:
                with contextlib.suppress(UnknownRequest):  # it ended in the very step that was interrupted
                    engines[name].abort(number)
            for engine in engines.values():
                engine.settle()

    def close(self) -> None:
        """Ends the thread of coroutine policies, if any."""
        if self._background is not None:
            self._background.close()
            self._background = None
        if self._slow is not None:
            self._slow.close()
            self._slow = None

    def _begin(self, index: int, job: Job) -> LiveEpisode:
        idle = self._idle.setdefault(_env_key(job), [])
        env = idle.pop() if idle else self.make_env(job.env, **job.args)
        runner = Runner(env, job.seed, job.options, group=job.group, salt=job.salt)
        if job.title is not None:
            runner.episode.env_id = job.title
        declared = {agent: t.trainable for agent, t in runner.episode.trajectories.items()}
        game = LiveEpisode(index, job, runner, declared, may_take_long(env))
        game.answer_again()
        return game

    def _advance(self, game: LiveEpisode, engines: dict[int, Engines], flying: dict[tuple[int, int], Flight]) -> None:
        """Answers for every scripted seat that can act; submits every model seat, which is then `flying`."""
        moved = True
        while moved and not self._busy(game):
            moved = False
            for decision in game.runner.pending():
                if game.runner.done:  # the last answer reached the turn limit
                    break
                player = game.player(decision)
                if not isinstance(player, ModelPlayer):
                    said = player(decision)
                    if inspect.isawaitable(said):
                        self._background = self._background or Background()
                        self._background.submit((game, decision), said)
                        continue
                    if not isinstance(said, str):
                        raise TypeError(
                            f"the policy of {decision.agent!r} must return a str, got {type(said).__name__}"
                        )
                    moved = self._step(game, decision, turn_of(decision, said))
                    continue
                prompt, sampling = self._asked(game, decision, player)
                session = f"{game.job.seed}.{game.index}.{decision.agent}"
                goes_on = decision.agent in game.conversations  # its next prompt will begin with this one and its reply
                key = self._submit(player, Request(prompt, sampling, player.adapter, session=session, park=goes_on))
                if key is None:  # an overflow is this seat's invalid move, and does not end the batch
                    turn = turn_of(decision, "", prompt_tokens=prompt, action_tokens=(), logprobs=())
                    turn.finish_reason = "overflow"
                    moved = self._step(game, decision, turn)
                    continue
                engines[id(player.engine)] = player.engine
                flying[key] = (game, decision, player, prompt, sampling)

    def _asked(
        self, game: LiveEpisode, decision: Decision, player: ModelPlayer
    ) -> tuple[tuple[int, ...], SamplingParams]:
        """What a player reads, and how its answer is drawn."""
        messages, agent = decision.messages, decision.agent
        if len(messages) > 1 or agent in game.conversations:
            prompt = game.conversation(agent, player).prompt(messages)
            return prompt, player.sampling(player.room(prompt), decision.seed)
        key = id(messages), id(player)
        known = self._questions.get(key)
        if known is None:
            prompt = player.renderer.start(messages, player.system)
            known = Question(messages, player, prompt, player.sampling(player.room(prompt), None))
            if len(self._questions) >= MAX_QUESTIONS:
                self._questions.clear()
            self._questions[key] = known
        game.begun[agent] = OpenTurn(messages)
        return known.prompt, known.sampling.seeded(decision.seed)

    @staticmethod
    def _submit(player: ModelPlayer, request: Request) -> tuple[int, int] | None:
        most = request.sampling.max_tokens
        if most is not None and most < 1:
            return None
        try:
            number = player.engine.submit(request)
        except ContextOverflow:
            return None
        return id(player.engine), number

    def _step(self, game: LiveEpisode, decision: Decision, turn: Turn) -> bool:
        """Steps a game with an answer; False if that continues in a thread."""
        if game.slow:
            self._slow = self._slow or SlowSteps()
            return self._slow.take(game, partial(game.settle, decision, turn))
        game.settle(decision, turn)
        return True

    def _busy(self, game: LiveEpisode) -> bool:
        """Whether a step of a game is running in a thread."""
        return self._slow is not None and self._slow.busy(game)

    def _answer(
        self,
        completion: Completion,
        game: LiveEpisode,
        decision: Decision,
        player: ModelPlayer,
        prompt: tuple[int, ...],
        sampling: SamplingParams,
    ) -> bool:
        """Steps a game with its engine's output; False if that continues in a thread."""
        if completion.finish_reason == "error":
            raise RuntimeError(f"the engine failed on {decision.agent!r}: {completion.error}")
        tokens, versions = completion.tokens, completion.token_versions
        game.record(decision.agent, tokens)
        turn = Turn(
            decision.messages,
            player.renderer.reply(tokens),
            0.0,
            decision.legal_actions,
            prompt,
            tokens,
            completion.logprobs,
            min(versions) if versions else completion.policy_version,
            completion.finish_reason,
            versions,
            player.written(prompt, tokens, sampling),
        )
        return self._step(game, decision, turn)


def _waited_for(flying: Mapping[tuple[int, int], Flight], engines: Mapping[int, Engines]) -> Sequence[int]:
    """The engines that something is in flight with, in the order of submission, not of addresses."""
    if len(engines) == 1:
        return list(engines) if flying else []
    return list(dict.fromkeys(key[0] for key in flying))


def _env_key(job: Job) -> str:
    return f"{job.env} {sorted(job.args.items())!r}" if job.args else job.env
