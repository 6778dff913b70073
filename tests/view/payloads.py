"""A hundred texts that would run a script where a page lets them, and a log line that has one in every text field."""

from __future__ import annotations

from typing import Any

RUN = "window.__pwned=1"
SEEDS = (
    f"<script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"<ScRiPt>{RUN}</sCrIpT>",
    f"<script\n>{RUN}</script\n>",
    f"<!--<script>{RUN}//--></script>",
    f"--><script>{RUN}</script>",
    f"]]><script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    "<img src=x onerror='alert(1)'>",
    f'"><img src=x onerror="{RUN}">',
    f"'><svg/onload={RUN}>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f"<body onload={RUN}>",
    "<iframe srcdoc='<script>parent.__pwned=1</script>'></iframe>",
    "<iframe src='javascript:parent.__pwned=1'></iframe>",
    f"<a href='javascript:{RUN}'>x</a>",
    f"<details open ontoggle={RUN}>",
    f"<video><source onerror={RUN}></video>",
    f"<input autofocus onfocus={RUN}>",
    "<style>@import 'http://127.0.0.1:9/x.css'</style>",
    "<link rel=stylesheet href='http://127.0.0.1:9/x.css'>",
    f"<meta http-equiv=refresh content='0;url=javascript:{RUN}'>",
    "<base href='http://127.0.0.1:9/'>",
    f"<object data='javascript:{RUN}'></object>",
)
WRAPS = (
    "{}",
    '"}}]}}</script>\n{}',
    '\\u003c/script\\u003e\\";{}//',
    "${{{}}}`\u2028{}\u0000",
)
PAYLOADS = tuple(wrap.format(*[seed] * 2) for seed in SEEDS for wrap in WRAPS)


def poisoned(text: str) -> dict[str, Any]:
    """A line of the log with the payload in every field that holds text, keys included."""

    def turn(number: int) -> dict[str, Any]:
        return {
            "observation": [{"role": "user", "content": text}, {"role": text, "content": text, text: text}][
                : number + 1
            ],
            "action": text,
            "reward": -1.0,
            "legal_actions": [text, "[x]"],
            "prompt_tokens": [1],
            "action_tokens": [1, text, 3],
            "action_texts": [text, "b", text],
            "logprobs": [-0.5, float("nan"), -3.0],
            "policy_version": text,
            "finish_reason": text,
        }

    agents = [text, f"deep/{text}/solver_0"]
    trajectories = [
        {
            "agent": agent,
            "role": text,
            "trainable": True,
            "carry": 0.5,
            "info": {text: text, "role": text},
            "turns": [turn(0), turn(1)] if agent == text else [turn(0)],
        }
        for agent in agents
    ]
    return {
        "step": text,
        "policy_version": text,
        "env": text,
        "episode": {
            "env_id": text,
            "seed": text,
            "options": {text: text},
            "group": text,
            "truncated": True,
            "info": {text: [text, {text: text}], "outcome": text},
            "trajectories": trajectories,
        },
        "advantages": {agents[0]: [-1.0, 0.5], agents[1]: [0.25]},
        "trained": {agents[0]: True},
        "why_not": dict.fromkeys(agents, text),
        "players": dict.fromkeys(agents, text),
        "outcome": {agents[0]: "loss", agents[1]: text},
        "exact": {agents[0]: [[0.5, 0.25], [0.25, -1.0]]},
    }
