"""Mistakes in what is measured: exact numbers, games, intervals, ratings, verdicts."""

from __future__ import annotations

from tests.mutants.mutant import mutants

RATINGS = "tests/envs/test_ratings.py"
INTERVALS = "tests/eval/test_intervals.py"
OUTCOMES = "tests/eval/test_outcomes.py"

MUTANTS = [
    *mutants(
        "legos_envs/scoring/ratings.py",
        RATINGS,
        (
            "elo-forgets-the-expected",
            "self.k * (score - expected_score(a, b))",
            "self.k * (score - 0.5)",
            "beating anybody is the same",
        ),
        (
            "elo-sum-grows",
            "= a + won, b - won\n        return",
            "= a + won, b\n        return",
            "the loser keeps his points",
        ),
        (
            "expected-reversed",
            "(other - rating) / SCALE",
            "(rating - other) / SCALE",
            "the better one is expected to lose",
        ),
        ("bt-prior-dropped", "wins.sum(axis=1) + prior", "wins.sum(axis=1)", "those who lost everything are nothing"),
        (
            "bt-draws-are-wins",
            "+= times * (1.0 - score)",
            "+= times * score",
            "the second has won what the first has won",
        ),
        ("ordinal-is-mu", "return self.mu - 3 * self.sigma", "return self.mu", "uncertainty does not count"),
    ),
    *mutants(
        "legos_train/evaluation/intervals.py",
        INTERVALS,
        ("interval-of-90", "LEVEL, POWER = 0.975", "LEVEL, POWER = 0.95", "intervals are of 90 %"),
        ("small-samples-certain", "few = {1: 12.7062,", "few = {1: 1.96,", "two values give certainty"),
        ("tails-too-narrow", "* math.sqrt(n / (n - 1)))", ")", "intervals of few values are too narrow"),
        (
            "pass-at-k-is-mean",
            "1.0 - math.comb(samples - correct, k) / math.comb(samples, k)",
            "correct / samples",
            "pass@k is mean@k",
        ),
        (
            "resampled-without-replacement",
            "rng.integers(0, n, (min(block, resamples - done), n))",
            "rng.permuted(np.tile(np.arange(n), (min(block, resamples - done), 1)), axis=1)",
            "every resample is the sample",
        ),
    ),
    *mutants(
        "legos_train/evaluation/summary.py",
        f"{INTERVALS} {OUTCOMES}",
        (
            "half-seeds-count",
            "if len(group) == wanted and not any(",
            "if not any(",
            "a mean over the seats that happened to be played",
        ),
        (
            "unscored-seeds-count",
            ' and not any("unscored" in one["outcomes"].values() for one in group)',
            "",
            "games without a verdict are zeros in means",
        ),
        (
            "problems-count-twice",
            "groups[_evidence(group[0])] += group",
            "groups[group[0]['seed']] += group",
            "one problem drawn twice is two pieces of evidence",
            "tests/eval/test_transfer.py::test_seeds_that_draw_the_same_problem_are_one_piece_of_evidence",
        ),
    ),
    *mutants(
        "legos_train/evaluation/outcomes.py",
        OUTCOMES,
        (
            "invalid-is-loss",
            'return "invalid" if agent in episode.info.get("offenders", ()) else "opponent_invalid"',
            'return "loss" if agent in episode.info.get("offenders", ()) else "win"',
            "garbage looks like play",
        ),
        (
            "forfeit-is-the-others",
            'return "invalid" if "reason" in info else "opponent_invalid"',
            'return "opponent_invalid"',
            "who forfeited a match did not",
        ),
        (
            "truncated-is-scored",
            "    if episode.truncated:\n",
            "    if False:\n",
            "games that were cut short have winners",
        ),
    ),
    *mutants(
        "legos_train/evaluation/games.py",
        OUTCOMES,
        (
            "score-of-invalid",
            'return float(outcome != "invalid")',
            'return float(outcome == "invalid")',
            "who answers garbage has won",
        ),
        (
            "draws-count-nothing",
            "0.5 if abs(m) <= TIE else float(m > 0) for m in margins",
            "float(m > 0) for m in margins",
            "draws are losses for ratings",
        ),
    ),
    *mutants(
        "legos_train/evaluation/exact_values.py",
        "tests/eval/test_exact_values.py tests/train/test_train.py::test_the_exact_numbers_are_those_of_the_sampled_play",
        (
            "one-player-for-both",
            "scored_answers(env, player, mine[",
            "scored_answers(env, players[0], mine[",
            "both seats are answered by the player of the first",
            "tests/eval/test_exact_values.py tests/train/test_wiring_seats.py",
        ),
        ("not-normalised", "p / total if total else 1 / len(mass)", "p", "illegal answers count as play"),
    ),
    *mutants(
        "legos_train/evaluation/exploit/bounds.py",
        "tests/eval/test_exploit.py",
        (
            "responses-paid-on-their-own-half",
            "for half in halves][::-1]",
            "for half in halves]",
            "who is chosen for luck is paid for the same luck",
        ),
        (
            "lower-limit-goes-up",
            "tilt(counts, -np.concatenate(slopes) / 2, possible, Z)",
            "tilt(counts, np.concatenate(slopes) / 2, possible, Z)",
            "both ends of the interval are above the estimate",
        ),
    ),
    *mutants(
        "legos_train/evaluation/exploit/asking.py",
        "tests/eval/test_exploit.py",
        (
            "illegal-answers-are-first-moves",
            "len(self.arrays.legal[at]) - 1 if move is None",
            "0 if move is None",
            "who says nothing legal is taken to play",
        ),
    ),
    *mutants(
        "legos_train/evaluation/standings.py",
        "tests/eval/test_tournament.py",
        (
            "payoffs-transposed",
            "[one.env].append(1 - 2 * one.score)",
            "[one.env].append(2 * one.score - 1)",
            "of a game both have won",
            "tests/eval/test_tournament.py::test_payoffs_are_wins_minus_losses_from_each_side",
        ),
        (
            "envs-weighed-by-games",
            "np.mean([np.mean(values) for values in envs.values()])",
            "np.mean([v for values in envs.values() for v in values])",
            "the env with more games decides",
            "tests/eval/test_tournament.py::test_envs_count_the_same_however_many_games_they_have",
        ),
    ),
    *mutants(
        "legos_train/observe/verdict.py",
        "tests/train/test_verdict.py",
        (
            "gain-without-direction",
            "return (change, low, high) if sign > 0 else (-change, -high, -low)",
            "return (change, low, high)",
            "less NashConv is worse",
        ),
        (
            "illegal-is-no-matter",
            "return rise if rise[1] - rise[0] > SPOILED else None",
            "return None",
            "a policy that only answers illegally is said to have learned",
        ),
        ("better-is-worse", "chosen = max(sound, key=", "chosen = min(sound, key=", "the worse weights are published"),
        (
            "learned-by-chance",
            "if low > 0:\n        return LEARNED",
            "if high > 0:\n        return LEARNED",
            "chance is called learning",
        ),
        (
            "role-gave-up",
            "if high < 0 or (ended and better <= 0):",
            "if False:",
            "a run that ruined one of its roles is said to have learned",
        ),
        ("standstill-anywhere", " and share > FAR", "", "a run at the optimum is said to stand still"),
        ("standstill-never", "self.count >= LONG and", "False and", "it is never said"),
        (
            "standstill-at-once",
            " and step - self.since >= max(LASTING * step, STEPS)",
            "",
            "four evaluations in a row are enough",
            "tests/train/test_monitor.py",
        ),
    ),
    *mutants(
        "legos_train/observe/eval_numbers.py",
        "tests/train/test_verdict.py tests/train/test_wiring.py::test_best_is_the_best_that_was_measured[ema]",
        (
            "less-is-not-better",
            "return -1 if kind in LESS_IS_BETTER else 1",
            "return 1",
            "a large NashConv is called good",
        ),
        (
            "average-and-last-swapped",
            "last = {name: value for name, value in evaluation.items() if not name.endswith(AVERAGE)}",
            "last = {name: value for name, value in evaluation.items()}",
            "the numbers of the average stand among those of the last weights",
            "tests/train/test_train.py::test_files_of_a_run",
        ),
    ),
    *mutants(
        "legos_train/evaluation/during_training.py",
        "tests/train/test_wiring_seats.py::test_it_is_measured_at_the_temperatures_of_its_seats",
        (
            "rival-is-itself",
            "return self._own(task, None)",
            "return self._own(task, actors.POLICY)",
            "the base is the policy",
        ),
        (
            "measured-is-the-base",
            "return replace(player, adapter=adapter)",
            "return replace(player, adapter=None)",
            "the base is measured",
            "tests/train/test_wiring.py::test_the_numbers_of_every_step_are_those_of_its_weights_and_of_its_average[ema]",
        ),
        (
            "never-due",
            "if last or (c.every and step % c.every == 0)]",
            "if last]",
            "eval.every does nothing",
            "tests/train/test_train.py::test_files_of_a_run",
        ),
        (
            "shown-as-it-was",
            "served[player.adapter].digest for player",
            "player.adapter for player",
            "a report shows the weights that were evaluated first",
            "tests/train/test_tabular.py::test_a_report_shows_the_weights_of_now_and_not_those_that_were_evaluated_before",
        ),
    ),
]
