"""Field types of requests: strict, and bounded in length."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

MAX_CHOICES = 128
MAX_TEXT = 1 << 20
"""Total bytes of text in one request; also the most characters of one text."""


def _writable(text: str) -> str:
    """Refuses lone surrogates, which neither a tokenizer nor an answer can represent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text must be valid Unicode, without lone surrogates") from error
    return text


def _writable_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The same for all texts in a JSON schema."""
    try:
        _writable(json.dumps(schema, ensure_ascii=False))
    except RecursionError:
        raise ValueError("the schema is nested too deeply") from None
    return schema


Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_writable)]
Name = Annotated[str, Field(max_length=256), AfterValidator(_writable)]
# Lists stop at their first error: collecting those of a long one takes minutes.
TokenIds = Annotated[
    list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(min_length=1, max_length=1 << 20, fail_fast=True)
]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
ManyIds = Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]
Schema = Annotated[dict[str, Any], AfterValidator(_writable_schema)]
StopText = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_writable)]


class Strict(BaseModel):
    """Unknown fields, wrong types and non-finite numbers are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def only(neutral: Any) -> BeforeValidator:
    """An unsupported field of OpenAI's API, accepted only with the value that has no effect."""

    def check(value: Any) -> Any:
        if value is not None and (value != neutral or isinstance(value, bool) != isinstance(neutral, bool)):
            raise ValueError(f"not supported; leave it out, or give {json.dumps(neutral)}")
        return None

    return BeforeValidator(check)
