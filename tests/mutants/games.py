"""Mistakes in games, in their rules' machinery, and in the exact truth about them."""

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
        "legos_envs/table/table.py",
        f"{E}/test_text_env_mistakes.py::test_rewards_of_the_spiral_preset_and_of_three_players",
        (
            "forfeit-pays-nobody",
            "gained = -env.invalid_reward * (offences / among)",
            "gained = 0.0",
            "a forfeit is not a zero-sum end",
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
        "legos_envs/text_env/running.py",
        f"{E}/test_text_env.py {E}/test_text_env_mistakes.py",
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
]
