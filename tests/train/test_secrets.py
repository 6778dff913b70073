"""Canaries: a secret stands nowhere in what is left behind, wherever it was put in; keys are named, never given."""

from __future__ import annotations

import logging
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference import HttpClient
from inference.address import Address, SecretError, has_secret, hide_secrets
from legos_train import Actor, TrainConfig
from legos_train.cli.main import main
from legos_train.errors import PolicyError
from legos_train.rollout.players import RemoteEngine
from legos_train.rollout.players.words import Cast
from tests.eval.stub import chat, error, legal, serving

CANARY = "cAnArY0nEtWoThReE"
WORDS = [
    f"http://bob:{CANARY}@h:8000/v1#m",
    f"http://{CANARY}@h/v1#m",
    f"HTTP://bob:{CANARY}@h/v1#m",
    f"http://bob:p/{CANARY}@h/v1#m",
    f"ws://bob:{CANARY}@h/v1#m",
    f"bob:{CANARY}@h/v1#m",
    f"http://h/v1?token={CANARY}#m",
    f"http://h/v1?q={CANARY}#m",
    f"h/v1?api_key={CANARY}#m",
    f"http://h/v1#m?access_token={CANARY}",
    f"http://h/v1#access_token={CANARY}",
    f"http://h:{CANARY}/v1#m",
]
URLS = [word.partition("#")[0] for word in WORDS if word.startswith("http://") and "#m?" not in word][:5]
TRAIN, EVAL = ["train", "--env", "KuhnPoker-v0"], ["eval", "KuhnPoker-v0", "-n", "2"]
PLACES: dict[str, Callable[[str], list[str]]] = {
    "seat": lambda word: [*TRAIN, "--seat", f"player_1={word}"],
    "seat without a role": lambda word: [*TRAIN, "--seat", word],
    "league opponent": lambda word: [*TRAIN, "--league.mode", "fixed", "--league.opponents", word],
    "a flag that is none": lambda word: [*TRAIN, "--opponent", word],
    "config": lambda word: [*TRAIN, "--config", _toml(f'[league]\nopponents = ["{word}"]')],
    "config, actor": lambda word: [*TRAIN, "--config", _toml(f'[actors.player_1]\nmodel = "{word}"')],
    "config, held-out opponent": lambda word: [
        *TRAIN,
        "--config",
        _toml(f'[[eval.env]]\nid = "Nim-v0"\nopponent = "{word}"'),
    ],
    "config, a list for a text": lambda word: [*TRAIN, "--config", _toml(f'[actors.player_1]\nmodel = ["{word}"]')],
    "config, unknown key": lambda word: [*TRAIN, "--config", _toml(f'[server]\nurlz = "{word}"')],
    "eval": lambda word: [*EVAL, "-m", word, "--out", "evals"],
    "eval opponent": lambda word: [*EVAL, "-m", "random", "--opponent", word, "--out", "evals"],
    "judge": lambda word: ["eval", "Debate-v0", "-m", "random", "--seat", f"judge={word}", "--out", "evals"],
    "tournament": lambda word: ["tournament", "KuhnPoker-v0", "-m", "random", "-m", word, "--out", "evals"],
    "play": lambda word: ["play", "KuhnPoker-v0", "--opponent", word],
    "play, seat": lambda word: ["play", "KuhnPoker-v0", "--seat", f"player_1={word}"],
}
REPEATED = ("seat without a role", "a flag that is none", "config, a list for a text", "config, unknown key")
"""Places where the value is told, so that only what looks like a secret can be kept back."""
ELSEWHERE = [
    *([*TRAIN, flag, url] for flag in ("--server", "--server.urls") for url in URLS),
    *([*TRAIN, "--config", f'server.urls = ["http://h", "{url}"]'] for url in URLS),
    [*TRAIN, "--model", URLS[0]],
    [*TRAIN, "--init-adapter", URLS[0]],
    [*TRAIN, "--logs.wandb", URLS[0]],
    [*TRAIN, "--arg", f"api_key={CANARY}"],
    [*TRAIN, "--arg", f"source={URLS[0]}"],
    [*TRAIN, "--server.api-key-env", f"sk-{CANARY}"],
    [*EVAL, "-m", "random", "--body", f"api_key={CANARY}", "--out", "evals"],
]


def _toml(text: str) -> str:
    Path("given.toml").write_text(text)
    return "given.toml"


def refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """The command ends with a message and no traceback, and the canary is nowhere."""
    try:
        code = main(arguments)
    except SystemExit as left:
        code = left.code  # type: ignore[assignment]
    out, err = capfd.readouterr()
    assert code in (1, 2), (arguments, code, out)
    assert err.strip() and CANARY not in out + err and "Traceback" not in err, (arguments, out, err)
    left_behind = [path for path in Path().rglob("*") if path.is_file() and path.name != "given.toml"]
    assert not left_behind, (arguments, left_behind)


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_in_an_address_is_refused_before_anything_is_written(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in WORDS:
        if has_secret(word) or place not in REPEATED:
            refused(PLACES[place](word), capfd)


def test_a_secret_in_any_other_setting_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in ELSEWHERE:
        refused([_toml(word) if "urls = [" in word else word for word in arguments], capfd)


def test_a_secret_given_in_python_is_refused() -> None:
    for word in WORDS:
        made: list[Callable[[], Any]] = [
            lambda word=word: TrainConfig(actors={"player_1": {"model": word}}),
            lambda word=word: TrainConfig(league={"mode": "fixed", "opponents": [word]}),
            lambda word=word: Actor("player_1", model=word),
            lambda word=word: Cast().player(word),
            lambda word=word: Cast().identity(word),
        ]
        if word.partition("#")[0] in URLS:
            url = word.partition("#")[0]
            made += [
                lambda url=url: TrainConfig(server={"urls": [url]}),
                lambda url=url: HttpClient(url),
                lambda url=url: RemoteEngine((url,)),
            ]
        for make in made:
            with pytest.raises((ValueError, PolicyError)) as caught:
                make()
            told = "".join(str(e) + repr(e) for e in (caught.value, caught.value.__cause__) if e is not None)
            assert CANARY not in told, (word, told)


def test_what_is_an_address() -> None:
    for text in ("http://h", "https://h.example:443/v1", "http://[::1]:8000/a_b/c-d", "HTTP://H/v1"):
        assert str(Address.parse(text + "/")) == text
    for text in (
        "",
        "h:8000",
        "http://",
        "http://h:0",
        "http://h:65536",
        "http://h\n",
        "http://h/v1#m",
        "http://h/\\x",
        5,
    ):
        with pytest.raises(SecretError, match="cannot be read"):
            Address.parse(text)  # type: ignore[arg-type]
    for text in ("runs/x@best", "org/model", "scripted:first", "http://h/v1#a/b:free", "tiny+runs/x@step_4", "a@b.c"):
        assert not has_secret(text) and hide_secrets(text) == text


def test_what_only_speaks_of_tokens_is_left_as_it_is() -> None:
    for text in (
        "this model has no end token: replies end by length only",
        "the tokenizer has no end token = replies end by length only",
        "tasks in basic arithmetic, for the bearer of news",
        "pad_token: <|endoftext|>, eos_token=<|im_end|>, max_tokens: 12345678",
        "a password: none is needed, and the secret: understanding",
        "basic multiplication and basic authentication",
        "stop_token=</s>, mask_token: [MASKED_12]",
    ):
        assert hide_secrets(text) == text


def test_what_is_named_as_a_secret_is_hidden() -> None:
    for text in (
        "api_key={}",
        "password: {}",
        "token={}",
        "access_token: {}",
        "x-auth-token: {}",
        "{{'token': '{}'}}",
        '{{"secret":"{}"}}',
        "at http://h/v1?token={}",
        "Authorization: Bearer {}",
        "{{'authorization': 'Basic {}'}}",
        "it was sent the header Bearer {}",
        "OPENAI_API_KEY={}",
        "client_secret: {}",
    ):
        assert hide_secrets(text.format(CANARY)) == text.format("***")
    assert hide_secrets("password=short") == "password=***"


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_keys_of_the_environment_stand_in_nothing_that_a_run_leaves(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """An endpoint as actor or league opponent and as held-out opponent, which repeats the key; wandb; a card."""
    monkeypatch.chdir(tmp_path)
    for name in ("LEGOS_API_KEY", "OPENAI_API_KEY", "WANDB_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, CANARY)
    given: list[dict[str, Any]] = []
    wandb = types.ModuleType("wandb")
    session = types.SimpleNamespace(log=lambda numbers, step=None: given.append(numbers), finish=lambda: None)
    wandb.init = lambda **options: given.append(options) or session  # type: ignore[attr-defined]
    wandb.Settings = dict  # type: ignore[attr-defined]
    wandb.Table = lambda columns, data: repr(data)  # type: ignore[attr-defined]
    wandb.Html = lambda text, inject: text  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)

    def script(number: int, body: dict[str, Any]) -> Any:
        wrong = number == 3 and not fails  # is asked again
        return error(503 if wrong else 403, f"the key {CANARY} is busy") if fails or wrong else chat(legal(body))

    caplog.set_level(logging.DEBUG)
    with serving(script) as stub:
        Path("c.toml").write_text(
            f'eval.env = [{{id = "Nim-v0", opponent = "{stub.spec}", games = 2}}]\n'
            + (f'actors.player_1.model = "{stub.spec}"\n' if fails else f'league.opponents = ["{stub.spec}"]\n')
            + ("" if fails else 'league.mode = "fixed"\n')
        )
        flags = ["--steps", "1", "--batch-size", "4", "--lora.rank", "2", "--eval.every", "0", "--threads", "1"]
        flags += ["--logs.wandb", "p", "--run-dir", "run"]
        code = main([*TRAIN, "--config", "c.toml", *flags])
        assert stub.headers and all(head["authorization"] == f"Bearer {CANARY}" for head in stub.headers)
    if fails:
        assert code == 1
    else:
        assert code == 0 and main(["export", "hub", "run", "hub"]) == 0 and main(["report", "run"]) == 0
        assert given[0]["project"] == "p" and stub.spec in str(given[0]["config"]) and len(given) > 1
        assert {path.name for path in Path("run").iterdir()} >= {
            "config.toml",
            "metrics.jsonl",
            "report.html",
            "adapter",
        }
        assert (Path("hub") / "README.md").exists()
    out, err = capfd.readouterr()
    texts = [out, err, caplog.text, repr(given), repr([vars(record) for record in caplog.records])]
    assert not [text for text in texts if CANARY in text]
    found = [path for path in Path().rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert not found and (fails or len(list(Path().rglob("*"))) > 20), found
    assert os.environ["LEGOS_API_KEY"] == CANARY
