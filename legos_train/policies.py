"""From a word to whoever answers: `random`, `optimal`, `tiny`, a model, an adapter, a run directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pettingzoo import AECEnv

from legos_envs import Policy, policies

if TYPE_CHECKING:
    from legos_train.rollout import ModelPlayer

CODE_POLICIES = ("random", "optimal", "human", "scripted:")


class PolicyError(ValueError):
    """The word names no policy; the message says what is accepted."""


class Cast:
    """Makes players for one env and keeps one engine per base model, so that two adapters share it."""

    def __init__(self, env: AECEnv, *, temperature: float = 1.0, max_tokens: int = 64, renderer: str = "auto"):
        self.env = env
        self.temperature, self.max_tokens, self.renderer = temperature, max_tokens, renderer
        self._engines: dict[str, tuple[Any, Any]] = {}

    def player(self, spec: str) -> Policy | ModelPlayer:
        """The player called `spec`.

        Args:
            spec: `random`, `optimal`, `scripted:NAME`, `human`; `tiny`, a model directory or hub name, each with
                `+ADAPTER` if wanted; an adapter directory; a run directory (`runs/x`), or `runs/x@last`, `@best`,
                `@step_40`.

        Raises:
            PolicyError: there is no such policy, or it does not fit the env.
        """
        if spec.startswith(CODE_POLICIES) and spec.partition(":")[0] in ("random", "optimal", "human", "scripted"):
            return policies.make_policy(spec, self.env)
        base, adapter = locate(spec)
        return self._model(base, adapter)

    def _model(self, base: str, adapter: Path | None) -> ModelPlayer:
        from inference import Engine
        from inference.loading import read_adapter
        from inference.render import Renderer
        from legos_train.rollout import ModelPlayer

        if base not in self._engines:
            engine = Engine.load(base)
            self._engines[base] = engine, Renderer(engine.tokenizer, self.renderer)
        engine, renderer = self._engines[base]
        name = None
        if adapter is not None:
            weights = read_adapter(adapter)
            name = str(adapter)
            version = int(weights.config.get("legos", {}).get("step", 0))
            engine.publish(name, weights.weights, scale=weights.scale, version=version)
        return ModelPlayer(engine, renderer, name, self.temperature, max_tokens=self.max_tokens)

    def close(self) -> None:
        for engine, _ in self._engines.values():
            engine.close()


def locate(spec: str) -> tuple[str, Path | None]:
    """The base model and the adapter directory (or None) that a word means."""
    base, plus, adapter = spec.partition("+")
    if plus:
        return base, _adapter(Path(adapter))
    name, at, which = spec.partition("@")
    path = Path(name)
    if (path / "config.toml").exists() and not (path / "adapter_config.json").exists():
        import tomllib

        chosen = path / (which or "adapter")
        if which.startswith("step_"):
            raise PolicyError(f"{spec!r}: checkpoints hold training state; use {name}, {name}@last or {name}@best")
        return tomllib.loads((path / "config.toml").read_text())["model"], _adapter(chosen)
    if at:
        raise PolicyError(f"{spec!r}: {name!r} is no run directory (no config.toml in it)")
    if (path / "adapter_config.json").exists():
        config = json.loads((path / "adapter_config.json").read_text())
        found = config.get("legos", {}).get("base_model") or config.get("model")
        if not found:
            raise PolicyError(f"the adapter {spec!r} does not say what model it is for; write MODEL+{spec}")
        return found, path
    if spec == "tiny" or (path / "config.json").exists() or ("/" in spec and not path.exists() and spec[0] not in "./"):
        return spec, None
    raise PolicyError(
        f"no policy {spec!r}. Accepted: random, optimal, human, scripted:NAME, tiny, a model directory or hub name "
        "(with +ADAPTER if wanted), an adapter directory, a run directory (with @last or @best)"
    )


def _adapter(path: Path) -> Path:
    if not (path / "adapter_config.json").exists():
        raise PolicyError(f"no adapter in {str(path)!r}: adapter_config.json is missing (has the run finished?)")
    return path
