"""Mistakes in what envs pay and whom they ask, in every family."""

from __future__ import annotations

from tests.mutants.mutant import mutants

E = "tests/envs"

MUTANTS = [
    *mutants(
        "legos_envs/games/kuhn_poker.py",
        f"{E}/test_kuhn_poker.py",
        ("kuhn-call-costs-one", 'chips = 2.0 if moves[-1] == "call" else 1.0', "chips = 1.0", "a called bet is free"),
        (
            "kuhn-folder-wins",
            "first_wins = len(moves) % 2 == 0 if",
            "first_wins = len(moves) % 2 == 1 if",
            "who folds wins",
        ),
        ("kuhn-low-card-wins", "else cards[0] > cards[1]", "else cards[0] < cards[1]", "the lower card wins"),
        (
            "kuhn-match-of-one-seat",
            "chips[seats[player]] += won",
            "chips[player] += won",
            "chips go to the wrong player after the first round",
        ),
    ),
    *mutants(
        "legos_envs/games/leduc_poker.py",
        f"{E}/test_leduc_poker.py::test_payoffs {E}/test_leduc_poker.py::test_published_values",
        (
            "leduc-no-pairs",
            "(state.cards[i] == state.cards[2], state.cards[i])",
            "(False, state.cards[i])",
            "a pair is worth nothing",
        ),
        (
            "leduc-winner-gets-own",
            "paid(state.first, state.second)[1 - winner]",
            "paid(state.first, state.second)[winner]",
            "the winner gets what he paid himself",
        ),
    ),
    *mutants(
        "legos_envs/games/tic_tac_toe.py",
        f"{E}/test_tic_tac_toe.py::test_rewards",
        (
            "tictactoe-second-wins",
            "(1.0, -1.0) if winner == 0 else (-1.0, 1.0)",
            "(-1.0, 1.0) if winner == 0 else (1.0, -1.0)",
            "three in a row lose",
        ),
    ),
    *mutants(
        "legos_envs/games/connect_four_board.py",
        f"{E}/test_connect_four.py::test_rewards {E}/test_connect_four.py::test_lines_are_those_of_the_board",
        (
            "connect-four-one-diagonal",
            "(1, self.rows, self.rows + 1, self.rows + 2)",
            "(1, self.rows, self.rows + 1)",
            "one diagonal does not count",
        ),
        (
            "connect-four-wrong-sign",
            "float(first) - float(second), float(second) - float(first)",
            "float(second) - float(first), float(first) - float(second)",
            "four in a row lose",
        ),
    ),
    *mutants(
        "legos_envs/games/nim.py",
        f"{E}/test_nim.py",
        (
            "nim-always-misere",
            "winner = 1 - last if self.misere else last",
            "winner = 1 - last",
            "the last one loses always",
        ),
        (
            "nim-take-one-more",
            "range(1, min(cap, state[0][0]) + 1)",
            "range(1, min(cap, state[0][0]))",
            "the last object cannot be taken",
        ),
    ),
    *mutants(
        "legos_envs/games/pig_dice.py",
        f"{E}/test_pig_dice.py::test_one_turn_by_hand {E}/test_pig_dice.py::test_the_last_round_decides_by_the_higher_score",
        (
            "pig-low-score-wins",
            "float(scores[0] > scores[1]) - float(scores[0] < scores[1])",
            "float(scores[0] < scores[1]) - float(scores[0] > scores[1])",
            "fewer points win",
        ),
        (
            "pig-hold-scores-nothing",
            "                scores[player] += total\n                return",
            "                return",
            "points are lost by holding",
        ),
    ),
    *mutants(
        "legos_envs/games/liars_dice_round.py",
        f"{E}/test_liars_dice.py::test_who_loses_a_round",
        (
            "liar-exact-bid-is-false",
            "if matching_dice >= quantity else",
            "if matching_dice > quantity else",
            "an exactly true bid loses",
        ),
        (
            "liar-no-wilds",
            "matching = (face, self.faces) if self.wild else (face,)",
            "matching = (face,)",
            "wild dice do not count",
        ),
    ),
    *mutants(
        "legos_envs/games/liars_dice.py",
        f"{E}/test_liars_dice.py::test_one_die_is_lost_a_round_until_one_player_is_left",
        (
            "liar-first-out-wins",
            "return (2 * rank - steps) / steps",
            "return (steps - 2 * rank) / steps",
            "who is out first wins",
        ),
    ),
    *mutants(
        "legos_envs/games/simple_negotiation.py",
        f"{E}/test_simple_negotiation.py::test_a_game_by_hand",
        (
            "negotiation-loser-paid",
            "float(first > second) - float(first < second)",
            "float(first < second) - float(first > second)",
            "the smaller gain wins",
        ),
    ),
    *mutants(
        "legos_envs/games/negotiation.py",
        f"{E}/test_negotiation.py::test_ranks_are_zero_sum_and_fair {E}/test_negotiation.py::test_losses_are_negative_and_winning_is_by_share",
        (
            "ranks-reversed",
            "sum(other < score for other in scores) - sum(other > score for other in scores)",
            "sum(other > score for other in scores) - sum(other < score for other in scores)",
            "the smallest gain ranks first",
        ),
        (
            "gain-weight-ignored",
            'self.weights["gain"] * value + common',
            "value + common",
            "the weight of the gain does nothing",
            f"{E}/test_negotiation.py::test_efficiency_and_fairness_can_be_paid",
        ),
    ),
    *mutants(
        "legos_envs/games/matrix_game.py",
        f"{E}/test_matrix_game.py",
        (
            "matrix-players-swapped",
            "return self.payoffs[0][i][j], self.payoffs[1][i][j]",
            "return self.payoffs[1][i][j], self.payoffs[0][i][j]",
            "each gets what the other should",
        ),
        (
            "matrix-last-round-only",
            "return sum(p[0] for p in paid), sum(p[1] for p in paid)",
            "return paid[-1]",
            "only the last round is paid",
        ),
    ),
    *mutants(
        "legos_envs/games/allocation.py",
        f"{E}/test_allocation.py",
        (
            "pareto-better-is-optimal",
            "Verdict(not better.any(), gap",
            "Verdict(bool(better.any()), gap",
            "what can be improved is called optimal",
        ),
    ),
    *mutants(
        "legos_envs/tasks/problems/proposer_solver.py",
        f"{E}/test_proposer_solver.py",
        (
            "proposer-paid-for-wrong-answers",
            '"played" if right else "wrong_answer"',
            '"played"',
            "a wrong key is a hard problem",
            f"{E}/test_proposer_solver.py::test_worthless_problems_earn_nothing_and_nobody_is_asked",
        ),
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
            "proposer-rate-inverted",
            "table.reward(proposer, self.pays(rate))",
            "table.reward(proposer, self.pays(1 - rate))",
            "too easy is too hard",
            f"{E}/test_proposer_solver.py::test_rewards",
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
        f"{E}/test_self_distillation.py::test_every_branch_of_the_rewards",
        (
            "verifier-paid-for-yes",
            "float(right is not None and accepted == right)",
            "float(right is not None and accepted)",
            "a verifier that accepts all is paid",
        ),
        (
            "generator-paid-when-wrong",
            "float(accepted and right is not False)",
            "float(accepted)",
            "fooling the verifier pays",
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
        ),
        (
            "loser-goes-on",
            "return worst if lost else best",
            "return best if lost else worst",
            "the loser plays the next round",
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
            "ratings begin anew",
            f"{E}/test_elo_arena.py::test_ratings_are_carried_on",
        ),
    ),
    *mutants(
        "legos_envs/tasks/together/amplification.py",
        f"{E}/test_amplification.py::test_questions_cost_and_a_helper_that_learns_is_paid_without_the_cost",
        ("questions-are-free", "worth - self.question_cost * len(asked)", "worth", "question_cost does nothing"),
        (
            "helper-pays-for-questions",
            'table.reward("helper_0", worth)',
            'table.reward("helper_0", worth - self.question_cost * len(asked))',
            "the helper pays for being asked",
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
    *mutants(
        "legos_envs/table/table.py",
        f"{E}/test_text_env.py::test_rewards_of_the_spiral_preset_and_of_three_players",
        (
            "forfeit-pays-nobody",
            "gained = -env.invalid_reward * (offences / among)",
            "gained = 0.0",
            "a forfeit is no zero-sum end",
        ),
        (
            "forfeit-is-free",
            "(env.invalid_reward if agent in offenders else 0.0) + gains",
            "0.0 + gains",
            "an invalid move costs nothing",
        ),
        (
            "penalty-forgotten",
            "            self.env._pay(offender, self.env.invalid_reward)\n",
            "",
            "silence costs nothing",
            f"{E}/test_proposer_solver.py::test_a_silent_solver_pays_alone_and_counts_as_not_right",
        ),
    ),
    *mutants(
        "legos_envs/text_env.py",
        f"{E}/test_text_env.py",
        (
            "rewards-overwrite",
            "self.rewards[agent] += value",
            "self.rewards[agent] = value",
            "of two payments in a step one is lost",
        ),
    ),
    *mutants(
        "legos_envs/parsing.py",
        f"{E}/test_parsing.py",
        (
            "thoughts-count",
            'text = text.rpartition("</think>")[2]',
            'text = text.partition("</think>")[2]',
            "private thought becomes public",
        ),
        (
            "unclosed-thought-is-public",
            'return text.partition("<think>")[0].strip()',
            "return text.strip()",
            "an unclosed thought is read",
        ),
        ("first-action-counts", 'end = text.rfind("]")', 'end = text.find("]")', "the first bracket counts"),
    ),
    *mutants(
        "legos_envs/exact/solve.py",
        f"{E}/test_exact.py",
        (
            "worst-response",
            "if total > best_value + TIE:",
            "if total < best_value - TIE or move == 0:",
            "the response is the worst",
        ),
        (
            "nash-conv-of-one",
            "for player in range(graph.num_players))",
            "for player in range(1))",
            "only the first player's gain counts",
        ),
    ),
    *mutants(
        "legos_envs/scoring/answers.py",
        f"{E}/test_answers.py::test_same_number {E}/test_answers.py::test_other_numbers",
    ),
]
