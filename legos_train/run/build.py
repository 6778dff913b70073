"""From settings to the parts of a run, in one call."""

from __future__ import annotations

from dataclasses import replace

from inference import Engine
from legos_envs.table import keyed_generator
from legos_train.arena import Arena, EnvSlot, actor_of, make_sampler
from legos_train.config import TrainConfig
from legos_train.credit import CreditAssigner, PerEnv, PerLearner, PerRole
from legos_train.disk import new_run_id
from legos_train.errors import ConfigError
from legos_train.evaluation import Measurer, courses_of, followed
from legos_train.league import League, sides_of
from legos_train.model import Learner, Learners, MLXBackend, TrainerBackend, World
from legos_train.players import Actor, RemoteEngine, actors, replies
from legos_train.rollout import Generator, LocalGenerator
from legos_train.run.branches import Branches
from legos_train.run.decision_points import MirrorStep
from legos_train.run.decisions import DecisionTable
from legos_train.run.monitor import CollapseMonitor
from legos_train.run.parts import Parts
from legos_train.run.payoff_games import check_payoffs
from legos_train.run.places import Place, place_of
from legos_train.run.replay import ReplayBuffer
from legos_train.run.servers import remote_engine
from legos_train.run.shared import SharedGenerator
from legos_train.run.weight_sync import WeightSync, member_version


def build(
    config: TrainConfig,
    arena: Arena | None = None,
    world: World | None = None,
    *,
    backend: TrainerBackend | None = None,
    fresh: bool = True,
    run_id: str | None = None,
) -> Parts:
    """All parts of a run.

    Args:
        config: the run.
        arena: the user's, or one made from the config.
        world: all ranks, when there are several.
        backend: holds the weights; by default MLX in this process.
        fresh: off where a checkpoint will be loaded: runs that this one began from are not looked for again.
        run_id: the id of the run's directory; by default a new one.

    Raises:
        ConfigError: the settings do not fit the envs, the model, the backend or each other.
    """
    if world is not None and config.asynchronous.enabled:
        raise ConfigError("asynchronous.enabled must be off with several ranks: each of them plays and trains")
    if config.learner and (world is not None or backend is not None):
        raise ConfigError("several learners are trained by one process, on the backend that they make themselves")
    if world is not None and config.loss.token_loss.all_actions:
        raise ConfigError(f"loss.name = {config.loss.name!r} has nothing to share between ranks; use one process")
    arena = arena_of(config, arena)
    if fresh:
        _check_effects(config, arena)
    courses = courses_of(arena, config)
    run_id = run_id or new_run_id()
    place = place_of(config, world, backend, run_id)
    engine, tokenizer = place.engine, place.tokenizer
    renderer = config.make_renderer(tokenizer)
    if renderer.reasons:  # the probabilities of actions are those of a policy that answers at once
        courses = [replace(course, info_sets=None) for course in courses]
    best = followed(config.eval.best, courses)
    learner = learner_of(config, place)
    backend = learner.backend
    if fresh and config.init_adapter is not None:
        backend.load(backend.read(config.init_adapter))
    credit = make_credit(config, arena)
    arena.league = make_league(config, arena, backend, fill=fresh)

    def generator(engine: Engine | RemoteEngine) -> Generator:
        own = LocalGenerator(
            engine,
            renderer,
            {name: slot.make for name, slot in arena.envs.items()},
            scale=config.lora.scale,
            context=config.context,
            concurrency=config.batch_size,
            check=lambda: parts.check(),  # noqa: PLW0108 - the loop sets it later
        )
        return own if world is None else SharedGenerator(own, world)

    measurer = Measurer(courses, engine, renderer, config.context, best)
    if arena.league is not None:
        check_payoffs(measurer, arena.league)
    sync = WeightSync(learner, engine, generator(engine))
    arena.generator = sync.local
    remote = place.remote
    if config.server.urls:
        weights = 2 + (arena.league.most(config.steps) if arena.league is not None else 0)
        adapters = weights * max(1, len(config.learner))
        remote = remote_engine(config, engine, renderer, backend, adapters, run_id, world)
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
        base=place.base,
        engine=engine,
        renderer=renderer,
        backend=backend,
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


def learner_of(config: TrainConfig, place: Place) -> Learner | Learners:
    """The learner of the run, or several of them over one base model.

    The first of several begins with the weights that it would have alone, the others with weights of their own.
    """
    if place.backend is not None:
        return Learner(place.backend, config)
    members: dict[str, Learner] = {}
    for name, own in config.learners.items():
        seed = int(keyed_generator(config.seed, f"learner {name}").integers(2**31)) if members else config.seed
        seeded = own.model_copy(update={"seed": seed})
        members[name] = Learner(MLXBackend(place.base, seeded), own)
    return Learners(members)


