"""Mistakes in what problems, code, argument, contests and working together pay, and in their judges."""

from __future__ import annotations

from tests.mutants.mutant import mutants

E = "tests/envs"

MUTANTS = [
    *mutants(
        "legos_envs/tasks/problems/proposed_problems.py",
        f"{E}/test_proposer_solver.py",
        (
            "proposer-paid-for-wrong-answers",
            '"played" if right else "wrong_answer"',
            '"played"',
            "a wrong key is a hard problem",
            f"{E}/test_proposer_solver.py::test_worthless_problems_earn_nothing_and_nobody_is_asked",
        ),
    ),
    *mutants(
        "legos_envs/tasks/problems/proposer_solver.py",
        f"{E}/test_proposer_solver.py",
        (
            "solvers-paid-for-talk",
            "table.reward(agent, float(good))",
            "table.reward(agent, 1.0)",
            "any answer is right",
            f"{E}/test_proposer_solver.py::test_rewards",
        ),
        (
            "duplicates-paid",
            "(often[proposal.key] > 1 or proposal.key in seen)",
            "False",
            "the same problem is paid again",
            f"{E}/test_proposer_solver.py::test_duplicates",
        ),
        (
            "example-paid",
            '[*self._keys("seen", seen), problem_key(EXAMPLES[domain], domain)]',
            'self._keys("seen", seen)',
            "the example of the prompt is a problem of one's own",
            f"{E}/test_proposer_solver.py::test_the_example_of_the_prompt_earns_nothing_again",
        ),
        (
            "proposer-rate-inverted",
            "table.reward(proposer, self.pays(rate))",
            "table.reward(proposer, self.pays(1 - rate))",
            "too easy is too hard",
            f"{E}/test_proposer_solver.py::test_the_proposer_is_paid_for_the_rate_of_right_answers",
        ),
    ),
    *mutants(
        "legos_envs/tasks/problems/spice.py",
        f"{E}/test_spice.py::test_variance_reward_by_hand {E}/test_spice.py::test_rewards",
        (
            "spice-certain-is-best",
            "-((rate * (1 - rate) - 0.25) ** 2)",
            "-((rate * (1 - rate)) ** 2)",
            "questions that everybody answers are paid",
        ),
        (
            "spice-bad-question-free",
            "self.bad_question_reward if rate is None else",
            "0.0 if rate is None else",
            "bad questions cost nothing",
            f"{E}/test_spice.py::test_bad_questions_cost_and_nobody_is_asked",
        ),
    ),
    *mutants(
        "legos_envs/tasks/problems/ensemble_vote.py",
        f"{E}/test_ensemble_vote.py",
        ("vote-minority-paid", "else i in voted[0]", "else i not in voted[0]", "outliers are paid"),
        ("vote-without-penalty", "1.0 if paid else -self.penalty", "1.0 if paid else 0.0", "penalty does nothing"),
    ),
    *mutants(
        "legos_envs/tasks/problems/self_distillation.py",
        f"{E}/test_self_distillation.py",
        (
            "verifier-paid-for-yes",
            "float(right is not None and accepted == right)",
            "float(right is not None and accepted)",
            "a verifier that accepts all is paid",
        ),
        (
            "generator-paid-when-wrong",
            "float(bool(kept) and right is not False)",
            "float(bool(kept))",
            "fooling the verifier pays",
        ),
        (
            "generator-paid-by-verdict",
            "float(bool(kept) and right is not False)",
            "float(accepted and right is not False)",
            "a verifier that rejects everything stops generators from learning",
        ),
    ),
    *mutants(
        "legos_envs/tasks/problems/dataset.py",
        f"{E}/test_dataset.py::test_rewards",
        (
            "dataset-pays-all",
            'table.reward("solver_0", scores.total)',
            'table.reward("solver_0", 1.0)',
            "any answer is paid",
        ),
    ),
    *mutants(
        "legos_envs/tasks/argument/debate.py",
        f"{E}/test_debate.py::test_rewards_follow_the_verdict",
        (
            "debate-loser-paid",
            'table.reward("pro_0", verdict)\n        table.reward("con_0", -verdict)',
            'table.reward("pro_0", -verdict)\n        table.reward("con_0", verdict)',
            "the loser is paid",
        ),
    ),
    *mutants(
        "legos_envs/tasks/argument/proof_verification.py",
        f"{E}/test_proof_verification.py::test_the_table_of_rewards",
        (
            "prover-paid-when-caught",
            "1.0 if accepted and not valid else -1.0",
            "1.0 if not valid else -1.0",
            "a sneaky prover that is caught is paid",
        ),
        ("verifier-paid-always", "1.0 if right else -1.0", "1.0", "a verifier that is wrong is paid"),
    ),
    *mutants(
        "legos_envs/tasks/argument/refine_loop.py",
        f"{E}/test_refine_loop.py::test_rewards_by_hand",
        (
            "refine-worse-is-better",
            "self.improvement_weight * (final - first)",
            "self.improvement_weight * (first - final)",
            "a bad first draft pays",
        ),
        (
            "refine-share-ignored",
            "final + improvement * self.share_improvement)",
            "final + improvement)",
            "a bad first draft pays the generator",
            f"{E}/test_refine_loop.py::test_a_bad_first_draft_does_not_pay_the_generator_unless_asked_for",
        ),
    ),
    *mutants(
        "legos_envs/tasks/contests/matches.py",
        f"{E}/test_matches.py",
        (
            "void-match-keeps-pay",
            "                    here.reward(seat, -paid)\n",
            "                    pass\n",
            "a match without a verdict has paid",
            f"{E}/test_matches.py::test_a_match_whose_judge_fails_is_void_and_takes_back_what_it_paid",
        ),
        (
            "forfeit-scores",
            "return float(not out[i])",
            "return 0.5",
            "who forfeits has drawn",
            f"{E}/test_matches.py::test_scores",
        ),
    ),
    *mutants(
        "legos_envs/tasks/contests/tournament.py",
        f"{E}/test_tournament.py::test_prizes_by_hand {E}/test_tournament.py::test_prizes_of_a_bracket_add_up_to_nothing {E}/test_tournament.py::test_a_worse_seed_that_wins_goes_on",
        (
            "last-gets-the-prize",
            "self.prize * (1 - 2 * place / (len(places) - 1))",
            "self.prize * (2 * place / (len(places) - 1) - 1)",
            "the last one gets the prize",
            "tests/envs/test_tournament.py::test_prizes_by_hand",
        ),
        (
            "loser-goes-on",
            "return worst if lost else best",
            "return best if lost else worst",
            "the loser plays the next round",
            "tests/envs/test_tournament.py::test_a_worse_seed_that_wins_goes_on",
        ),
    ),
    *mutants(
        "legos_envs/tasks/contests/elo_arena.py",
        f"{E}/test_elo_arena.py::test_elo_in_the_order_of_the_schedule {E}/test_elo_arena.py::test_void_matches_and_double_forfeits_are_not_rated",
        (
            "elo-rates-void-matches",
            "rated = [result for result in results if result.rated]",
            "rated = list(results)",
            "double forfeits are rated",
        ),
        (
            "elo-start-ignored",
            "ratings=start)\n            return",
            "ratings={})\n            return",
            "option start does nothing",
            f"{E}/test_elo_arena.py::test_ratings_are_carried_on",
        ),
    ),
    *mutants(
        "legos_envs/tasks/together/amplification.py",
        f"{E}/test_amplification.py::test_questions_cost_and_a_helper_that_learns_is_paid_without_the_cost",
        (
            "questions-are-free",
            "worth + process - self.question_cost * len(asked)",
            "worth + process",
            "question_cost does nothing",
        ),
        (
            "helper-pays-for-questions",
            'table.reward("helper_0", worth)',
            'table.reward("helper_0", worth - self.question_cost * len(asked))',
            "the helper pays for being asked",
        ),
        (
            "asking-pays-by-itself",
            "(numbers & said).total() / numbers.total()",
            "min(1.0, said.total() / numbers.total())",
            "any numbers are those of the question",
            f"{E}/test_amplification.py::test_what_is_passed_on_to_the_helper_can_be_paid_for",
        ),
    ),
    *mutants(
        "legos_envs/tasks/together/plan_execute.py",
        f"{E}/test_plan_execute.py::test_all_are_paid_for_the_end_and_two_for_the_improvement",
        (
            "planner-paid-for-improvement",
            'if role in ("critic", "reviser") else 0.0',
            "",
            "a bad plan pays the planner",
        ),
    ),
    *mutants(
        "legos_envs/tasks/code/code_gen.py",
        f"{E}/test_code_gen.py::test_the_tester_is_paid_for_right_tests_times_programs_caught",
        (
            "tester-paid-for-wrong-tests",
            "right / len(tests) * caught",
            "caught",
            "tests that reject right programs are paid",
        ),
        (
            "coder-paid-for-any-call",
            "passed = sum(map(same, results, expected)) / len(expected)",
            "passed = float(any(map(same, results, expected)))",
            "one call in many is enough",
            f"{E}/test_code_gen.py::test_the_coder_is_paid_by_the_hidden_calls",
        ),
    ),
    *mutants(
        "legos_envs/tasks/code/red_blue.py",
        f"{E}/test_red_blue.py::test_the_guess",
        (
            "red-blue-sides-swapped",
            "value = 1 if won else -1",
            "value = -1 if won else 1",
            "the side that lost is paid",
        ),
    ),
    *mutants(
        "legos_envs/scoring/judging.py",
        f"{E}/test_judging.py",
        (
            "judge-asked-once",
            "for order in ((0, 1), (1, 0)):",
            "for order in ((0, 1), (0, 1)):",
            "a judge that prefers the first place decides",
        ),
        (
            "disagreement-is-a-win",
            "return 0 if votes[0] != votes[1] else 1 if votes[0] == 0 else -1",
            "return 1 if votes[0] == 0 else -1",
            "the first vote decides",
        ),
        (
            "grade-not-divided",
            "return int(reply) / best",
            "return float(int(reply))",
            "grades are not shares",
            f"{E}/test_refine_loop.py::test_the_judge_grades_first_and_last_alone_in_new_conversations",
        ),
    ),
]
