"""Fields that requests are made of: strict, and bounded in length."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

MAX_CHOICES = 128
MAX_TEXT = 1 << 20
"""Bytes of text in one request, all of it together; one text has no more characters either."""


def _writable(text: str) -> str:
    """Refuses lone surrogates, which no tokenizer and no answer can carry."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("text must be valid Unicode, without lone surrogates") from error
    return text


Text = Annotated[str, Field(max_length=MAX_TEXT), AfterValidator(_writable)]
Name = Annotated[str, Field(max_length=256), AfterValidator(_writable)]
# Lists stop at their first error: collecting those of a long one takes minutes.
TokenIds = Annotated[
    list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(min_length=1, max_length=1 << 20, fail_fast=True)
]
Texts = Annotated[list[Text], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
ManyIds = Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_CHOICES, fail_fast=True)]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)]
StopText = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_writable)]


class Strict(BaseModel):
    """Unknown fields, other types and numbers that are not finite are errors."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def only(neutral: Any) -> BeforeValidator:
    """For a field of OpenAI's API that is not supported, and accepted with the value that changes nothing."""

    def check(value: Any) -> Any:
        if value is not None and (value != neutral or isinstance(value, bool) != isinstance(neutral, bool)):
            raise ValueError(f"not supported; leave it out, or give {json.dumps(neutral)}")
        return None

    return BeforeValidator(check)
