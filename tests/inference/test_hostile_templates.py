"""Chat templates that came with a model and mean harm: nothing is executed, nothing is waited for without end."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from inference import loading
from inference.text import Renderer, layout
from inference.text.deadline import Overdue, within

GOOD = "{% for message in messages %}{{ message.role + ': ' + message.content }}{% endfor %}"
SANDBOXED = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('touch CANARY') }}",
    "{{ self.__init__.__globals__.__builtins__.open('CANARY', 'w') }}",
    "{{ messages.__class__.__base__ }}",
    "{{ lipsum.__globals__['os'].popen('touch CANARY').read() }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ ('{0.__class__.__init__.__globals__}').format(messages) }}",
    "{{ messages.append('x') }}",
    "{{ messages|map(attribute='__class__')|list }}{{ messages[0].__class__.mro() }}",
    "{% include 'config.json' %}",
    "{% import 'tokenizer.json' as t %}{{ t }}",
    "{% extends '/etc/passwd' %}",
)
ENDLESS = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{{ f(n - 1) if n }}{{ f(n - 1) if n }}{% endmacro %}{{ f(100) }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = i * j %}{% endfor %}{% endfor %}",
)
TOO_MUCH = ("{% for i in range(300000000) %}{% endfor %}", "{{ 'a' * 5000000 }}", "{{ 1 // 0 }}", "{% if %}")


@pytest.fixture(scope="module")
def tokenizer(random_model_dir: Path) -> Any:
    return loading.load(random_model_dir)[1]


def renderer(tokenizer: Any, template: str, monkeypatch: pytest.MonkeyPatch) -> Renderer:
    inner = tokenizer._tokenizer
    monkeypatch.setattr(inner, "chat_template", template)
    return Renderer(tokenizer)


@pytest.mark.parametrize("hostile", [*SANDBOXED, *TOO_MUCH])
def test_a_template_that_reaches_out_is_replaced(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hostile: str
) -> None:
    monkeypatch.chdir(tmp_path)
    made = renderer(tokenizer, GOOD + hostile, monkeypatch)
    assert made.kind != "auto" and not list(tmp_path.iterdir())
    text = tokenizer.decode(list(made.start([{"role": "user", "content": "hi"}])))
    assert "hi" in text and "__" not in text and "root:" not in text


@pytest.mark.parametrize("hostile", ENDLESS)
def test_a_template_that_does_not_end_is_ended(tokenizer: Any, monkeypatch: pytest.MonkeyPatch, hostile: str) -> None:
    """It is not taken for one that refuses: on a busy machine a good template may be late too."""
    monkeypatch.setattr(layout, "_SECONDS", 0.1)
    with pytest.raises(ValueError, match=r"more than 0\.1 seconds.* named renderer"):
        renderer(tokenizer, GOOD + hostile, monkeypatch)
    end = time.monotonic() + 10
    while any(thread.name == "template" for thread in threading.enumerate()):
        assert time.monotonic() < end, "its thread runs on"
        time.sleep(0.01)


def test_late_work_that_swallows_the_end_is_ended_again() -> None:
    """As a weak reference's callback does, in which the end may come by chance."""
    swallowed = []

    def work() -> None:
        for _ in range(3):
            try:
                while True:
                    pass
            except Overdue:
                swallowed.append(1)
        while True:
            pass

    with pytest.raises(Overdue, match=r"more than 0\.05 seconds"):
        within(0.05, work)
    end = time.monotonic() + 20
    while any(thread.name in ("template", "ends a template") for thread in threading.enumerate()):
        assert time.monotonic() < end, "its thread runs on"
        time.sleep(0.01)
    assert len(swallowed) == 3


def test_a_template_that_does_not_end_for_some_roles_refuses_these(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = "{% if messages|length == 7 %}" + ENDLESS[0] + "{% endif %}"
    made = renderer(tokenizer, GOOD + trap, monkeypatch)
    assert made.kind == "auto"
    monkeypatch.setattr(layout, "_SECONDS", 0.1)
    said = [{"role": "user", "content": "hi"}] * 7
    with pytest.raises(ValueError, match=r"more than 0\.1 seconds"):
        made.start(said)
    assert made.start(said[:6]) and made.knows(("user",) * 6) and not made.knows(("user",) * 7)


@pytest.mark.parametrize(
    "late",
    [
        "messages[0].role == 'system'",
        "messages|length == 3",
        "messages|length == 3 and '<think>' in messages[1].content",
        "messages|length == 2 and not add_generation_prompt",
    ],
)
def test_no_probe_takes_a_late_template_for_one_that_refuses(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    monkeypatch.setattr(layout, "_SECONDS", 0.1)
    with pytest.raises(ValueError, match=r"more than 0\.1 seconds"):
        renderer(tokenizer, "{% if " + late + " %}" + ENDLESS[0] + "{% endif %}" + GOOD, monkeypatch)


def test_what_is_in_time_is_handed_on_as_it_is() -> None:
    assert within(5.0, lambda: threading.current_thread().name) == "template"
    with pytest.raises(KeyError, match="x"):
        within(5.0, lambda: {}["x"])
    with pytest.raises(Overdue, match=r"0\.05 seconds"):
        within(0.05, lambda: [time.sleep(0.01) for _ in range(100)])


def test_late_work_that_catches_every_exception_is_ended_all_the_same() -> None:
    ended = threading.Event()

    def stubborn() -> None:
        try:
            while True:
                try:
                    time.sleep(0.001)
                except Exception:
                    continue
        finally:
            ended.set()

    with pytest.raises(Overdue):
        within(0.05, stubborn)
    assert ended.wait(10)
