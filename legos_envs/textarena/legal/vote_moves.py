"""Legal actions in matrix games, votes and other choices from a short list."""

from __future__ import annotations

from typing import Any

from legos_envs.textarena.legal.listing import Moves, listed, state_of


@listed("IteratedMatchingPenniesEnv")
def _pennies(game: Any) -> Moves:
    return ["heads", "tails"]


@listed("IteratedRockPaperScissorsEnv")
def _rock_paper_scissors(game: Any) -> Moves:
    return ["rock", "paper", "scissors"]


@listed("IteratedPrisonersDilemmaEnv")
def _dilemma(game: Any) -> Moves:
    return ["Cooperate", "Defect"] if state_of(game)["phase"] == "decision" else None


@listed("IteratedStagHuntEnv")
def _stag_hunt(game: Any) -> Moves:
    return ["Stag", "Hare"] if state_of(game)["phase"] == "decision" else None


@listed("PublicGoodsGameEnv")
def _public_goods(game: Any) -> Moves:
    return map(str, range(state_of(game)["endowment"] + 1)) if state_of(game)["phase"] == "decision" else None


@listed("MarketEntryGameEnv")
def _market_entry(game: Any) -> Moves:
    return ["E", "S"] if state_of(game)["phase"] == "decision" else None


@listed("IteratedUltimatumGameEnv")
def _ultimatum(game: Any) -> Moves:
    facts = state_of(game)
    if facts["phase"] == "responding":
        return ["Accept", "Reject"]
    return [f"Offer: ${k}" for k in range(facts["pool"] + 1)]


@listed("TruthAndDeceptionEnv")
def _truth(game: Any) -> Moves:
    return ["Fact 1", "Fact 2"] if game.state.turn == game.state.max_turns - 1 else None


@listed("SecretMafiaEnv")
def _mafia(game: Any) -> Moves:
    """The targets that the prompt names; TextArena takes any player who is alive."""
    alive, me = state_of(game)["alive_players"], game.state.current_player_id
    if game.phase.name == "DAY_DISCUSSION":
        return None
    if game.phase.name == "NIGHT_MAFIA":
        return [str(p) for p in alive if game.player_roles[p] != "Mafia"]
    return [str(p) for p in alive if p != me or game.phase.name == "DAY_VOTING"]


@listed("CharacterConclaveEnv")
def _conclave(game: Any) -> Moves:
    if state_of(game)["phase"] == "discussion":
        return None
    return [str(p) for p in range(game.state.num_players) if p != game.state.current_player_id]


@listed("SettlersOfCatanEnv")
def _catan(game: Any) -> Moves:
    phase = state_of(game)["turn_phase"]
    if phase == "negotiation_start":
        out = state_of(game)["eliminated_players"]
        return [str(p) for p in range(game.state.num_players) if p != game.state.current_player_id and p not in out]
    return map(str, range(1, len(game.game_moves) + 1)) if phase == "action" else None


@listed("SnakeEnv", "SurroundEnv")
def _directions(game: Any) -> Moves:
    return ["up", "down", "left", "right"]


@listed("ChopsticksEnv")
def _chopsticks(game: Any) -> Moves:
    hands = state_of(game)["hands"]
    mine, other = hands[game.state.current_player_id], hands[1 - game.state.current_player_id]
    attacks = [f"attack {i} {j}" for i in (0, 1) for j in (0, 1) if mine[i] and other[j]]
    splits = [f"split {k} {sum(mine) - k}" for k in range(sum(mine) + 1) if [k, sum(mine) - k] != mine]
    return attacks + splits


@listed("NimEnv")
def _nim(game: Any) -> Moves:
    return [f"{pile} {k}" for pile, size in enumerate(state_of(game)["piles"]) for k in range(1, size + 1)]
