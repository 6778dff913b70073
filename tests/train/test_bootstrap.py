"""The recipe of the bundled model, and what the shipped model does: plays all legal moves alike and sees its card."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten
from tokenizers import Tokenizer

import inference
import legos_envs
from inference.forward import fastblas
from inference.text import Renderer
from legos_envs import exact
from legos_envs.parsing import action
from legos_train.bootstrap import bootstrap, measure, pretrain, pretraining_loss, sentences, texts
from legos_train.bootstrap import training_rows as rows
from legos_train.bootstrap.texts import Dialogue, Exchange
from legos_train.bootstrap.tokenizer import ChatEncoder, train_tokenizer
from legos_train.cli.main import main
from legos_train.evaluation import exact_values
from legos_train.rollout.players import ModelPlayer

TINY = Path(inference.__file__).parent / "models" / "tiny"
ENVS = [(label, env) for label, env in measure.solvable()]


@pytest.fixture(scope="module")
def tiny() -> ModelPlayer:
    return measure.load(TINY)


def load(folder: Path) -> tuple[Any, ChatEncoder]:
    """The bare model of a folder, and the encoder of its tokenizer."""
    fastblas.enable()
    mx.disable_compile()  # on the CPU it compiles C++ for every new shape
    return mlx_lm.load(str(folder))[0], ChatEncoder(Tokenizer.from_file(str(folder / "tokenizer.json")))


# --- the shipped model -----------------------------------------------------------------------------------------------


@pytest.mark.quick(4)
@pytest.mark.parametrize("env", [pytest.param(env, id=label) for label, env in ENVS])
def test_in_every_information_set_it_plays_legal_moves_and_all_of_them_alike(tiny: Any, env: Any) -> None:
    sets = exact.info_sets(env.game)
    got = measure.evenness(tiny, env, sets[:: max(1, len(sets) // 200)])
    assert got.illegal_max < 0.01
    assert got.kl_mean < 0.01 and got.kl_max < 0.05


@pytest.mark.slow
def test_in_all_positions_of_tic_tac_toe_it_plays_legal_moves(tiny: Any) -> None:
    got = measure.evenness(tiny, legos_envs.make("TicTacToe-v0").unwrapped)
    assert got.info_sets == 4520
    assert got.illegal_max < 0.01


@pytest.mark.parametrize("env_id", ["KuhnPoker-v0", "Nim-v0"])
def test_boxed_answers_are_legal_too(tiny: Any, env_id: str) -> None:
    got = measure.evenness(tiny, legos_envs.make(env_id, action_format="boxed").unwrapped)
    assert got.illegal_max < 0.02


def test_kuhn_poker_starts_from_uniform_play(tiny: Any) -> None:
    env = legos_envs.make("KuhnPoker-v0").unwrapped
    table, _ = exact_values.action_probabilities(env, [tiny] * 2, exact.info_sets(env.game))
    assert exact.nash_conv(env.game, lambda infoset: table[infoset]) == pytest.approx(0.9167, abs=0.06)


@pytest.mark.slow
def test_the_card_can_be_learned_from() -> None:
    """A base that cannot see its card fails here: without the card the best loss is 0.47."""
    env = legos_envs.make("KuhnPoker-v0").unwrapped
    model, encoder = load(TINY)
    sets = exact.info_sets(env.game)
    batch = rows.collate([_best_move_row(encoder, env, infoset) for infoset in sets])
    model.freeze()
    model.layers[1].unfreeze()  # what it needs must be there already: only the last block may change
    optimizer = pretrain.AdamW(learning_rate=1e-3)
    step = nn.value_and_grad(model, pretraining_loss.batch_loss)
    for _ in range(40):
        (loss, _), gradients = step(model, batch)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state, loss)
    assert loss.item() < 0.05


@pytest.mark.slow
def test_the_board_can_be_read_where_the_move_is_chosen() -> None:
    """Linearly, from the state that the move is read off. A base that only copied the free numbers got 0.74 to 0.88."""
    env = legos_envs.make("TicTacToe-v0").unwrapped
    model, encoder = load(TINY)
    sets = exact.info_sets(env.game)
    sets = [sets[i] for i in np.random.default_rng(0).choice(len(sets), 900, replace=False)]
    prompts = [encoder.prompt(env.observation_in(one)["messages"]) + encoder.text("[") for one in sets]
    hidden = np.concatenate([np.array(model.model(mx.array(prompts[i : i + 100]))[:, -1]) for i in range(0, 900, 100)])
    boards = [one.view.partition("Board: ")[2].split() for one in sets]
    inputs = np.hstack([hidden, np.ones((900, 1))])
    for_cell = []
    for cell in range(9):
        state = np.array([{"X": 0, "O": 1}.get(board[cell], 2) for board in boards])
        fitted = np.linalg.lstsq(inputs[:600], np.eye(3)[state[:600]], rcond=None)[0]
        for_cell.append(np.mean((inputs[600:] @ fitted).argmax(1) == state[600:]))
    assert min(for_cell) > 0.9


def _best_move_row(encoder: ChatEncoder, env: Any, infoset: Any) -> rows.DialogueRow:
    nash = exact.nash(env.game)(infoset)
    prompt = encoder.prompt(env.observation_in(infoset)["messages"])
    bracket = encoder.text("[")
    (first,) = {encoder.reply(f"[{move}]")[0] for move in infoset.legal}
    assert bracket == [first]
    target = {encoder.reply(f"[{move}]")[1]: p for move, p in nash.items() if p > 0}
    return rows.DialogueRow([*prompt, first], [rows.Site(len(prompt), target, rows.REPLY)])


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dialogues() -> list[Dialogue]:
    return list(itertools.islice(texts.stream(5), 1500))


def test_the_stream_is_a_function_of_its_seed(dialogues: list[Dialogue]) -> None:
    assert dialogues == list(itertools.islice(texts.stream(5), 1500))
    assert dialogues[:50] != list(itertools.islice(texts.stream(6), 50))


def test_its_games_are_read_in_both_memories_and_formats(dialogues: list[Dialogue]) -> None:
    assert set(texts.GAMES) < {dialogue.source for dialogue in dialogues}
    listed = [e for d in dialogues for e in d.exchanges if e.legal]
    assert all(e.reply in e.legal for e in listed if e.legal)
    assert any(e.reply.startswith("\\boxed{") for e in listed) and any(e.reply.startswith("[") for e in listed)
    assert any(len(d.exchanges) > 1 for d in dialogues)
    assert all(d.result and "Result: " in d.result for d in dialogues if d.source in texts.GAMES)
    assert any("Invalid move" in e.prompt for d in dialogues for e in d.exchanges)


def test_shares_are_kept_in_rows(dialogues: list[Dialogue]) -> None:
    counts = {name: sum(d.source == name for d in dialogues) for name in {d.source for d in dialogues}}
    assert counts["TicTacToe-v0"] / counts["Nim-v0"] == pytest.approx(7.5, rel=0.1)


def test_the_result_is_the_agents_return() -> None:
    rng = Random(2)
    seen = set()
    for _ in range(60):
        for row in texts.random_play("KuhnPoker-v0", rng):
            prompt, reply, legal, *_ = row.exchanges[-1]
            if action(reply) == "fold" and legal and len(row.exchanges) == 1 and "Round" not in prompt:
                assert row.result == "Result: -1"
            seen.add(str(row.result).rpartition("Result: ")[2])
    assert {"+1", "-1", "+2", "-2"} <= seen


def test_an_env_without_a_legal_list_is_read_as_text() -> None:
    class Talk(legos_envs.TextEnv):
        name = "TalkForTest-v0"
        seats = {"a": legos_envs.Seat("a")}

        def play(self, table: legos_envs.Table) -> Any:
            yield from table.ask("a", "Say something.")
            table.reward("a", 0.5)

    legos_envs.register("TalkForTest-v0", Talk)
    for seed in range(5):
        (row,) = texts.random_play("TalkForTest-v0", Random(seed))
        assert row.exchanges[0].legal is None and row.result == "Result: +0.5"


def test_word_problems_are_answered_right() -> None:
    rng = Random(0)
    for _ in range(200):
        question, answer = sentences.word_problem(rng)
        numbers = [int(word) for word in "".join(c if c.isdigit() else " " for c in question).split()]
        got = int("".join(c for c in answer if c.isdigit()))
        assert got in {sum(numbers), numbers[0] - numbers[1], numbers[0] * numbers[1], numbers[0] // numbers[1]}


def test_no_slot_is_left_open() -> None:
    rng = Random(1)
    said = " ".join(sentences.sentence(rng) for _ in range(500))
    assert not sentences._SLOT.search(said)


# --- rows ------------------------------------------------------------------------------------------------------------


def test_uniform_targets_by_hand() -> None:
    # three replies: 1 2 9, 1 3 9, 1 3 4 9. After 1, two of three go on with 3; after 1 3, half with 9.
    replies = [[1, 2, 9], [1, 3, 9], [1, 3, 4, 9]]
    targets = rows.uniform_targets(replies, [1, 3, 4, 9])
    assert targets == [{1: 1.0}, {2: pytest.approx(1 / 3), 3: pytest.approx(2 / 3)}, {9: 0.5, 4: 0.5}, {9: 1.0}]
    with pytest.raises(ValueError, match=r"\[1, 9\] is not among the 3 legal"):
        rows.uniform_targets(replies, [1, 9])


@pytest.fixture(scope="module")
def encoder(dialogues: list[Dialogue]) -> ChatEncoder:
    return ChatEncoder(train_tokenizer((text for d in dialogues for text in d.texts()), 600))


def test_a_row_predicts_each_token_of_reply_and_result_and_never_an_illegal_reply(encoder: ChatEncoder) -> None:
    told = Dialogue("x", (Exchange("Go [a] [b]", "[c]", ()), Exchange("Again", "[a]", ("[a]", "[b]"))), "Result: +1")
    row = rows.make_row(told, encoder, Random(0))
    tokens = row.tokens
    for site in row.sites:
        if site.kind != rows.REPLY or len(site.target) == 1:
            assert tokens[site.at + 1] in site.target
    replied = [tokens[site.at + 1] for site in row.sites if site.kind == rows.REPLY]
    assert replied == encoder.reply("[a]")
    branches = [site.target for site in row.sites if site.kind == rows.REPLY and len(site.target) == 2]
    assert branches == [{encoder.reply("[a]")[1]: 0.5, encoder.reply("[b]")[1]: 0.5}]
    assert [tokens[s.at + 1] for s in row.sites if s.kind == rows.RESULT] == encoder.reply("Result: +1")
    illegal = encoder.reply("[c]")[1]
    assert illegal not in [token for site in row.sites for token in site.target]


def test_recalled_tokens_are_those_before_the_end_of_the_prompt(encoder: ChatEncoder) -> None:
    said = Dialogue("x", (Exchange("You are X. Board: 1 O 3", "[1]", ("[1]", "[3]")),), recall=6)
    row = rows.make_row(said, encoder, Random(0))
    prompt = encoder.text("You are X. Board: 1 O 3")
    recalled = [(site.at, site.target, site.reader) for site in row.sites if site.kind == rows.RECALL]
    assert sorted(back for _, _, back in recalled) == [1, 2, 3, 4, 5, 6]
    assert all(target == {prompt[-back]: 1.0} for _, target, back in recalled)
    assert {row.tokens[at] for at, _, _ in recalled} == {encoder.text("[")[0]}, "not where the move is chosen"


def test_rows_are_the_tokens_that_the_renderer_gives(dialogues: list[Dialogue]) -> None:
    from transformers import AutoTokenizer

    renderer = Renderer(AutoTokenizer.from_pretrained(TINY))
    encoder = ChatEncoder(Tokenizer.from_file(str(TINY / "tokenizer.json")))
    for dialogue in dialogues[::50]:
        row = rows.make_row(dialogue, encoder, Random(0))
        messages = [{"role": "user", "content": dialogue.exchanges[0].prompt}]
        prompt = renderer.start(messages, dialogue.system)
        assert tuple(row.tokens[: len(prompt)]) == prompt
        assert encoder.prompt(messages) == list(renderer.start(messages))


def test_the_loss_of_a_batch_is_that_of_its_rows_one_by_one(dialogues: list[Dialogue], encoder: ChatEncoder) -> None:
    rng = Random(0)
    some = [rows.make_row(d, encoder, rng) for d in rng.sample(dialogues, 16)]
    batch = rows.collate(some)
    assert any(part.prefix > 10 for part in batch.parts), "nothing is shared, so this tests too little"
    model = pretrain.new_model(pretrain.model_config(600), 0)
    readers = pretraining_loss.Readers(model, 15, 0)
    _, divergence = pretraining_loss.batch_loss(readers, batch)
    got = float(np.array(divergence)[batch.kinds != rows.PROMPT].sum())
    wanted = 0.0
    for row in some:
        hidden = model.model(mx.array([row.tokens]))[0]
        for at, target, kind, reader, _ in row.sites:
            if kind != rows.PROMPT:
                seen = hidden[at] @ readers.readers[reader - 1] if reader >= 0 else hidden[at]
                logits = np.array(model.model.embed_tokens.as_linear(seen)).astype(np.float64)
                logprobs = logits - np.log(np.exp(logits).sum())
                wanted += sum(p * (np.log(p) - logprobs[token]) for token, p in target.items())
    assert got == pytest.approx(wanted, rel=1e-4)
    by_kind = [float(batch.weights[batch.kinds == kind].sum()) for kind in range(len(rows.KINDS))]
    there = [weight * (batch.kinds == kind).any() for kind, weight in enumerate(rows.KIND_WEIGHTS)]
    assert by_kind == pytest.approx(there, rel=1e-4)


# --- the recipe ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_three_steps_make_a_folder_that_loads_and_the_same_bytes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legos_train.bootstrap.recipe.TOKENIZER_DIALOGUES", 600)
    seen: list[int] = []
    first = bootstrap(tmp_path / "a", steps=3, seed=4, progress=lambda step, steps, losses: seen.append(step))
    second = bootstrap(tmp_path / "b", steps=3, seed=4, progress=False)
    assert seen == [1, 2, 3]
    names = sorted(path.name for path in first.iterdir())
    assert names == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    model, encoder = load(first)
    fresh = pretrain.new_model(json.loads((first / "config.json").read_text()), 4)
    moved = [mx.any(a != b).item() for (_, a), (_, b) in zip(*(tree_flatten(m.parameters()) for m in (model, fresh)))]
    assert all(moved)
    assert encoder.prompt([{"role": "user", "content": "hi"}])[-1] < model.args.vocab_size


def test_a_folder_with_a_model_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = (TINY / "config.json").read_bytes()
    assert main(["bootstrap", str(TINY), "--steps", "1"]) == 1
    assert "already contains a model" in capsys.readouterr().err
    assert (TINY / "config.json").read_bytes() == before
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1; got 0"):
        bootstrap(TINY.parent / "never", steps=0)


def test_a_model_is_made_on_the_cpu_whatever_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Any] = []
    monkeypatch.setattr(mx, "default_device", lambda: "the GPU")
    monkeypatch.setattr(mx, "set_default_device", used.append)
    (tmp_path / "config.json").touch()
    with pytest.raises(FileExistsError):
        bootstrap(tmp_path)
    assert used == [mx.cpu, "the GPU"], "and the default comes back after an error"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_whole_recipe_makes_an_even_player(tmp_path: Path) -> None:
    folder = bootstrap(tmp_path / "tiny", progress=False)
    player = measure.load(folder)
    for _, env in measure.solvable():
        assert measure.evenness(player, env).illegal_mean < 0.01


@pytest.mark.slow
def test_the_report_has_a_row_for_every_solvable_env_and_both_checks(capsys: pytest.CaptureFixture[str]) -> None:
    quick = [(label, env) for label, env in ENVS if "TicTacToe" not in label]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "solvable", lambda: iter(quick))
        assert main(["bootstrap", str(TINY), "--measure"]) == 0
    said = capsys.readouterr().out
    assert all(f"| {label} |" in said for label, _ in quick)
    assert "NashConv in KuhnPoker-v0: 0.9" in said and "Illegal in made-up choices" in said
