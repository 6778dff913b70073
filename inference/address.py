"""Addresses of APIs: one type for every place that takes one. An address with a secret is refused, never echoed.

Keys are only ever given as the name of an environment variable: settings end up in files and logs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OWN_KEY = "LEGOS_API_KEY"
KEY_PLACE, EXAMPLE = f"the environment variable {OWN_KEY}", "http://127.0.0.1:8000"
_NAMES = "key|token|secret|pass|pwd|sig|auth|credential"
_IN_ADDRESSES = (
    (r"(\w+://)[^\s\"']*@", r"\1***@"),  # user and password, which may hold a slash
    (r"(?<![\w/:@*])[^\s/:@=]+:[^\s/@=]+@(?=[\w\[])", "***@"),  # the same without a scheme
    (rf"([?&#;][^=&\s]*(?:{_NAMES})[^=&\s]*=)[^&\s]+", r"\1***"),
)
_HYPHENED = r"(?<!eos|bos|pad|unk|end|sep|cls)(?<!mask|stop)[-_]token"  # `pad_token` belongs to a tokenizer
_FIELDS = rf"(?<![a-z\d])(?:api[-_]?key|passwd)|{_HYPHENED}"  # not words used in prose, so white space may follow
_WORDS = r"(?<![a-z\d])(?:secret|password)"
_IN_TEXTS = (
    (rf"((?:{_FIELDS}|{_WORDS}|\btoken(?!:))[\"']?[:=][\"']?)[^\s\"',;&*]+", r"\1***"),  # not "no end token: ..."
    (rf"((?:{_FIELDS})[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&*]{{8,}}", r"\1***"),
    (rf"((?:{_WORDS})[\"']?\s*[:=]\s*[\"']?)(?=[^\s\"',;&*]*\d)[^\s\"',;&*]{{8,}}", r"\1***"),
    (rf"({_WORDS}\s*[:=]\s*[\"'])[^\"'*]+", r"\1***"),
    (r"([\"'](?:token|secret|password)[\"']\s*[:=]\s*[\"'])[^\"'*]+", r"\1***"),
    (r"\b(authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic)\s+)[^\s\"',;*]+", r"\1***"),
    (r"\b((?:bearer|basic)\s+)(?=[\w.~+/-]*\d)[\w.~+/-]{16,}=*", r"\1***"),  # such a header without its name
    (r"\b(?:sk-|hf_|gh[pousr]_|github_pat_|glpat-|xox[abpr]-|AKIA)[\w-]{8,}", "***"),  # keys by their shape
)
HIDDEN = tuple((re.compile(pattern, re.IGNORECASE), left) for pattern, left in (*_IN_ADDRESSES, *_IN_TEXTS))
"""Patterns that look like secrets, and their replacements."""
SECRET_NAME = re.compile(r"(.*[_-])?(api[_-]?key|(access|auth)[_-]?token|password|passwd|credentials?)", re.IGNORECASE)
"""Names of fields whose value is a secret."""
_ADDRESS = re.compile(
    r"(?P<origin>(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?)"
    r"(?P<path>(?:/[\w.~%+=:,-]*)*)",
    re.IGNORECASE | re.ASCII,
)
"""Deliberately narrow, so that no client can parse such an address differently."""


class SecretError(ValueError):
    """A value that holds or may hold a secret: the message shows only the part that is safe to repeat."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of an API, such as http://127.0.0.1:8000/v1; `str` drops a trailing slash."""

    origin: str
    scheme: str
    host: str
    path: str

    @classmethod
    def parse(cls, text: str, example: str = EXAMPLE, key: str = KEY_PLACE) -> Address:
        """Reads an address.

        Args:
            text: the address, without a query or fragment.
            example: an example address for the message.
            key: where a key belongs, for the message.

        Raises:
            SecretError: it is not an address, or holds a user name, a password or a key.
        """
        if isinstance(text, str) and has_secret(text):
            raise SecretError(
                "an address must not contain a user name, password or key, which would end up in files and logs: "
                f"put it into {key}, and write the address as {example}"
            )
        found = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
        if found is None or not 0 < int(found["port"] or 1) < 1 << 16:
            begins = re.match(r"(\w+://)?[\w.\[\]-]*(:\d+)?", text) if isinstance(text, str) else None
            shown = repr(begins[0] if begins else text)  # the rest may be a secret that does not look like one
            raise SecretError(f"this address cannot be read: {shown}...; write it as {example}, without a query")
        return cls(found["origin"], found["scheme"].lower(), found["host"].lower(), found["path"].rstrip("/"))

    def __str__(self) -> str:
        return self.origin + self.path


def has_secret(text: str) -> bool:
    """Whether a word holds a user name, password or key as part of an address; prompts may mention anything."""
    return not re.search(r"\s", text) and any(pattern.search(text) for pattern, _ in HIDDEN[: len(_IN_ADDRESSES)])


def hide_secrets(text: str) -> str:
    """The text with anything that looks like a secret removed."""
    for pattern, left in HIDDEN:
        text = pattern.sub(left, text)
    return text
