"""Requests of one line: sampling options and the others side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from inference import Request, SamplingParams

OPTIONS = {option.name for option in fields(SamplingParams)}


def query(prompt: Sequence[int], max_tokens: Any = 256, seed: Any = 0, **options: Any) -> Request:
    return change(Request(prompt), max_tokens=max_tokens, seed=seed, **options)


def change(request: Request, **options: Any) -> Request:
    """The request with other options."""
    sampling = {name: options.pop(name) for name in OPTIONS & options.keys()}
    return replace(request, sampling=replace(request.sampling, **sampling), **options)
