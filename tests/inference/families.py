"""Chat templates in the style of many families, with a small tokenizer that knows their markers."""

import functools
from typing import NamedTuple

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from inference.text import Renderer
from inference.text.templates import RENDERERS

BOS, EOS = "<s>", "</s>"


class Family(NamedTuple):
    """A chat template in some family's style, its markers, the token that ends a reply, and what it does to texts."""

    jinja: str
    markers: tuple[str, ...]
    end: str
    faithful: bool = True  # a history is shown as it was sampled (when nothing is there to trim)
    has_system: bool = True


TURN = "'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n'"
ASK = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
LLAMA = "'<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>'"

FAMILIES = {
    "default system prompt (Qwen2.5)": Family(
        "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are of great help.<|im_end|>\n{% endif %}"
        "{% for m in messages %}{{ " + TURN + " }}{% endfor %}" + ASK,
        ("<|im_start|>", "<|im_end|>"),
        "<|im_end|>",
    ),
    "drops earlier thoughts (Qwen3)": Family(
        "{% for m in messages %}{% if m.role == 'assistant' and '</think>' in m.content %}"
        "{{ '<|im_start|>assistant\\n' + m.content.split('</think>')[-1].lstrip('\\n') + '<|im_end|>\\n' }}"
        "{% else %}{{ " + TURN + " }}{% endif %}{% endfor %}" + ASK,
        ("<|im_start|>", "<|im_end|>"),
        "<|im_end|>",
        faithful=False,
    ),
    "trims and prints the date (Llama-3)": Family(
        "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
        "<|start_header_id|>system<|end_header_id|>\n\nToday: {{ date_string }} ({{ strftime_now('%Y-%m-%d') }})\n\n"
        "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% set messages = messages[1:] %}"
        "{% endif %}<|eot_id|>{% for m in messages %}{{ " + LLAMA + " }}{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
    ),
    "no system role (Gemma)": Family(
        "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim }}"
        "{{ '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
        ("<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>",
        has_system=False,
    ),
    "brackets, system prompt in the last turn (Mistral)": Family(
        "{{ bos_token }}{% if messages[0].role == 'system' %}{% set sys = messages[0].content %}"
        "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}{% if m.role == 'user' %}[INST] "
        "{% if loop.last and sys is defined %}{{ sys + '\\n\\n' }}{% endif %}{{ m.content }} [/INST]"
        "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
        ("[INST]", "[/INST]"),
        EOS,
    ),
    "opens the thought itself (DeepSeek-R1)": Family(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
        "{% elif m.role == 'user' %}{{ '<|User|>' + m.content }}"
        "{% else %}{{ '<|Assistant|>' + m.content.split('</think>')[-1] + eos_token }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}",
        ("<|User|>", "<|Assistant|>"),
        EOS,
        faithful=False,
    ),
    "closes nothing, opens the next turn (GLM)": Family(
        "[gMASK]{% for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
        ("[gMASK]", "<|user|>", "<|assistant|>", "<|system|>"),
        "<|user|>",
    ),
    "plain": Family(RENDERERS["plain"].jinja, (), EOS),
}


@functools.cache
def trained() -> str:
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    words = ["hello user, hello assistant\n\n", "the system says who speaks"] * 9
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tok.train_from_iterator(words, trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, show_progress=False))
    return tok.to_str()


def tokenizer_for(markers: tuple[str, ...], jinja: str | None, eos: str | None = EOS) -> PreTrainedTokenizerFast:
    tok = Tokenizer.from_str(trained())
    tok.add_special_tokens([AddedToken(m, special=True, normalized=False) for m in (BOS, EOS, *markers[::2])])
    tok.add_tokens([AddedToken(m, special=False, normalized=False) for m in ("<think>", "</think>", *markers[1::2])])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tok, bos_token=BOS, eos_token=eos)
    wrapped.chat_template = jinja
    return wrapped


@functools.cache
def renderer_for(name: str) -> Renderer:
    return Renderer(tokenizer_for(FAMILIES[name].markers, FAMILIES[name].jinja))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def text_of(renderer: Renderer, ids) -> str:
    return renderer.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