def arena_of(config: TrainConfig, arena: Arena | None = None) -> Arena:
    """The run's arena: the user's, with what the config adds to it, or one made from the config alone.

    Raises:
        ConfigError: a role, an actor or a task sampler does not fit the envs.
    """
    arena = Arena() if arena is None else arena
    arena.seed, arena.model = config.seed, config.model
    arena.batch_size, arena.group_size = config.batch_size, config.grouped
    arena.train_roles = config.train_roles
    arena.learners = {entry.name: entry.roles for entry in config.learner}
    s = config.sampling
    arena.default = Actor(
        actors.ANYBODY, "", s.temperature, config.action_tokens, actors.POLICY, True, s.top_p, s.thinking_tokens
    )
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
        _check_format(config, arena)
    for role, given in config.actors.items():
        if role not in arena.actors and not _held_out(role, config):
            arena.add_actor(actor_of(role, given, arena.default, arena.envs.values()))
    _check_roles(config, arena)
    if config.curriculum.sampler and not arena.samplers:
        arena.add_sampler(make_sampler(config.curriculum, arena))
    return arena


def _check_format(config: TrainConfig, arena: Arena) -> None:
    """Envs that are made already must have the action format that `reply` asks for."""
    wanted = replies.read_reply(config.reply).action_format
    for slot in arena.envs.values():
        own = getattr(slot.make().unwrapped, "action_format", wanted)
        if wanted and own != wanted:
            raise ConfigError(
                f"reply = {config.reply!r} asks for {wanted!r} actions, but {slot.name} reads {own!r}: add it with "
                f"args={{'action_format': {wanted!r}}}"
            )


def _held_out(role: str, config: TrainConfig) -> bool:
    """Whether an actor is for an env that is only measured; `courses_of` takes it."""
    return role.rpartition("/")[0] in {entry.label for entry in config.eval.env}


def _check_roles(config: TrainConfig, arena: Arena) -> None:
    roles = {role for slot in arena.envs.values() for role, _ in slot.seats.values()}
    agents = {agent for slot in arena.envs.values() for agent in slot.seats}
    if unknown := set(config.train_roles) - roles:
        raise ConfigError(f"train_roles names {sorted(unknown)}; {config.title} has the roles {sorted(roles)}")
    known = roles | agents | {actors.ANYBODY}
    for name in [name for name in arena.actors if not _held_out(name, config)]:
        env, slash, role = name.rpartition("/")
        if role not in known or (slash and env not in arena.envs and name not in agents):
            raise ConfigError(f"actors names {name!r}; {config.title} has the roles {sorted(roles)}")
    live = []
    _check_learners(config, arena)
    for slot in arena.envs.values():
        own = {role for role, _ in slot.seats.values()}
        if unknown := set(slot.train_roles or ()) - own:
            raise ConfigError(f"train_roles of {slot.name} names {sorted(unknown)}; it has the roles {sorted(own)}")
        live += [(slot, agent) for agent in arena.live(slot, arena.trained_roles(slot))]
    if not live:
        raise ConfigError(
            f"there is nothing to train in {config.title}: no seat is declared trainable by the environment, played by "
            "the policy, trainable as an actor and among train_roles all at once"
        )
    if config.filter.keep == "winners" and all(len(slot.trained) < 2 for slot, _ in live):
        raise ConfigError("filter.keep = 'winners' compares the seats of an episode; with one seat use 'positive'")
    for slot, agent in live:
        _check_sampling(config, arena, slot, agent)


def _check_effects(config: TrainConfig, arena: Arena) -> None:
    """Settings of a new run that would do nothing; one that is resumed goes on with them."""
    every = list(config.learners.values()) or [config]
    if config.monitor.kl is not None and not any(one.loss.kl or one.loss.kl_end for one in every):
        raise ConfigError(
            "monitor.kl does nothing while loss.kl is 0: no KL is measured then; leave one of the two out"
        )
    if config.league.mode == "mirror" and config.league.opponents:
        raise ConfigError(
            f"league.opponents ({', '.join(config.league.opponents)}) do nothing in mirror play; give league.mode, "
            "such as 'fsp', or 'fixed' to play against them only"
        )
    roles = {role for slot in arena.envs.values() for role, _ in slot.seats.values()}
    if unknown := {role for one in every for role in one.credit.roles} - roles:
        raise ConfigError(f"credit.roles names {sorted(unknown)}; {config.title} has the roles {sorted(roles)}")


