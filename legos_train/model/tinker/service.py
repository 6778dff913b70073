"""The connection to a Tinker API: checked before the first step, with a clear error for each failure."""

from __future__ import annotations

import importlib
import json
import os
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from legos_envs.arguments import install, install_package
from legos_train.config import sections
from legos_train.errors import ConfigError, TrainingError

HOSTED = "https://tinker.thinkingmachines.dev/services/tinker-prod"
SDK = ("0.25.0", "0.26")
"""The tested versions of the SDK, from the first to below the second; later ones cannot sample on SkyRL."""
NO_KEY = "tml-none"  # self-hosted servers need none, but the SDK insists on its prefix
ANSWER_SECONDS = 10.0  # seconds for an answer before the first step; later the SDK itself retries for five minutes
MOST_BYTES = 4 << 30
T = TypeVar("T")


class Service:
    """A Tinker API that responded and serves the base model.

    Args:
        settings: the section `[tinker]`.
        base: the server's name for the base model.

    Attributes:
        sdk: the module `tinker`.
        client: its `ServiceClient`.

    Raises:
        ConfigError: no SDK or a wrong version; no key or a wrong one; the server is unreachable or lacks the base.
    """

    def __init__(self, settings: sections.TinkerSettings, base: str):
        self.sdk = find_sdk()
        self.base = base
        self.url = (settings.url or os.environ.get("TINKER_BASE_URL") or HOSTED).rstrip("/")
        self.key = os.environ.get(settings.api_key_env) or None
        if self.key is None and self.url == HOSTED:
            raise ConfigError(
                f"the hosted Tinker service needs a key: set {settings.api_key_env}, or give your own server with "
                "--tinker.url http://HOST:PORT"
            )
        served = self.models()
        if base not in served:
            raise ConfigError(
                f"{self.url} does not serve {base!r}; it serves {', '.join(served) or 'nothing'}. Name the base as the "
                "server does: --tinker.base NAME"
            )
        try:
            self.client = self.sdk.ServiceClient(base_url=self.url, api_key=self.key or NO_KEY)
        except Exception as error:
            raise ConfigError(f"cannot start a session at {self.url}: {reason(error)}") from error

    def models(self) -> list[str]:
        """The base models available."""
        text = self._get("/api/v1/get_server_capabilities", ANSWER_SECONDS)
        try:
            return [str(model["model_name"]) for model in json.loads(text)["supported_models"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.url} does not report which models it serves ({reason(error)}). Is it a Tinker API?"
            ) from None

    def begin(self, what: str, future: Any) -> Any:
        """The answer to a request before the first step. Raises ConfigError if it fails."""
        try:
            return future() if callable(future) else future.result()
        except Exception as error:
            raise ConfigError(f"{self.url} cannot {what}: {reason(error)}") from error

    def wait(self, what: str, future: Any) -> Any:
        """The answer to a request during a run.

        Raises:
            TrainingError: it failed after all retries.
        """
        try:
            return future() if callable(future) else future.result()
        except Exception as error:
            raise TrainingError(
                f"{self.url} did not {what}: {reason(error)}. --resume continues from the last checkpoint"
            ) from error

    def archive(self, path: str) -> bytes:
        """A saved adapter, a tar file with PEFT's two files.

        Args:
            path: `tinker://MODEL/sampler_weights/NAME`.

        Raises:
            TrainingError: the server does not provide it.
        """
        model, _, name = path.removeprefix("tinker://").partition("/")
        failures = []
        for own in (name, name.rpartition("/")[2]):  # the hosted service, and SkyRL 0.4
            try:
                return self._get(f"/api/v1/training_runs/{model}/checkpoints/{own}/archive", 300.0)
            except ConfigError as error:
                failures.append(str(error))
        raise TrainingError(f"no copy of {path} for evaluation: {failures[0]}; --tinker.no-mirror works without one")

    def discard(self, path: str) -> None:
        """Deletes what was saved, if possible."""
        with suppress(Exception):
            self.client.create_rest_client().delete_checkpoint_from_tinker_path(path).result(timeout=ANSWER_SECONDS)

    def unload(self, trainer: Any) -> None:
        """Unloads a training client's model; if the server cannot, that happens when the session ends."""
        with suppress(Exception):
            holder, types = trainer.holder, self.sdk.types

            async def send() -> None:
                pool = importlib.import_module("tinker.lib.client_connection_pool_type").ClientConnectionPoolType.TRAIN
                with holder.aclient(pool) as client:
                    await client.models.unload(request=types.UnloadModelRequest(model_id=trainer.model_id))

            holder.run_coroutine_threadsafe(send()).result(timeout=ANSWER_SECONDS)

    def _get(self, path: str, seconds: float) -> bytes:
        try:
            return _fetch(self.url + path, self.key, seconds)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read(500).decode(errors="replace")
            if error.code in (401, 403):
                raise ConfigError(f"{self.url} refuses the key ({error.code}): {text or error.reason}") from None
            raise ConfigError(
                f"{self.url}{path}: HTTP {error.code} {text or error.reason}. Is it a Tinker API?"
            ) from None
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot reach a Tinker API at {self.url}: {reason(error)}") from None


def find_sdk() -> Any:
    """The module `tinker`.

    Raises:
        ConfigError: it is not installed, or of a version that was not tried.
    """
    try:
        sdk = importlib.import_module("tinker")
    except ImportError as error:
        raise ConfigError(f"--backend tinker needs the extra: {install('tinker')} ({error})") from None
    version = str(getattr(sdk, "__version__", "unknown"))
    first, end = (_numbers(text) for text in SDK)
    if not first <= _numbers(version) < end:
        wanted = install_package(f"'tinker>={SDK[0]},<{SDK[1]}'")
        raise ConfigError(
            f"the Tinker SDK is version {version}; Legos works with {SDK[0]} up to below {SDK[1]}, which SkyRL 0.4 "
            f"needs: {wanted}"
        )
    return sdk


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _fetch(url: str, key: str | None, seconds: float) -> bytes:
    """The body of a page. A redirect to another host, such as file storage, is followed without the key."""
    opener = urllib.request.build_opener(_Stay)
    for _ in range(5):
        request = urllib.request.Request(url, headers={"X-API-Key": key} if key else {})  # noqa: S310 - the user's
        try:
            with opener.open(request, timeout=seconds) as answer:
                body: bytes = answer.read(MOST_BYTES)
                return body
        except urllib.error.HTTPError as error:
            there = error.headers.get("Location")
            if error.code not in (301, 302, 303, 307, 308) or not there:
                raise
            error.close()
            if urlsplit(there).netloc != urlsplit(url).netloc:
                key = None
            url = there
    raise ValueError(f"{url} redirects in a circle")


def reason(error: BaseException) -> str:
    """The error, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:400]}" if text else type(error).__name__
