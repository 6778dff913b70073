"""What tests would find out again and again, and what never changes, found out once in a process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

BUNDLED = Path(__file__).parents[1] / "inference/models"
SHARED: list[Any] = []
"""Tokenizers of bundled models."""


def load_bundled_tokenizers_once(patch: pytest.MonkeyPatch) -> None:
    """Reading one takes longer than a step of a small run, and nothing changes it."""
    import mlx_lm.utils

    load = mlx_lm.utils.load_tokenizer
    kept: dict[tuple[str, str], Any] = {}

    def once(path: str | Path, extra: Any = None, **options: Any) -> Any:
        if extra or Path(path).parent != BUNDLED:
            return load(path, extra, **options)
        key = str(path), repr(options)
        if key not in kept:
            kept[key] = load(path, **options)
            SHARED.append(kept[key]._tokenizer)
        return kept[key]

    patch.setattr(mlx_lm.utils, "load_tokenizer", once)


def render_bundled_templates_once(patch: pytest.MonkeyPatch) -> None:
    """Every renderer learns the same from a template's output for the same small conversations, in 0.005 s."""
    from inference.text import layout

    render = layout.ChatTemplate._render
    kept: dict[tuple[Any, ...], str | layout.TemplateRefused] = {}

    def once(self: Any, roles: Sequence[str], contents: Sequence[str], generate: bool) -> str:
        tokenizer = self._tokenizer
        if not any(tokenizer is one for one in SHARED) or "apply_chat_template" in vars(tokenizer):
            return render(self, roles, contents, generate)
        key = id(tokenizer), tokenizer.chat_template, repr(self._options), tuple(roles), tuple(contents), generate
        if key not in kept:
            try:
                kept[key] = render(self, roles, contents, generate)
            except layout.TemplateRefused as refused:
                kept[key] = refused
        found = kept[key]
        if isinstance(found, str):
            return found
        raise layout.TemplateRefused(*found.args) from found.__cause__

    patch.setattr(layout.ChatTemplate, "_render", once)


def know_that_objects_are_frozen(patch: pytest.MonkeyPatch) -> None:
    """By tests/conftest.py: to see it, every run counted them all, 400,000 objects in 0.05 s."""
    from legos_train.run import garbage

    patch.setattr(garbage, "any_frozen", lambda: True)


def probe_bundled_models_once(patch: pytest.MonkeyPatch) -> None:
    """How a policy computes its logits is tried once for each bundled architecture: it was a tenth of a small run."""
    import mlx.core as mx
    from mlx_lm.models import qwen3

    from legos_train.model import policy, site_logits

    configs = [json.loads(file.read_text()) for file in BUNDLED.glob("*/config.json")]
    bundled = {repr(qwen3.ModelArgs.from_dict(config)) for config in configs}
    probe, probe_gradient = site_logits.SiteLogits._probe, policy.LoRAPolicy._probe_gradient
    kept: dict[tuple[str, str], tuple[str, bool, int]] = {}
    passed: set[tuple[str, ...]] = set()

    def key(model: Any) -> tuple[str, str]:
        return repr(getattr(model, "args", None)), str(mx.default_device())

    def probed(self: Any) -> str:
        if key(self.model) in kept:
            path, self.trims, self.vocabulary = kept[key(self.model)]
            return path
        path = probe(self)
        if type(self.model) is qwen3.Model and key(self.model)[0] in bundled and not self.notes:
            kept[key(self.model)] = path, self.trims, self.vocabulary
        return path

    def gradient_probed(self: Any) -> None:
        tried = *key(self.model), repr(self.lora), str(self.checkpoint_layers)
        if tried not in passed:
            probe_gradient(self)
            if key(self.model) in kept:
                passed.add(tried)

    patch.setattr(site_logits.SiteLogits, "_probe", probed)
    patch.setattr(policy.LoRAPolicy, "_probe_gradient", gradient_probed)
