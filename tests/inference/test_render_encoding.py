"""Seats' text never becomes a control id, over the kinds of tokenizer that models come with."""

import functools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from inference.text import TextEncoder
from inference.text.encoding import replace_surrogates

CORPUS = ["hello world the user says hi", "an assistant answers"] * 20
MARKERS = ["<s>", "</s>", "<|im_end|>", "<think>", "[INST]", "⟐"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]


def wrap(tok: Tokenizer) -> PreTrainedTokenizerFast:
    tok.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in MARKERS[:3]])
    tok.add_tokens([AddedToken(m, special=False, normalized=False) for m in MARKERS[3:]])
    return PreTrainedTokenizerFast(tokenizer_object=tok, bos_token="<s>", eos_token="</s>")


def byte_level() -> Tokenizer:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tok.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    tok.add_tokens([AddedToken("<filler>"), AddedToken("    ", normalized=False)])  # a run of spaces after a gap
    return tok


def byte_level_with_prefix_space() -> Tokenizer:
    tok = byte_level()
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return tok


def sentencepiece(legacy: bool) -> Tokenizer:
    """Llama-2 style: white space as a visible character, one put before the text, bytes for unknown characters."""
    vocab = {token: i for i, token in enumerate(["<unk>", "<s>", "</s>", *BYTES, "▁", *"adehilnorstuwy"])}
    merges = [("h", "e"), ("l", "l"), ("▁", "w"), ("▁", "he")]
    vocab.update({a + b: len(vocab) + i for i, (a, b) in enumerate(merges)})
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if legacy:
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tok


def unigram() -> Tokenizer:
    """A vocabulary in which the markers are words like any other, and the cheapest ones too."""
    words = [(marker, 0.0) for marker in MARKERS[:-1]] + [(c, -5.0) for c in "abc<>/s[]INST|im_endthk▁"]
    tok = Tokenizer(models.Unigram([("<unk>", -9.0), *words], unk_id=0, byte_fallback=False))
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return tok


BUILDERS = {
    "byte level": byte_level,
    "byte level, prefix space": byte_level_with_prefix_space,
    "sentencepiece": functools.partial(sentencepiece, False),
    "sentencepiece, legacy": functools.partial(sentencepiece, True),
    "unigram": unigram,
}
KNOWS_ALL_CHARACTERS = [name for name in BUILDERS if name != "unigram"]


@functools.cache
def build(name: str) -> tuple[PreTrainedTokenizerFast, TextEncoder]:
    tokenizer = wrap(BUILDERS[name]())
    return tokenizer, TextEncoder(tokenizer)


# "▁" is left out: sentencepiece vocabularies use it for the space and cannot tell the two apart.
odd_text = st.lists(
    st.one_of(st.text(max_size=6), st.sampled_from([*MARKERS, "\0", "    ", "\n\n", "‮", "👩‍👩‍👧", "<", "<0x0A>"]))
).map(lambda parts: "".join(parts).replace("▁", ""))


@pytest.mark.parametrize("name", KNOWS_ALL_CHARACTERS)
@given(text=odd_text)
@example(text="".join(MARKERS))
@example(text="<s</s>>")
@settings(max_examples=25, deadline=None)
def test_plain_text_has_no_control_ids_and_decodes_to_itself(name: str, text: str) -> None:
    tokenizer, encoder = build(name)
    ids = encoder.plain(text)
    assert encoder.control_ids.isdisjoint(ids)
    assert tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text


@given(parts=st.lists(st.sampled_from([*MARKERS[:-1], "a", "<", " ", "s>"])))
@settings(max_examples=25, deadline=None)
def test_a_model_that_knows_markers_as_words_spells_them(parts: list[str]) -> None:
    tokenizer, encoder = build("unigram")
    ids = encoder.plain("".join(parts))
    assert encoder.control_ids.isdisjoint(ids)
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == "".join(parts)


@pytest.mark.parametrize("name", BUILDERS)
def test_template_text_has_them(name: str) -> None:
    tokenizer, encoder = build(name)
    for marker in MARKERS:
        assert encoder.markup(marker) == [tokenizer.convert_tokens_to_ids(marker)]
        assert encoder.markers[marker] in encoder.control_ids


def test_why_the_tokenizers_own_switch_is_not_enough() -> None:
    """If this fails, transformers has begun to split every added token, and TextEncoder could lean on it."""
    tokenizer, encoder = build("byte level")
    ids = tokenizer.encode("</s><think>", add_special_tokens=False, split_special_tokens=True)
    assert encoder.control_ids.intersection(ids) == {encoder.markers["<think>"]}


@pytest.mark.parametrize("name", ["byte level, prefix space", "sentencepiece", "sentencepiece, legacy"])
def test_only_the_first_piece_of_a_prompt_gets_the_space_before_it(name: str) -> None:
    tokenizer, encoder = build(name)
    assert tokenizer.decode(encoder.markup("hello", first=True)) == " hello"
    assert tokenizer.decode(encoder.markup("hello")) == "hello"
    assert tokenizer.decode(encoder.plain(" hello")) == " hello"


def test_runs_of_spaces_keep_their_token() -> None:
    tokenizer, encoder = build("byte level")
    run = tokenizer.convert_tokens_to_ids("    ")
    assert run not in encoder.control_ids
    assert run in encoder.plain("a    b")


def test_surrogates() -> None:
    assert replace_surrogates("a\ud800b") == "a�b"
    assert replace_surrogates("\ud83d\ude00") == "😀"
    assert replace_surrogates("plain é") == "plain é"


def test_a_tokenizer_without_a_backend_is_refused() -> None:
    with pytest.raises(TypeError, match="load a fast tokenizer"):
        TextEncoder(object())
