"""The report of a run: figures, intervals, sample games, settings; runs compared."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from legos_train import Result, TrainConfig, train
from legos_train.cli.main import main
from legos_train.config import to_toml
from legos_train.errors import RunError
from legos_train.observe.eval_numbers import metric_name
from legos_train.observe.labels import labels_of
from legos_train.observe.report import compare, print_table, report_again, write_comparison
from legos_train.observe.report.changed_settings import changed, differing, flat
from legos_train.observe.report.lost_games import games_html, sample_games, shared_lines
from tests.train.helpers import small

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "line", "circle", "rect", "polyline", "polygon", "br"}


class Page(HTMLParser):
    """Checks that tags close in order; collects text, tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def loads_nothing(text: str) -> Page:
    page = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    assert all(value is not None and value.startswith("#") for key, value in page.attributes if key in ("href", "src"))
    assert not any(key.startswith("on") for key, _ in page.attributes)
    assert "url(" not in text and "@import" not in text
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in page.attributes
    return page


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run in a league with numbers of all kinds; and its files under other settings, still running, as a second."""
    root = tmp_path_factory.mktemp("report")
    first, second = root / "first", root / "second"
    league = {"mode": "psro", "snapshot_every": 1, "payoff_games": 2, "latest": 0.0}
    alarming = {"kl": 0.0, "patience": 1}
    train(config=small(first, steps=3, batch_size=8, league=league, eval={"every": 1}, monitor=alarming), quiet=True)
    second.mkdir()
    for name in ("metrics.jsonl", "start.json"):
        shutil.copy(first / name, second)
    (second / "config.toml").write_text(to_toml(small(steps=3, batch_size=8, optim={"lr": 1e-3})))
    return first, second


def test_the_report_is_one_file_with_everything_in_it(runs: tuple[Path, Path]) -> None:
    page = loads_nothing((runs[0] / "report.html").read_text())
    for wanted in (
        "Before and after", "NashConv (0 is an equilibrium)", "Reward by role", "Win rate by role", "Invalid games",
        "Entropy", "KL to the reference", "Staleness", "Generation speed", "Weight swap", "Payoffs between members",
        "The learner against members", "Sample games", "before (step 1)", "after (step 3)", "Alarms",
        "an equilibrium", "uniform play: ", "Published: the weight average",
        "the policy is far", "What the policy does",
        "You are player 0. Moves: none. Your card: J.", "league.mode", "psro", "Running mean",
        "Exact: computed from the policy's own action probabilities",
    ):  # fmt: skip
        assert wanted in page.text, wanted
    assert "Rating of the learner" in page.text, "openskill is installed for the tests"
    assert "alarm: kl" in page.text, "the alarm is marked in its figure"
    start = json.loads((runs[0] / "start.json").read_text())["nash_conv"]
    assert f"{start:.4f}" in page.text


def test_every_figure_is_a_file_that_any_reader_of_svg_can_read(runs: tuple[Path, Path]) -> None:
    names = {file.stem for file in (runs[0] / "figures").glob("*.svg")}
    assert {"nash_conv", "reward", "win_rate", "entropy", "kl", "staleness", "publish", "payoffs", "against"} <= names
    for file in (runs[0] / "figures").glob("*.svg"):
        root = ET.fromstring(file.read_text())
        assert root.tag == f"{SVG}svg" and root.findall(f"{SVG}style") and root.get("aria-label")
        box = [float(v) for v in (root.get("viewBox") or "").split()]
        for text in root.iter(f"{SVG}text"):
            assert -1 <= float(text.get("x") or "nan") <= box[2] and 0 <= float(text.get("y") or "nan") <= box[3]
    report_again(runs[1])
    assert "payoffs" not in {file.stem for file in (runs[1] / "figures").glob("*.svg")}, (
        "what is not known is not drawn"
    )


def test_what_the_schedule_reaches_without_sampling_stands_beside_the_run(runs: tuple[Path, Path]) -> None:
    facts = json.loads((runs[0] / "figures/data.json").read_text())["unsampled"]["nash_conv"]
    steps = [json.loads(line)["step"] for line in (runs[0] / "metrics.jsonl").read_text().splitlines()]
    for line in ("last", "average"):
        assert facts[line][-1][0] == steps[-1] and facts[line][0][0] == 1
        assert facts[line][-1][1] < facts[line][0][1]
    drawn = (runs[0] / "figures/nash_conv.svg").read_text()
    assert "without sampling" in drawn and "its average" in drawn
    assert "mirror descent on one number per action" in (runs[0] / "report.html").read_text()


def test_the_report_can_be_written_again_from_the_files(runs: tuple[Path, Path], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs[0], copy)
    before = (copy / "report.html").read_text()
    assert report_again(copy) == copy / "report.html" and (copy / "report.html").read_text() == before
    (copy / "result.json").unlink()  # as while a run goes on
    report_again(copy)
    assert "This run has not finished: it is still running" in (copy / "report.html").read_text()
    with pytest.raises(RunError, match="not a run directory"):
        report_again(tmp_path)


def test_runs_compared(runs: tuple[Path, Path]) -> None:
    page = loads_nothing(compare(runs))
    for wanted in (
        "Runs compared: first, second", "Settings that differ", "optim.lr", "0.001", "Reward by role: player_0",
        "NashConv (0 is an equilibrium): last weights", "league.mode",
    ):  # fmt: skip
        assert wanted in page.text, wanted
    assert "lora.rank" not in page.text, "what is the same is left out"
    assert write_comparison(runs) == runs[0] / "compare.html"
    with pytest.raises(RunError, match=r"no config\.toml"):
        compare([runs[0], runs[0].parent])
    assert "The settings of these runs are the same" in compare([runs[0], runs[0]])
    assert labels_of([Path("/a/x"), Path("/b/x"), Path("/b/y")]) == ["a/x", "b/x", "b/y"]
    assert labels_of([Path("/a/x"), Path("/a/x")]) == ["x (1)", "x (2)"]


def test_runs_of_other_envs_are_compared_env_by_env(tmp_path: Path) -> None:
    """Numbers of Kuhn poker and Nim stood in one row; those of a run that goes on were missing."""
    for name, envs in (("one", ["KuhnPoker-v0"]), ("two", ["Nim-v0"]), ("both", ["Nim-v0", "KuhnPoker-v0"])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(to_toml(small(env=[{"id": id} for id in envs])))
        keys = {id: f"{id}/nash_conv" if len(envs) > 1 else "nash_conv" for id in envs}
        reward = {f"{id}/a" if len(envs) > 1 else "a": 1.0 for id in envs}
        measured = {key + end: 0.25 + len(id) + len(end) for id, key in keys.items() for end in ("", "_average")}
        row = {"step": 1, "reward": reward, "eval": measured}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    text = compare([tmp_path / name for name in ("one", "two", "both")])
    cells = [
        re.sub(r"<[^>]*>", "|", row).replace("||", "|").split("|")[1:-1] for row in re.findall("<tr>.*?</tr>", text)
    ]
    found = {cell[0]: cell[1:] for cell in cells if "NashConv" in cell[0]}
    kuhn, nim = 0.25 + len("KuhnPoker-v0"), 0.25 + len("Nim-v0")
    shown = [[float(x) if x else None for x in row] for row in found.values()]
    assert [k.split(":")[0] for k in found] == ["KuhnPoker-v0"] * 2 + ["Nim-v0"] * 2, found
    assert shown == [
        [kuhn, None, kuhn], [kuhn + 8, None, kuhn + 8], [None, nim, nim], [None, nim + 8, nim + 8],
    ]  # fmt: skip
    assert all(text.count(f"Reward by role, {id}: a</") == 1 for id in ("KuhnPoker-v0", "Nim-v0")), "a figure of each"


def test_a_report_of_a_run_that_goes_on_shows_nothing_of_its_earlier_end(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    path = shutil.copytree(runs[0], tmp_path / "run")
    report_again(path)
    assert "What the policy does" in (path / "report.html").read_text()
    (path / "result.json").unlink()
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**last, "step": 4}) + "\n")
    report_again(path)
    assert "What the policy does" not in (path / "report.html").read_text()


def test_by_hand_on_the_command_line(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 1 and "is not a run directory" in capsys.readouterr().err
    assert main(["report", *map(str, runs)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"wrote {runs[0] / 'report.html'}", f"wrote {runs[1] / 'report.html'}", f"wrote {runs[0] / 'compare.html'}"
    ]  # fmt: skip


def test_the_table_at_the_end(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    result = Result(runs[0], **{k: v for k, v in json.loads((runs[0] / "result.json").read_text()).items()})
    print_table(result, "plain")
    text = capsys.readouterr().out
    assert "3 steps in" in text and f"{result.last['nash_conv']:.4f}" in text and str(runs[0] / "report.html") in text
    print_table(result, "auto")
    assert capsys.readouterr() == (text, "")
    print_table(result, "json")
    told = capsys.readouterr()
    said = json.loads(told.out)["result"]
    assert said["last"] == result.last and said["run_dir"] == str(runs[0]) and said["published"] == "average"
    assert told.err == ""


def test_what_models_write_is_text_and_not_markup(tmp_path: Path) -> None:
    evil = "</pre></details><script>alert(1)</script><img src=x onerror=alert(1)>"
    turn = {"observation": [{"role": "user", "content": evil}], "action": evil, "reward": 1.0, "legal_actions": ["[a]"]}
    line = {
        "step": 1, "env": evil, "players": {"a": evil}, "outcome": {"a": evil},
        "episode": {"seed": 1, "trajectories": [{"agent": "a", "role": "a", "carry": 0.5, "turns": [turn] * 30}]},
    }  # fmt: skip
    text = games_html("before", [line])
    page = Page(text)
    assert "script" not in page.tags and "img" not in page.tags and evil in page.text
    assert "+30.5" in text and "not legal" in text and "and more turns" in text


def test_sample_games_are_those_of_the_first_step_and_the_last(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    assert sample_games(path) == ([], [])

    def game(step: int, k: int, seed: int = 0) -> dict[str, Any]:
        turn = {"observation": [{"role": "user", "content": f"rules\nYour card: {k}"}], "action": "a"}
        return {"step": step, "env": "E", "episode": {"seed": seed, "trajectories": [{"agent": "x", "turns": [turn]}]}}

    lines = [json.dumps(game(s, k, seed)) for s in (1, 10, 20) for k in range(5) for seed in (0, 1)]
    path.write_text(
        "\n".join(["not json", "[]", '{"step": 1, "episode": null}', *lines, json.dumps(game(20, 9))[:-4]])
        + "\n"
        + '{"step": 30, "k"'
    )
    first, last = sample_games(path, 2)
    assert first == [game(1, 0), game(1, 1)] and last == [game(20, 0), game(20, 1)]  # the same deal again: passed over
    path.write_text(f"{lines[0]}\n")
    assert sample_games(path) == ([game(1, 0)], [])
    told = Page(games_html("after", last, shared_lines([*first, *last]))).text
    assert "x sees Your card: 0" in told and "sees rules" not in told


def test_settings_that_differ() -> None:
    assert changed(TrainConfig()) == [] and changed(TrainConfig(seed=3)) == [["seed", "3", "0"]]
    rows = differing([flat({"a": 1, "s": {"x": "y"}}), flat({"a": 1, "s": {"x": "z"}, "new": [1]})])
    assert rows == [["s.x", "y", "z"], ["new", "none", "[1]"]]


def test_what_two_seats_do_alike_is_there_once() -> None:
    from legos_envs.game import InfoSet
    from legos_train.run.records.report_facts import _strategy_rows

    alike = [InfoSet(player, "Heap: 2.", ("1", "2")) for player in (0, 1)]
    unlike = [InfoSet(player, "Heap: 1.", ("1",)) for player in (0, 1)]
    table = {**{info: {"1": 0.25, "2": 0.75} for info in alike}, unlike[0]: {"1": 1.0}, unlike[1]: {"1": 0.5}}
    assert _strategy_rows([*alike, *unlike], [table]) == [
        ["Heap: 2.", "1", [0.25]],
        ["Heap: 2.", "2", [0.75]],
        ["player 0: Heap: 1.", "1", [1.0]],
        ["player 1: Heap: 1.", "1", [0.5]],
    ]


@pytest.mark.parametrize(
    ("chosen", "sampled"), [(None, False), ("nash_conv", False), ("gsm8k.accuracy", True), ("gsm8k/accuracy", True)]
)
def test_best_weights_are_flattered_only_by_the_number_that_chose_them(
    chosen: str | None, sampled: bool, tmp_path: Path
) -> None:
    held_out = {"gsm8k/accuracy": 0.5, "gsm8k/accuracy_low": 0.4, "gsm8k/accuracy_high": 0.6}
    config = TrainConfig.model_validate({"eval": {"best": chosen}})
    (tmp_path / "config.toml").write_text(to_toml(config))
    result = Result(tmp_path, 4, 1.0, best={"nash_conv": 0.1, **held_out, "step": 2}, published="last")
    (tmp_path / "result.json").write_text(json.dumps(result.kept()))
    text = report_again(tmp_path).read_text()
    assert "The best of all evaluations, after step 2" in text and ("biased in its favour" in text) == sampled


def test_a_return_is_not_said_to_be_of_self_play() -> None:
    """One seat plays with nobody, and seats beside it may be given to others."""
    assert metric_name("gsm8k/return") == "gsm8k: mean return" and metric_name("return_coder") == "mean return of coder"
