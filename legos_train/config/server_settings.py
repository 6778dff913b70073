"""Settings of generation on servers, and of training at a service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from inference.address import OWN_KEY, Address, SecretError
from legos_train.settings import Section


def _server_address(text: str) -> str:
    """An address of `legos serve` or vLLM; vllm:// marks it as vLLM."""
    plain = re.sub(r"^vllm://", "http://", text)
    address = str(Address.parse(plain))
    return address if plain == text else re.sub(r"^http://", "vllm://", address)


ServerAddress = Annotated[str, AfterValidator(_server_address)]


def _variable_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w*", value, re.ASCII):
        raise SecretError(f"api_key_env is the name of an environment variable, such as {OWN_KEY}, not the key itself")
    return value


VariableName = Annotated[str, AfterValidator(_variable_name)]


class ServerSettings(Section):
    """Generation by `legos serve` or vLLM in other terminals or on other machines."""

    urls: tuple[ServerAddress, ...] = ()
    """Server addresses: http://127.0.0.1:8000 and the like (`legos serve` or vLLM, which is detected), or
    vllm://HOST:PORT. Empty: generate in this process."""
    adapters: Path | None = None
    """A folder from which the servers load adapters, under the same path on all machines: `--adapter-root` of
    `legos serve`, `VLLM_LORA_RESOLVER_CACHE_DIR` of vLLM, which needs one. None: adapters are uploaded."""
    timeout: float = Field(default=600.0, gt=0)
    """Maximum seconds per call, after which its games continue on another server."""
    sessions: int = Field(default=1, ge=1)
    """Behind a router: the number of session ids (header `X-Session-ID`) to spread conversations over. A conversation
    stays on the server that the router picks for its id. 1: no id is sent, and a call may mix turns of any games."""
    api_key_env: VariableName = OWN_KEY
    """The name of the environment variable that holds the key."""

    @model_validator(mode="before")
    @classmethod
    def _one(cls, data: Any) -> Any:
        """Addresses may share a text, with commas between them."""
        given = data.get("urls") if isinstance(data, dict) else None
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
            return data
        return {**data, "urls": tuple(url for text in texts for url in text.split(","))}


class TinkerSettings(Section):
    """`--backend tinker`: weights, optimiser and sampling are at a service that speaks the Tinker API."""

    url: ServerAddress | None = None
    """Address of the service, such as http://127.0.0.1:8000 for SkyRL; none: the hosted one, or TINKER_BASE_URL."""
    base: str | None = None
    """The service's name for the base model; none: the same as `model`."""
    api_key_env: VariableName = "TINKER_API_KEY"
    """The name of the environment variable that holds the key."""
    mirror: bool = True
    """Evaluate with a local base model and adapters fetched from the service. Off: only the tokenizer of `model`
    is loaded, and answers are scored at the service."""
    in_flight: int = Field(512, ge=1)
    """Maximum number of concurrent samples."""
    multiple: int = Field(1, ge=1)
    """For servers that compile for each shape: pad the number of sequences in a training call to a multiple of this,
    with copies that have no effect."""
