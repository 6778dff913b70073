"""The page as a file: what it holds, what it may load, and that nothing in the log can become markup."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from legos_train.observe.viewer import write_page
from tests.view.made import line_of, played, some_lines, write_log
from tests.view.payloads import PAYLOADS, poisoned


class Parsed(HTMLParser):
    """Tags with attributes, and the raw text of script and style elements."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.raw.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.raw[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}", {}))


def parse(path: Path) -> tuple[Parsed, dict[str, Any], list[dict[str, Any]]]:
    page = Parsed(path.read_text())
    _, data, _ = page.raw
    header, *bodies = (json.loads(text) for text in data.split("\n"))
    return page, header, bodies


def test_the_page_holds_every_episode_and_loads_nothing(tmp_path: Path) -> None:
    lines = some_lines(40)
    path, remarks = write_page([write_log(tmp_path, lines)])
    assert path == tmp_path / "view.html" and remarks == []
    page, header, bodies = parse(path)
    assert len(header["rows"]) == len(bodies) == 40
    assert [row["n"] for row in header["rows"]] == list(range(1, 41))
    for row, body, line in zip(header["rows"], bodies, lines):
        assert [seat["agent"] for seat in row["seats"]] == [t["agent"] for t in line["episode"]["trajectories"]]
        said = [turn["action"] for seat in body["seats"] for turn in seat["turns"]]
        assert said == [turn["action"] for t in line["episode"]["trajectories"] for turn in t["turns"]]
    assert not [a for _, attributes in page.tags for a in attributes if a in ("src", "href", "srcset", "style")]
    assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]


def test_the_policy_admits_this_script_and_this_style_only(tmp_path: Path) -> None:
    page, _, _ = parse(write_page([write_log(tmp_path, some_lines(2, ("KuhnPoker-v0",)))])[0])
    metas = [a for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    policy = dict(part.strip().split(" ", 1) for part in str(metas[0]["content"]).split(";"))
    style, _, script = page.raw

    def sha(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    assert policy == {
        "default-src": "'none'",
        "script-src": sha(script),
        "style-src": sha(style),
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script)


def test_no_payload_becomes_markup(tmp_path: Path) -> None:
    clean, _, _ = parse(write_page([write_log(tmp_path / "clean", some_lines(1, ("KuhnPoker-v0",)))])[0])
    folder = write_log(tmp_path / "<img src=x onerror=alert(1)>", [poisoned(text) for text in PAYLOADS])
    page, header, bodies = parse(write_page([folder])[0])
    assert page.tags == clean.tags
    assert page.raw[2] == clean.raw[2]
    assert "<" not in page.raw[1] and page.raw[1].isascii()
    for payload, row, body in zip(PAYLOADS, header["rows"], bodies):
        assert row["seats"][0]["player"] == row["env"] == payload
        assert body["seats"][0]["turns"][0]["messages"][0]["content"] == payload


def test_numbers_that_json_lacks_and_lone_surrogates(tmp_path: Path) -> None:
    line = line_of(played("KuhnPoker-v0", [0])[0], 0)
    turn = line["episode"]["trajectories"][0]["turns"][0]
    turn["logprobs"][0] = float("-inf")
    turn["action"] = "\ud800 and \u2028 {{script}}"
    line["advantages"]["player_0"] = [float("nan")]
    _, header, (body,) = parse(write_page([write_log(tmp_path, [line])])[0])
    shown = body["seats"][0]["turns"][0]
    assert shown["logprobs"][0] == "-inf" and shown["advantage"] == "nan"
    assert shown["action"] == "\ud800 and \u2028 {{script}}"
    assert header["rows"][0]["seats"][0]["worst"]["by"] in ("exact", "last", "luck")


def test_lines_of_wrong_types_are_left_out_and_told(tmp_path: Path) -> None:
    line = line_of(played("KuhnPoker-v0", [0])[0], 0)
    bad = json.loads(json.dumps(line))
    bad["episode"]["trajectories"][0]["turns"][0]["logprobs"] = ["x"]
    path, remarks = write_page([write_log(tmp_path, [bad, line])])
    assert len(remarks) == 1 and "1 lines left out; line 1: TypeError" in remarks[0]
    assert [row["n"] for row in parse(path)[1]["rows"]] == [2]


def test_the_command_writes_compares_and_keeps_the_newest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = some_lines(6, ("KuhnPoker-v0",))
    a, b = write_log(tmp_path / "a", lines), write_log(tmp_path / "b", lines[:2])
    assert main(["view", str(a), str(b), "--no-open", "--last", "4"]) == 0
    told = capsys.readouterr()
    assert told.out == f"wrote {a / 'view.html'}\n" and "the newest 4 of 6" in told.err
    assert not (b / "view.html").exists()
    _, header, _ = parse(a / "view.html")
    assert [(run["label"], run["shown"], run["older"]) for run in header["runs"]] == [("a", 4, 2), ("b", 2, 0)]
    assert [(row["run"], row["n"]) for row in header["rows"]] == [(0, 3), (0, 4), (0, 5), (0, 6), (1, 1), (1, 2)]
    assert main(["view", str(a), "--no-open", "--last", "0"]) == 0
    assert len(parse(a / "view.html")[1]["rows"]) == 6


def test_it_opens_what_it_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    folder = write_log(tmp_path / "my run", some_lines(1, ("KuhnPoker-v0",)))
    assert main(["view", str(folder)]) == 0
    assert opened == [(folder / "view.html").as_uri()]


def test_a_run_that_cannot_be_written_to_can_be_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".tmp-7-view.html"))

    write_log(tmp_path, some_lines(2))
    monkeypatch.setattr("legos_train.observe.viewer.write_page", refused)
    assert main(["view", str(tmp_path), "--no-open"]) == 1
    said = capsys.readouterr().err
    assert f"legos view {tmp_path} --watch" in said and ".tmp-7" not in said
