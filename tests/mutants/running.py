"""Mistakes in a step of training: replay, staleness, the monitor, numbers of episodes."""

from __future__ import annotations

from tests.mutants.mutant import mutants

MONITOR = "tests/train/test_monitor.py"
HONEST = "tests/train/test_honest_runs.py"

RANKS = "tests/train/test_distributed.py::test_what_two_ranks_compute_adds_up_to_the_gradient_of_one"

MUTANTS = [
    *mutants(
        "legos_train/model/ranks.py",
        RANKS,
        (
            "rank-0-computes-all",
            "keep = owner[batch.row] == self.rank",
            "keep = owner[batch.row] >= self.rank",
            "what other ranks compute counts twice",
        ),
    ),
    *mutants(
        "legos_train/model/gradients.py",
        RANKS,
        (
            "start-of-other-ranks-rows",
            "start[own] = policy.logprobs(mine, max_tokens=max_tokens)",
            "start[: len(own)] = policy.logprobs(mine, max_tokens=max_tokens)",
            "the second rank's log-probabilities stand at the first's tokens",
        ),
    ),
    *mutants(
        "legos_train/run/trainer.py",
        "tests/train/test_traps.py::test_baselines_see_the_losers_that_a_filter_leaves_out",
        (
            "filter-before-credit",
            "advantages = parts.credit.assign(kept)  # before",
            "filters.keep_best(kept, config.filter.keep)\n            advantages = parts.credit.assign(kept)  # before",
            "baselines do not see the losers",
        ),
        (
            "version-of-the-next-step",
            "self.assign_credit(episodes, self.learner.step)",
            "self.assign_credit(episodes, self.learner.step + 1)",
            "fresh batches look younger than they are",
            "tests/train/test_replay.py::test_a_reused_batch_is_trained_on_again_without_playing",
        ),
        (
            "league-sees-nothing",
            "            parts.league.observe(episodes, [_opponents(parts.arena, episode) for episode in episodes])\n",
            "            pass\n",
            "the league never learns who won",
            "tests/train/test_whole_state.py::test_a_run_with_everything_on_resumes_bit_for_bit",
        ),
        (
            "stores-see-nothing",
            "numbers = parts.arena.learn(episodes)",
            "numbers = parts.arena.learn([])",
            "the curriculum never learns who solved what",
            "tests/train/test_curriculum.py::test_a_run_comes_back_to_its_store",
        ),
    ),
    *mutants(
        "legos_train/run/all_actions/decisions.py",
        "tests/train/test_expected.py",
        (
            "reach-ignored",
            "share * visits[at] / total",
            "share / len(graph.infosets)",
            "rare decisions weigh as common ones",
        ),
        ("everybody-learns", "info.player not in trained or", "", "a league's members are learned from"),
        ("member-plays-the-policy", "member or actors.POLICY", "actors.POLICY", "snapshots are not what is met"),
    ),
    *mutants(
        "legos_envs/exact/graph.py",
        "tests/train/test_expected.py",
        ("others-values", "[move]][player] for w", "[move]][0] for w", "the second seat learns for the first"),
    ),
    *mutants(
        "legos_train/run/all_actions/decision_points.py",
        "tests/train/test_expected.py",
        ("probability-ignored", "masses * weight", "(masses > 0) * weight", "unlikely actions weigh as likely ones"),
        ("no-mean", "better = gains - mean", "better = gains", "what is learned from is the value, not the advantage"),
        (
            "target-ignores-the-policy",
            "target = np.log(np.maximum(masses, max(step.floor, LEAST))) + step",
            "target = step",
            "a step of mirror descent forgets p",
        ),
        (
            "lost-for-good",
            "max(step.floor, LEAST)",
            "LEAST",
            "an action that has become rare never comes back",
        ),
        ("target-not-normalised", " - np.log(np.exp(target - peak).sum())", "", "what weighs is not a policy"),
    ),
    *mutants(
        "legos_train/run/all_actions/branches.py",
        "tests/train/test_branches.py",
        ("long-episodes-weigh-less", "len(open_) / count", "1.0", "decisions of long episodes count for less"),
        (
            "another-action-is-given",
            "begin, salt = (*before, (point.agent, turn))",
            "begin, salt = (*before, (point.agent, taken))",
            "every action gets the value of the one that was taken",
        ),
        ("one-salt", "FIRST_SALT + len(branches)", "FIRST_SALT", "all rollouts of a point are one"),
    ),
    *mutants(
        "legos_train/credit/return_scale.py",
        "tests/train/test_return_scale.py",
        ("scale-forgotten", "given[agent] = values / large[key]", "pass", "large payoffs drown the KL"),
        ("small-returns-blown-up", "max(1.0, second / weight", "max(1e-9, second / weight", "rare successes explode"),
        ("mean-kept-in-the-spread", " - (first / weight) ** 2)", ")", "a constant payoff counts as spread"),
        ("moments-not-saved", '"moments": moments}', '"moments": []}', "a resumed run scales anew"),
    ),
    *mutants(
        "legos_train/run/parts/replay.py",
        "tests/train/test_replay.py",
        (
            "stale-by-one",
            "version - record.version > self.settings.max_staleness",
            "version - record.version > self.settings.max_staleness + 1",
            "batches are used one step longer than replay.max_staleness",
            "tests/train/test_replay.py::test_old_batches_are_dropped_before_they_are_used_and_counted tests/train/test_replay.py::test_a_reused_batch_is_trained_on_again_without_playing",
        ),
        (
            "reuse-by-one",
            "[r for r in self.records if r.uses < self.settings.reuse]",
            "[r for r in self.records if r.uses <= self.settings.reuse]",
            "batches are used once more than replay.reuse",
            "tests/train/test_replay.py::test_a_batch_is_used_once_by_default",
        ),
        (
            "replay-oldest-first",
            "key=lambda r: (-r.uses, r.version)",
            "key=lambda r: (-r.uses, -r.version)",
            "the oldest of equals is taken",
            "tests/train/test_replay.py::test_reuse_takes_the_least_used_and_of_these_the_newest",
        ),
        (
            "uses-not-kept",
            '        "uses": record.uses,\n',
            '        "uses": 0,\n',
            "a resume uses batches again",
            "tests/train/test_replay.py::test_what_was_kept_comes_back",
        ),
    ),
    *mutants(
        "legos_train/run/overlap.py",
        "tests/train/test_asynchronous.py",
        (
            "async-stale-by-one",
            "if staleness(episode, version) <= limit]",
            "if staleness(episode, version) <= limit + 1]",
            "episodes are used one step longer than max_off_policy_steps",
            "tests/train/test_asynchronous.py::test_stale_episodes_are_dropped_before_they_are_used_and_counted",
        ),
        (
            "async-youngest-token",
            "version - min(versions, default=version)",
            "version - max(versions, default=version)",
            "an episode is as old as its youngest token",
            "tests/train/test_asynchronous.py::test_stale_episodes_are_dropped_before_they_are_used_and_counted",
        ),
    ),
    *mutants(
        "legos_train/run/parts/monitor.py",
        MONITOR,
        (
            "alarm-at-once",
            "new = not watch.on and watch.beyond >= patience",
            "new = not watch.on and watch.beyond >= 1",
            "monitor.patience does nothing",
        ),
        (
            "alarm-every-step",
            "new = not watch.on and watch.beyond >= patience",
            "new = watch.beyond >= patience",
            "an alarm repeats at every step",
        ),
        (
            "limit-of-last-value",
            "mean = math.fsum(watch.recent) / len(watch.recent)",
            "mean = value",
            "single steps set off an alarm: there is no running mean",
        ),
        ("least-is-most", "if WATCHED[name].least else", "if not WATCHED[name].least else", "bounds are exchanged"),
    ),
    *mutants(
        "legos_train/run/records/episode_metrics.py",
        HONEST,
        (
            "draws-are-losses",
            "out[mine] = 0.5 if even else",
            "out[mine] = 0.0 if even else",
            "draws lower the win rate as losses do",
            "tests/train/test_dashboard.py::test_win_rates_are_the_learners_where_two_compete",
        ),
        (
            "unscored-is-a-zero",
            'if "unscored" in (episode.outcome, trajectory.info.get("ending")):',
            "if False:",
            "returns of games without a verdict are zeros in means",
            "tests/train/test_dashboard.py::test_a_game_without_a_verdict_has_no_returns",
        ),
        (
            "error-without-clusters",
            "cluster = number if episode.group is None else (episode.group,)",
            "cluster = object()",
            "episodes of a group count as independent",
            "tests/train/test_dashboard.py::test_the_error_of_a_mean_counts_groups_and_not_games",
        ),
    ),
]
