"""Builds the parts of a run from its settings, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from inference import DrawParams, Engine
from legos_train.arena import Arena, actor_of, make_sampler
from legos_train.config import TrainConfig
from legos_train.credit import CreditAssigner, PerEnv, PerLearner, PerRole
from legos_train.disk import RunDirectory
from legos_train.errors import ConfigError
from legos_train.evaluation import Measurer, eval_tasks_of, followed
from legos_train.model import Learner, Learners, WeightStore, World, backends
from legos_train.rollout import Generator, LocalGenerator
from legos_train.rollout.players import Actor, RemoteEngine, actors
from legos_train.run.all_actions.branches import Branches
from legos_train.run.all_actions.decision_points import MirrorStep
from legos_train.run.all_actions.decisions import DecisionTable
from legos_train.run.generation.distributed import SharedGenerator
from legos_train.run.generation.servers import remote_engine
from legos_train.run.generation.weight_sync import WeightSync
from legos_train.run.league_of import check_opponents, league_of
from legos_train.run.parts.monitor import CollapseMonitor
from legos_train.run.parts.parts import Parts
from legos_train.run.parts.replay import ReplayBuffer
from legos_train.run.payoff_games import check_payoffs
from legos_train.run.places import GivenBackend, place_of
from legos_train.run.preflight.config_checks import check_effects, check_format, check_roles, held_out


def build(
    config: TrainConfig,
    arena: Arena | None = None,
    world: World | None = None,
    *,
    backend: GivenBackend | None = None,
    fresh: bool = True,
    run_id: str | None = None,
) -> Parts:
    """Builds all parts of a run.

    Args:
        config: settings of the run.
        arena: the user's, or one built from the config.
        world: all ranks, if there are several.
        backend: holds the weights, see `GivenBackend`; by default as `config.backend` says.
        fresh: False if a checkpoint will be loaded: runs that this one started from are then not looked up again.
        run_id: the id of the run's directory; a new one by default.

    Raises:
        ConfigError: the settings do not fit the envs, the model, the backend or each other.
    """
    if world is not None and config.asynchronous.enabled:
        raise ConfigError("asynchronous.enabled must be off with several ranks: each rank plays and trains")
    if config.learner and world is not None:
        raise ConfigError("several learners need a single process; start it without other ranks")
    if world is not None and config.loss.token_loss.all_actions:
        raise ConfigError(f"loss.name = {config.loss.name!r} does not support several ranks; use one process")
    arena = arena_of(config, arena)
    if fresh:
        check_effects(config, arena)
    tasks = eval_tasks_of(arena, config)
    run_id = run_id or RunDirectory.new_id()
    place = place_of(config, world, backend, run_id)
    engine, tokenizer = place.engine, place.tokenizer
    renderer = config.make_renderer(tokenizer)
    if renderer.reasons:  # action probabilities are those of a policy that answers without thinking
        tasks = [replace(task, info_sets=None) for task in tasks]
    best = followed(config.eval.best, tasks)
    learner = learner_of(config, place)
    trained: WeightStore = learner.backend
    if fresh and config.init_adapter is not None:
        trained.load(trained.read(config.init_adapter))
    credit = credit_of(config, arena)
    arena.league = league_of(config, arena, trained, fill=fresh)

    def tell(unit: str, done: int, total: int) -> None:
        parts.tell(unit, done, total)  # the loop sets it later

    def generator(engine: Engine | RemoteEngine) -> Generator:
        own = LocalGenerator(
            engine,
            renderer,
            {name: slot.make for name, slot in arena.envs.items()},
            scale=config.lora.scale,
            context=config.context,
            concurrency=config.batch_size,
            check=lambda: parts.check(),  # noqa: PLW0108 - the loop sets it later
            report=lambda done, total: tell(f"episodes of step {learner.step + 1}", done, total),
        )
        return own if world is None else SharedGenerator(own, world)

    rivals = tuple(arena.learners) if arena.rivals else ()
    measurer = Measurer(tasks, engine, renderer, config.context, best, tell, rivals)
    if arena.league is not None:
        check_opponents(arena.league, measurer)
        check_payoffs(measurer, arena.league)
    sync = WeightSync(learner, engine, generator(engine))
    arena.generator = sync.local
    remote = place.remote
    if config.server.urls:
        weights = 2 + (arena.league.most(config.steps) if arena.league is not None else 0)
        adapters = weights * max(1, len(config.learner))
        remote = remote_engine(config, engine, renderer, trained, adapters, run_id, world)
    if remote is not None:
        sync.generator = arena.generator = generator(remote)
    decisions = None
    if config.loss.token_loss.all_actions:
        members = () if arena.league is None else arena.league.settings.opponents
        scaled = config.credit.return_scale == "running"
        loss = config.loss
        mirror = MirrorStep(loss.mirror_step, loss.mirror_floor) if loss.token_loss.mirror else None
        branches = Branches(
            measurer,
            renderer,
            lambda jobs: arena.generator.run(jobs),  # type: ignore[union-attr] # noqa: PLW0108 - a later generator counts
            config.branch,
            config.seed,
            scaled=scaled,
            mirror=mirror,
        )
        decisions = DecisionTable(
            measurer, branches, scaled=scaled, explore=loss.explore, mirror=mirror, opponents=members
        )
    parts = Parts(
        config=config,
        run_id=run_id,
        arena=arena,
        place=place,
        renderer=renderer,
        backend=trained,
        learner=learner,
        credit=credit,
        replay=ReplayBuffer(config.replay),
        monitor=CollapseMonitor(config.monitor),
        measurer=measurer,
        sync=sync,
        decisions=decisions,
        league=arena.league,
        world=world,
    )
    return parts


def learner_of(config: TrainConfig, place: backends.Place) -> Learner | Learners:
    """The learner of the run, or several of them over one base model."""
    if isinstance(place.backend, Mapping):
        return Learners({name: Learner(place.backend[name], own) for name, own in config.learners.items()})
    return Learner(place.backend, config)


def arena_of(config: TrainConfig, arena: Arena | None = None) -> Arena:
    """The run's arena: the user's, extended by the config, or one built from the config alone.

    Raises:
        ConfigError: a role, an actor or a task sampler does not fit the envs.
    """
    arena = Arena() if arena is None else arena
    arena.forget_config()
    arena.seed, arena.model = config.seed, config.model
    grouped = config.grouped if arena.credit is None else config.grouped_for(arena.credit)
    arena.batch_size, arena.group_size = config.batch_size, grouped
    if config.batch_size % grouped:  # by a method that the arena brings or names for one of its envs
        raise ConfigError(f"batch_size ({config.batch_size}) must be a multiple of group_size ({grouped})")
    arena.train_roles = config.train_roles
    arena.learners = {entry.name: entry.roles for entry in config.learner}
    draw, thinking = vars(DrawParams.of(config.sampling)), config.sampling.thinking_tokens
    arena.default = Actor(actors.ANYBODY, max_tokens=config.action_tokens, thinking_tokens=thinking, **draw)
    if not arena.envs:
        arena.from_config = True
        for entry in config.envs:
            arena.add_env(
                entry.label,
                entry.id,
                entry.weight,
                args=entry.args,
                options=entry.options,
                train_roles=entry.train_roles,
                credit=entry.credit,
                league=entry.league,
            )
    else:
        check_format(config, arena)
    for role, given in config.actors.items():
        if role not in arena.actors and not held_out(role, config):
            arena.add_actor(actor_of(role, given, arena.default, arena.envs.values()))
            arena.configured["actors"].add(role)
    check_roles(config, arena)
    if config.curriculum.sampler and not arena.samplers:
        own = set(arena.stores)
        arena.add_sampler(make_sampler(config.curriculum, arena))
        arena.configured |= {"samplers": arena.samplers[-1:], "stores": set(arena.stores) - own}
    return arena


def credit_of(config: TrainConfig, arena: Arena) -> CreditAssigner:
    """The arena's own credit assigner, or the run's method; roles and envs may set their own methods."""
    if arena.credit is not None:
        if not isinstance(arena.credit, CreditAssigner):
            kind = type(arena.credit).__name__
            raise ConfigError(f"arena.credit is of type {kind}, which lacks assign, state_dict or load_state_dict")
        return arena.credit
    if config.learner:
        return PerLearner({name: credit_of(own, arena) for name, own in config.learners.items()})
    default = config.credit.make()
    if config.credit.roles:
        default = PerRole(default, {r: config.credit.make(name) for r, name in config.credit.roles.items()})
    own = {s.name: config.credit.make(s.credit) for s in arena.envs.values() if s.credit}
    return PerEnv(default, own) if own else default
