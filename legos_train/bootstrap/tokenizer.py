"""The bundled model's tokenizer: byte-level BPE, and the chat template that goes with it.

Merges never cross these pieces: a word with the space before it, one digit, one punctuation mark, one newline. So a
legal action has the same tokens wherever it occurs in brackets, and numbers are read digit by digit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

IM_START, IM_END, END_OF_TEXT = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
THINK, END_THINK = "<think>", "</think>"
PIECES = r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\s"
CONTEXT = 4096

# No default system message, no trimming: the model reads messages verbatim, so that the prompt of the next
# turn extends this one's.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = 2048) -> Tokenizer:
    """Trains the tokenizer on texts. The vocabulary is smaller than requested if the texts run out of pairs to merge.

    The thinking marks are added tokens without the "special" flag, as in Qwen3: a decoder keeps them in the text.

    Raises ValueError if `vocab_size` leaves no room for the 256 bytes and the five special tokens.
    """
    if vocab_size < 261:
        raise ValueError(f"vocab_size must be at least 261 (256 bytes and 5 special tokens); got {vocab_size}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 2,
        min_frequency=2,
        show_progress=False,
        special_tokens=[END_OF_TEXT, IM_START, IM_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in (THINK, END_THINK)])
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes tokenizer.json and tokenizer_config.json in transformers' format."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


class ChatEncoder:
    """Conversations to token ids, like `inference.text.render.Renderer`: contents never pass through the template.

    `start` and `end` are the ids of the two turn marks. Raises ValueError for a tokenizer without them.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self.start, self.end = self._mark(IM_START), self._mark(IM_END)
        self._headers = {role: [self.start, *self.text(f"{role}\n")] for role in ("system", "user", "assistant")}
        self._newline = self.text("\n")
        self._known: dict[str, list[int]] = {}

    def _mark(self, mark: str) -> int:
        token = self._tokenizer.token_to_id(mark)
        if token is None:
            raise ValueError(f"the tokenizer has no token {mark!r}; it needs the ChatML marks")
        return token

    def text(self, text: str) -> list[int]:
        """The ids of a content, not cached."""
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def lines(self, text: str) -> list[int]:
        """The ids of a content, encoded line by line (no token crosses a newline) with the lines cached."""
        ids: list[int] = []
        for i, line in enumerate(text.split("\n")):
            encoded = self._known.get(line)
            if encoded is None:
                if len(self._known) > 50_000:
                    self._known.clear()
                encoded = self._known[line] = self.text(line)
            ids += (*self._newline, *encoded) if i else encoded
        return ids

    def header(self, role: str) -> list[int]:
        """The ids at the start of a message."""
        return self._headers[role]

    def message(self, role: str, content: str) -> list[int]:
        """The ids of a whole message, including the newline after it."""
        return [*self._headers[role], *self.lines(content), self.end, *self._newline]

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The ids of a conversation and of the start of the assistant's reply."""
        ids = [token for message in messages for token in self.message(message["role"], message["content"])]
        return ids + self._headers["assistant"]

    def reply(self, content: str) -> list[int]:
        """The ids of a reply with its end mark."""
        return [*self.lines(content), self.end]