def _check_learners(config: TrainConfig, arena: Arena) -> None:
    """Each seat that is trained has one learner, and each learner a seat."""
    if not arena.learners:
        return
    seats = [(slot, agent) for slot in arena.envs.values() for agent in slot.seats]
    names = {name for slot, agent in seats for name in (agent, slot.seats[agent][0])}
    held_out = {entry.label for entry in config.eval.env}
    for learner, roles in arena.learners.items():
        for role in roles:
            env, _, name = role.rpartition("/")
            if env not in held_out and (name not in names or (env and env not in arena.envs)):
                raise ConfigError(f"learner {learner!r} names {role!r}; {config.title} has the roles {sorted(names)}")
    if twice := [r for r in {r for own in arena.learners.values() for r in own} if _owners(arena, r) > 1]:
        raise ConfigError(f"two learners name {sorted(twice)[0]!r}: a seat is played by one of them")
    live = [(slot, agent) for slot, agent in seats if agent in arena.live(slot, arena.trained_roles(slot))]
    if left := sorted({slot.seats[agent][0] for slot, agent in live if arena.learner_of(slot, agent) is None}):
        raise ConfigError(
            f"no learner plays {', '.join(left)}: name every role that is trained "
            "(--learner NAME=ROLE, or a table [[learner]])"
        )
    for learner in arena.learners:
        if all(arena.learner_of(slot, agent) != learner for slot, agent in live):
            raise ConfigError(f"learner {learner!r} has nothing to learn: none of its seats is trained by the policy")


def _owners(arena: Arena, role: str) -> int:
    return sum(role in roles for roles in arena.learners.values())


def _check_sampling(config: TrainConfig, arena: Arena, slot: EnvSlot, agent: str) -> None:
    """Ratios and KL are of the policy at temperature 1; samples of another distribution would bias them unseen."""
    actor = actors.lookup(arena.players(slot), agent, slot.seats[agent][0], True)
    loss = config.loss if actor.learner is None else config.learners[actor.learner].loss
    if not loss.token_loss.imitates and (actor.temperature != 1.0 or actor.top_p != 1.0):
        raise ConfigError(
            f"{slot.name}: {slot.seats[agent][0]!r} is trained but sampled at temperature {actor.temperature} and "
            f"top_p {actor.top_p}. A policy gradient needs 1 and 1 (only loss.name = 'sft' does not)"
        )


def make_credit(config: TrainConfig, arena: Arena) -> CreditAssigner:
    """The arena's own credit assigner, or the run's method; roles and envs may name methods of their own."""
    if arena.credit is not None:
        return arena.credit
    if config.learner:
        return PerLearner({name: make_credit(own, arena) for name, own in config.learners.items()})
    default = config.credit.make()
    if config.credit.roles:
        default = PerRole(default, {r: config.credit.make(name) for r, name in config.credit.roles.items()})
    own = {s.name: config.credit.make(s.credit) for s in arena.envs.values() if s.credit}
    return PerEnv(default, own) if own else default


def make_league(config: TrainConfig, arena: Arena, backend: TrainerBackend, *, fill: bool) -> League | None:
    """The run's league, or None for mirror play.

    Args:
        config: the run.
        arena: with its envs and actors.
        backend: reads the weights of other runs.
        fill: put the snapshots of `league.pool_from` into the pool; off where the pool will come from a checkpoint.

    Raises:
        ConfigError: no env has two seats that are trained, or one does not that is said to; `psro` on other than two
            sides.
        ValueError: `league.pool_from` has nothing that fits.
    """
    if config.league.mode == "mirror":
        return None
    envs = arena.league_envs()
    asked = [slot.name for slot in arena.envs.values() if slot.league]
    if wrong := [name for name in asked if name not in envs] or ([] if envs else list(arena.envs)):
        raise ConfigError(
            f"league.mode = {config.league.mode!r} needs two seats that are trained in {', '.join(wrong)}; for a fixed "
            "opponent use an actor instead, such as --actor ROLE=random"
        )
    if config.league.mode == "psro":
        for name in envs:
            slot = arena.envs[name]
            live = arena.live(slot, arena.trained_roles(slot))
            if (count := len(sides_of(live, {a: slot.seats[a][0] for a in live}))) != 2:
                raise ConfigError(
                    f"league.mode = 'psro' fills a payoff matrix of two sides; {name} has {count}. Use 'fsp' or "
                    "'pfsp', or league = false in its table [[env]]"
                )
    league = League(config.league, config.seed, envs)
    if fill and config.league.pool_from is not None:
        for name, weights in backend.read_run(config.league.pool_from, config.league.pool).items():
            league.add(name, replace(weights, version=member_version(name)))
    return league
