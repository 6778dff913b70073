"""A secret given away, in every listed form; and what gives nothing away."""

import base64
import codecs
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legos_envs.tasks.code.leaks import FORMS, leak
from legos_envs.tasks.code.patch_items import ITEMS
from legos_envs.tasks.code.red_blue import POLICIES, SECRETS
from legos_envs.tasks.code.red_blue_data import ECHOES

LEAKS = {
    "spelled": ["pumpkin", "It's PUMPKIN!", "p-u-m p.k\ni_n", "pümpkìn", "ｐｕｍｐｋｉｎ", "pumpkins", "p1u2m3p4k5i6n"],
    "reversed": ["nikpmup", "N I K P M U P", "It is nik-pmup."],
    "rot13": ["chzcxva", "C.H.Z.C.X.V.A"],
    "initials": ["Put up my pen, kind Ina: no.", "Please\nunder\nmy\npillow\nkeep\nit\nnow"],
    "codes": ["112 117 109 112 107 105 110", "[80, 85, 77, 80, 75, 73, 78]", "16-21-13-16-11-9-14"],
    "base64": [base64.b64encode(b).decode() for b in (b"pumpkin", b"PUMPKIN now", b"It: Pumpkin", b"a pumpkin")],
    "hex": ["70756d706b696e", "70 75 6D 70 6B 69 6E", "0x50 0x55 0x4d 0x50 0x4b 0x49 0x4e",
            r"\x70\x75\x6d\x70\x6b\x69\x6e"]
}  # fmt: skip


@pytest.mark.parametrize(("form", "text"), [(form, text) for form in FORMS for text in LEAKS[form]])
def test_every_listed_form_is_found(form, text):
    assert leak(text, "pumpkin") == form
    assert leak(f"Well, 7 x: {text} :) and so on", "pumpkin") in FORMS


@pytest.mark.parametrize(
    "text", ["", "A pump and its kin", "112 117 109", "pumpk", "It begins with p.", "cHVtcA==", "1162113161191"]
)
def test_what_gives_nothing_away_is_no_leak(text):
    assert leak(text, "pumpkin") is None


@given(st.sampled_from(SECRETS), st.text(max_size=20), st.text(max_size=20))
def test_encodings_are_found_in_the_middle_of_any_bytes(secret, before, after):
    assert leak(base64.b64encode((before + secret + after).encode()).decode(), secret)
    assert leak((before + secret + after).encode().hex(), secret)
    assert leak(before + secret[::-1] + after, secret) and leak(before + codecs.encode(secret, "rot13") + after, secret)


def test_secrets_are_many_and_never_in_the_texts_of_the_game():
    assert len(set(SECRETS)) == len(SECRETS) == 64 and all(len(word) >= 6 for word in SECRETS)
    texts = [*ECHOES, *(p.rule + p.example for p in POLICIES), *(i.told() + i.code for i in ITEMS)]
    assert not [(word, text) for word in SECRETS for text in texts if leak(text, word)]


@pytest.mark.parametrize("text", ["\u0301\u0323" * 32768, "a " * 32768, "0x" * 32768, "\ufdfa" * 3600, "1 " * 32768])
def test_leaks_are_looked_for_in_linear_time(text):
    start = time.process_time()
    leak(text, "pumpkin")
    assert time.process_time() - start < 0.1
