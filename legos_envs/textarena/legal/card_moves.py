"""Legal actions of card and dice games."""

from __future__ import annotations

from typing import Any

from legos_envs.textarena.legal.listing import Moves, listed, state_of


@listed("KuhnPokerEnv")
def _kuhn_poker(game: Any) -> Moves:
    return list(state_of(game)["current_legal_action_tree"])


@listed("LiarsDiceEnv")
def _liars_dice(game: Any) -> Moves:
    """Quantities stop at the number of dice in play."""
    facts = state_of(game)
    quantity, face = facts["current_bid"]["quantity"], facts["current_bid"]["face_value"]
    dice = sum(facts["remaining_dice"].values())
    bids = [
        f"Bid: {q}, {f}"
        for q in range(max(quantity, 1), dice + 1)
        for f in range(max(face, 1), 7)
        if (q, f) != (quantity, face)
    ]
    return [*bids, "Call"] if quantity and facts["last_bidder_id"] is not None else bids


@listed("PigDiceEnv")
def _pig_dice(game: Any) -> Moves:
    return ["roll", "hold"]


@listed("BlackjackEnv")
def _blackjack(game: Any) -> Moves:
    return ["Hit", "Stand"]


@listed("BriscolaEnv")
def _briscola(game: Any) -> Moves:
    hand = state_of(game)["players"][game.state.current_player_id]["hand"]
    return [f"play {k + 1}" for k in range(len(hand))]


@listed("GermanWhistEnv")
def _german_whist(game: Any) -> Moves:
    player = game.state.current_player_id
    hand = state_of(game)["players"][player]["hand"]
    return [f"play {k + 1}" for k, card in enumerate(hand) if game._is_valid_play(player, card)]


@listed("GameOfPureStrategyEnv", "ThreePlayerGOPSEnv")
def _pure_strategy(game: Any) -> Moves:
    return [game._val_to_face(card) for card in state_of(game)["player_hands"][game.state.current_player_id]]


@listed("HighSocietyEnv")
def _high_society(game: Any) -> Moves:
    return [str(card) for card in state_of(game)["player_money"][game.state.current_player_id]]


@listed("GolfEnv")
def _golf(game: Any) -> Moves:
    facts = state_of(game)
    if facts["turn_phase"] == "draw":
        return ["draw", "take"] if facts["discard_pile"] else ["draw"]
    swaps = [f"swap {r + 1} {c + 1}" for r in range(game.num_rows) for c in range(game.num_columns)]
    return swaps if facts.get("took_from_discard") else [*swaps, "discard"]


@listed("SpiteAndMaliceEnv")
def _spite_and_malice(game: Any) -> Moves:
    me = game.players[game.state.current_player_id]
    tops = [pile[-1] for pile in (me["payoff"], *me["discard"]) if pile]
    plays = [
        f"play {card} {k}"
        for card in dict.fromkeys([*me["hand"], *tops])
        for k, pile in enumerate(game.center_piles)
        if game._can_play_on_center(card, pile)
    ]
    return [*plays, *(f"discard {card} {k}" for card in dict.fromkeys(me["hand"]) for k in range(4)), "draw"]


@listed("UltimateTexasHoldemEnv")
def _ultimate_texas_holdem(game: Any) -> Moves:
    return list(state_of(game)["legal_actions"])


@listed("ThreeCardMonteEnv")
def _monte(game: Any) -> Moves:
    return map(str, range(game.num_cups))
