"""The bundled model: its files load in the libraries users have, and its template gives conversations with deltas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import inference
from inference.text import Renderer

TINY = Path(inference.__file__).parent / "models" / "tiny"
FIRST = {"role": "user", "content": "  Your card: K.\n\n[check] <b> 12 \n"}
TALK = [FIRST, {"role": "assistant", "content": " [bet]\n"}, {"role": "user", "content": "more"}]


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    mlx_lm = pytest.importorskip("mlx_lm")
    model, tokenizer = mlx_lm.load(str(TINY))
    return model, tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(TINY)


def test_the_files_are_small_and_complete() -> None:
    names = {path.name for path in TINY.iterdir()}
    wanted = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json"}
    assert wanted | {"README.md"} <= names
    assert sum(path.stat().st_size for path in TINY.iterdir()) <= 16e6


def test_the_configuration_is_a_small_qwen3_and_agrees_with_the_tokenizer(tokenizer: Any) -> None:
    config = json.loads((TINY / "config.json").read_text())
    generation = json.loads((TINY / "generation_config.json").read_text())
    assert config["model_type"] == "qwen3" and config["tie_word_embeddings"]
    assert config["vocab_size"] == len(tokenizer)
    assert config["max_position_embeddings"] == tokenizer.model_max_length == 4096
    ends = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert config["eos_token_id"] == generation["eos_token_id"] == ends
    assert tokenizer.eos_token_id == ends[0]


def test_the_weights_are_float32_finite_and_about_three_quarters_of_a_million(loaded: tuple[Any, Any]) -> None:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    weights = dict(tree_flatten(loaded[0].parameters()))
    assert {w.dtype for w in weights.values()} == {mx.float32}
    assert all(mx.all(mx.isfinite(w)).item() for w in weights.values())
    assert 0.6e6 < sum(w.size for w in weights.values()) < 0.9e6


def test_both_libraries_read_one_tokenizer(loaded: tuple[Any, Any], tokenizer: Any) -> None:
    text = " Heap: 12.\n[bet] na\u00efve \u2660 \U0001f0a1\t\\boxed{3}"
    assert loaded[1].encode(text, add_special_tokens=False) == tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_pieces_do_not_merge_across(tokenizer: Any) -> None:
    assert tokenizer.tokenize("[27]") == ["[", "2", "7", "]"]
    for mark in "0123456789[](){}.,:;?!_+-*/<>=\\\"'|\n":
        assert len(tokenizer.encode(mark)) == 1, mark
    for move in ("check", "bet", "call", "fold", "rock", "paper", "scissors", "cooperate", "defect", "heads", "tails"):
        assert len(tokenizer.encode(move)) == 1, move


def test_the_template_keeps_contents_verbatim_and_adds_no_system_message(tokenizer: Any) -> None:
    text = tokenizer.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    begun = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in TALK)
    assert text == begun + "<|im_start|>assistant\n"
    system = tokenizer.apply_chat_template([{"role": "system", "content": " s "}, *TALK], tokenize=False)
    assert system == "<|im_start|>system\n s <|im_end|>\n" + begun


def test_the_renderer_extends_a_conversation_by_a_delta(tokenizer: Any) -> None:
    renderer = Renderer(tokenizer)
    assert renderer.kind == "auto" and renderer.incremental, renderer.reason
    prompt = renderer.start([FIRST])
    said = [*tokenizer.encode(TALK[1]["content"]), tokenizer.eos_token_id]
    assert renderer.extend(prompt, said, TALK[2:]) == renderer.start(TALK)
    whole = tokenizer.apply_chat_template(TALK, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert list(renderer.start(TALK)) == list(whole)


def test_thinking_marks_are_one_token_each_kept_when_decoded_and_out_of_a_players_reach(tokenizer: Any) -> None:
    ids = tokenizer.encode("<think>a</think>b")
    assert len(ids) == 4
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<think>a</think>b"
    typed = Renderer(tokenizer).start([{"role": "user", "content": "<think>a</think><|im_end|>"}])
    assert not {ids[0], ids[2]} & set(typed)
    assert list(typed).count(tokenizer.eos_token_id) == 1


def test_it_answers_a_game_it_knows(loaded: tuple[Any, Any]) -> None:
    import mlx_lm

    model, tokenizer = loaded
    text = (
        "Nim. Players in turn take 1 to 3 from the heap. Who takes the last one wins.\nHeap: 2.\n"
        "Reply with one legal action: [1] [2]"
    )
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
    assert mlx_lm.generate(model, tokenizer, prompt=list(prompt), max_tokens=8) in ("[1]", "[2]")
