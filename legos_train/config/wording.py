"""Error messages for configs: the nearest known key for an unknown one, the accepted values for a wrong one."""

from __future__ import annotations

import difflib
from typing import Any

from inference.address import SecretError, hide_secrets
from legos_train.config.sections import ActorEntry, EnvEntry, EvaluationSettings, HeldOutEntry


def explained(error: Any, config: Any) -> str:
    """One validation error in the config's own terms: the setting, the accepted values, the value it got."""
    path = ".".join(str(part) for part in error["loc"])
    if error["type"] != "extra_forbidden":
        message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
        message = message.replace("a valid tuple", "a list").replace("a valid dictionary", "a table")
        whole_table = error["type"] == "value_error" and isinstance(error["input"], dict)  # the message names the key
        told = not path or whole_table or isinstance(error.get("ctx", {}).get("error"), SecretError)
        return f"{path}: " * bool(path) + message + ("" if told else f", got {hide_secrets(repr(error['input']))}")
    section = config
    for part in error["loc"][:-1]:
        fields = getattr(section, "model_fields", {})
        entry = HeldOutEntry if section is EvaluationSettings else EnvEntry
        section = fields[part].annotation if part in fields else section
        section = {"env": entry, "actors": ActorEntry}.get(str(part), section)
    known = list(section.model_fields)
    near = difflib.get_close_matches(str(error["loc"][-1]), known, 1)
    whole = path.rpartition(".")[0] + "." * (len(error["loc"]) > 1)
    return f"unknown key {path!r}" + (
        f", did you mean {whole + near[0]!r}?" if near else f"; accepted: {', '.join(known)}"
    )
