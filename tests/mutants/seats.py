"""Mistakes in who sits where, how they are asked, and what of it may be learned."""

from __future__ import annotations

from tests.mutants.mutant import mutants

SEATS = "tests/train/test_wiring_seats.py"
LEAGUE = f"{SEATS}::test_a_member_of_the_league_is_sampled_as_the_seat_that_it_takes"
SAMPLED = "tests/train/test_seat_sampling.py"
HERE = f"{SEATS}::test_every_seat_is_sampled_as_its_actor_says[here]"
FILTERS = "tests/train/test_league_filters.py"

MUTANTS = [
    *mutants(
        "legos_train/rollout/players/player.py",
        HERE,
        (
            "seat-temperature-ignored",
            "self.draw, self.renderer",
            "UNCHANGED, self.renderer",
            "every seat is sampled at temperature 1, judges included",
        ),
    ),
    *mutants(
        "legos_train/rollout/players/roster.py",
        SEATS,
        (
            "roster-temperature-ignored",
            "DrawParams.of(actor),\n            actor.max_tokens or TOKENS",
            "DrawParams(top_p=actor.top_p),\n            actor.max_tokens or TOKENS",
            "an actor's temperature does nothing",
            HERE,
        ),
        (
            "roster-top-p-ignored",
            "DrawParams.of(actor),\n            actor.max_tokens or TOKENS",
            "DrawParams(temperature=actor.temperature),\n            actor.max_tokens or TOKENS",
            "sampling.top_p does nothing",
            LEAGUE,
        ),
        (
            "other-model-drawn-by-temperature-alone",
            "draw=DrawParams.of(actor)",
            "draw=DrawParams(temperature=actor.temperature)",
            "[actors.ROLE] top_p does nothing where another model answers",
            f"{SAMPLED}::test_an_endpoint_is_sent_what_its_seat_says",
        ),
        (
            "other-model-thinks-without-limit",
            "thinking_tokens=actor.thinking_tokens",
            "thinking_tokens=None",
            "[actors.ROLE] thinking_tokens does nothing where another model answers",
            f"{SAMPLED}::test_an_endpoint_is_sent_what_its_seat_says",
        ),
        (
            "system-prompt-dropped",
            "system=actor.system_prompt or None",
            "system=None",
            "the system prompt of a seat does nothing where another model answers",
            f"{SEATS}::test_a_seat_gets_its_system_prompt_whatever_model_answers[tiny]",
        ),
        (
            "member-plays-as-policy",
            "else model.removeprefix(LEAGUE)",
            "else POLICY if model.startswith(LEAGUE) else model",
            "members of the league are the live policy",
            LEAGUE,
        ),
        (
            "base-plays-as-policy",
            "else None if model == BASE else",
            "else POLICY if model == BASE else",
            "judges are the policy",
            HERE,
        ),
    ),
    *mutants(
        "legos_train/arena/seat_plan.py",
        SEATS,
        (
            "judge-at-temperature-one",
            "model=judge, temperature=0.0, trainable=False",
            "model=judge, trainable=False",
            "judges are sampled instead of asked for the likeliest",
            f"{SEATS}::test_a_judge_that_nobody_names_is_the_base_at_its_likeliest",
        ),
    ),
    *mutants(
        "legos_train/arena/request.py",
        SEATS,
        (
            "untrained-seat-at-the-runs-temperature",
            "default if trained else replace(default, temperature=0.0)",
            "default",
            "a judge with a table of its own is sampled instead of asked for the likeliest",
            f"{SAMPLED}::test_a_table_changes_only_what_it_names",
        ),
    ),
    *mutants(
        "legos_train/config/sampling_settings.py",
        f"{SAMPLED}::test_a_whole_run_samples_every_seat_as_its_table_says",
        (
            "seat-sampling-dropped",
            "getattr(default, name) if value is None else value",
            "getattr(default, name)",
            "the sampling in [actors.ROLE] and [[eval.env]] does nothing",
        ),
        (
            "seat-zero-is-unset",
            "getattr(default, name) if value is None else value",
            "value or getattr(default, name)",
            "temperature = 0 and thinking_tokens = 0 of a seat do nothing",
            f"{SAMPLED}::test_a_table_changes_only_what_it_names",
        ),
        (
            "other-models-inherit-a-thinking-limit",
            "share if model in actors.OWN else None",
            "share",
            "an endpoint that knows no such limit refuses every request of its seat",
            f"{SAMPLED}::test_a_limit_of_thoughts_is_inherited_as_a_share_and_only_by_the_runs_model",
        ),
    ),
    *mutants(
        "legos_train/rollout/filters.py",
        FILTERS,
        (
            "winners-and-drawers",
            "trajectory.total >= best and not drawn",
            "trajectory.total >= best",
            "drawn games are imitated",
        ),
        (
            "positive-and-zero",
            'if rule == "winners" else trajectory.total > 0',
            'if rule == "winners" else trajectory.total >= 0',
            "draws are imitated as if they were wins",
        ),
        (
            "success-by-return",
            "                kept = right",
            "                pass",
            "wrong answers are imitated that were paid for their form",
        ),
        (
            "draws-all-left-out",
            "math.floor(share * len(drawn) + rng.random())",
            "len(drawn)",
            "filter.draws leaves all draws out or none",
        ),
        (
            "retry-same-seed",
            "dataclasses.replace(request, seed=fresh)",
            "dataclasses.replace(request, seed=seed)",
            "a drawn episode is played again on the same deal",
        ),
        (
            "one-draw-of-a-group",
            "if all(is_draw(episodes[i]) for i in group):",
            "if any(is_draw(episodes[i]) for i in group):",
            "good episodes of a group are thrown away",
        ),
    ),
    *mutants(
        "legos_train/rollout/jobs.py",
        "tests/train/test_arena.py tests/train/test_traps.py",
        (
            "members-are-trained",
            "elif actor.model != actors.POLICY:",
            "elif False:",
            "what others said is learned from",
            "tests/train/test_arena.py::test_only_what_the_live_policy_said_is_trained",
        ),
        (
            "judges-are-trained",
            "        if not trainable:\n",
            "        if False:\n",
            "seats that the env does not train count as taken back, and so among the policy's own",
            "tests/train/test_arena.py::test_a_judge_without_an_entry_is_the_base_or_code_at_temperature_0_and_never_trained",
        ),
        (
            "roles-ignored",
            "elif job.train_roles is not None and trajectory.role not in job.train_roles:",
            "elif False:",
            "train_roles does nothing",
            "tests/train/test_train.py::test_only_the_roles_asked_for_are_trained",
        ),
        (
            "unscored-is-trained",
            'elif episode.outcome == "unscored":',
            "elif False:",
            "a judge that failed is a reward of 0",
            "tests/train/test_unscored.py",
        ),
        (
            "infinite-reward-kept",
            "        if not finite:  # one",
            "        if False:  # one",
            "a reward that is not a number reaches means and stores",
            "tests/train/test_traps.py::test_a_reward_that_is_no_number_costs_its_episode_and_is_counted",
        ),
    ),
    *mutants(
        "legos_train/arena/artifact.py",
        "tests/train/test_artifacts.py",
        ("learnability-is-p", "return p * (1.0 - p)", "return p", "what everybody solves is kept longest"),
        (
            "gate-lets-all-through",
            "(attempts = 0 OR successes / attempts BETWEEN ? AND ?)",
            "(1 OR successes / attempts BETWEEN ? AND ?)",
            "the learnability gate is open",
        ),
        ("age-of-the-young", '"step >= ?"', '"step <= ?"', "only old artifacts are drawn"),
    ),
    *mutants(
        "legos_train/arena/curriculum/proposed.py",
        "tests/train/test_curriculum.py",
        (
            "nothing-is-seen",
            "problems = [artifact.content",
            "problems = [] and [artifact.content",
            "kept problems are paid as new ones",
            "tests/train/test_curriculum.py::test_kept_problems_are_no_longer_new",
        ),
        (
            "solve-rate-of-those-right",
            "sum(rights), len(tried), step)",
            "sum(rights), len(rights), step)",
            "who said nothing does not count",
            "tests/train/test_curriculum.py::test_a_forfeit_counts_as_wrong",
        ),
    ),
    *mutants(
        "legos_train/arena/arena.py",
        "tests/train/test_arena.py",
        ("weights-of-envs-ignored", "p=weights / weights.sum()", "p=None", "[[env]] weight does nothing"),
        (
            "group-of-other-deals",
            "out += [request] * self.group_size",
            "out += [replace(request, seed=seed + i) for i in range(self.group_size)]",
            "a group has several deals",
            "tests/train/test_arena.py::test_a_group_plays_one_deal",
        ),
    ),
    *mutants(
        "legos_train/arena/seat_plan.py",
        "tests/train/test_arena.py",
        (
            "env-actor-comes-first",
            "if role.startswith(prefix):",
            "if False:",
            "[actors.ENV/ROLE] does nothing",
            "tests/train/test_traps.py::test_what_is_said_for_one_env_comes_before_what_is_said_for_all",
        ),
    ),
    *mutants(
        "legos_train/arena/seat_plan.py",
        "tests/train/test_arena.py",
        (
            "members-are-trainable",
            "learner=learner, trainable=False)",
            "learner=learner)",
            "a league member's seat is marked trainable",
            "tests/train/test_traps.py::test_a_league_leaves_actors_alone tests/train/test_whole_state.py::test_only_the_learners_seat_is_trained_and_seats_are_balanced",
        ),
        equivalent="what another model than the policy says is left out before its actor is looked at",
    ),
]
