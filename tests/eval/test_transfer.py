"""Problems with right answers: files of the real kind, mean@k and pass@k."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from legos_train.cli.main import main
from tests.eval.stub import Answer, chat, serving

DATA = Path(__file__).parents[2].parent / "shared" / "data"
ROWS = [
    {"question": f"A shop has {n} boxes of {n + 2} pens. How many pens?", "answer": f"{n}*{n + 2}\n#### {n * (n + 2)}"}
    for n in range(3, 11)
]


def evaluate(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["eval", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def answered(share: int) -> Any:
    """Says the product of the numbers in the question; to boxes in multiples of 4, now and then one more."""
    asked: Counter[int] = Counter()

    def script(number: int, body: dict[str, Any]) -> Answer:
        one, other = (int(n) for n in re.findall(r"\d+", body["messages"][-1]["content"])[:2])
        asked[one] += 1
        return chat(f"Answer: {one * other + (one % 4 == 0 and asked[one] <= share)}")

    return script


def test_problems_of_a_local_file_with_mean_and_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gsm8k.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with serving(answered(3)) as stub:
        env = ["GSM8K-v0", "--arg", f"source={file}", "-m", stub.spec]
        (row,) = evaluate(capsys, *env, "-n", "32", "--samples", "4", "--connections", "1")["results"]
    accuracy = row["accuracy"]
    assert (accuracy["problems"], accuracy["samples"], row["games"]) == (8, 4, 32)
    share = (6 + 2 / 4) / 8  # of two problems in eight, three answers in four are wrong
    assert accuracy["mean@4"] == pytest.approx(share) == accuracy["pass@1"] and accuracy["pass@4"] == 1.0
    assert accuracy["pass@2"] == pytest.approx((6 + 2 / 2) / 8)
    assert row["win"] == pytest.approx(share) and row["loss"] == pytest.approx(1 - share)
    assert row["opponent"] == stub.spec, "there is nobody else"
    low, high = accuracy["mean@4_ci95"]
    assert low < share < high


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        # as in HuggingFaceH4/aime_2024, whose answers are text with leading zeros, and AI-MO/aimo-validation-amc
        ([{"problem": f"P{n}?", "solution": "...", "answer": a} for n, a in enumerate(["204", "025"])], ["204", "25"]),
        ([{"problem": f"P{n}?", "answer": a} for n, a in enumerate([27.0, -11.0, 3159.0])], ["27", "-11", "3,159"]),
        ([{"problem": f"P{n}?", "answer": a} for n, a in enumerate([27, "36", 0.5])], ["27.0", "036", r"\frac{1}{2}"]),
    ],
)
@pytest.mark.parametrize("right", [True, False])
def test_competitions_with_text_and_numbers_for_answers(
    rows: list[dict[str, Any]], known: list[str], right: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def script(number: int, body: dict[str, Any]) -> Answer:
        index = int(body["messages"][-1]["content"][1])
        return chat(f"So it is \\boxed{{{known[index] if right else known[index - 1]}}}.")

    with serving(script) as stub:
        env = ["Dataset-v0", "--arg", f"source={file}", "--arg", "question=problem"]
        (row,) = evaluate(capsys, *env, "-m", stub.spec, "-n", str(len(rows)))["results"]
    assert row["accuracy"]["mean@1"] == float(right) and row["accuracy"]["problems"] == len(rows)


def test_two_policies_on_the_same_problems(capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluate(capsys, "Dataset-v0", "-m", "scripted:oracle", "-m", "scripted:wrong", "-n", "20")
    (one,) = found["comparisons"]
    assert one["difference"] == pytest.approx(1.0) and one["opponent"] == "nobody" and one["seeds"] == 20
    assert [row["accuracy"]["mean@1"] for row in found["results"]] == [1.0, 0.0]


def test_seeds_that_draw_the_same_problem_are_one_piece_of_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = evaluate(capsys, "Dataset-v0", "--arg", "size=5", "-m", "scripted:oracle", "-n", "20")["results"]
    assert row["games"] == 20 and row["seeds"] == 5 == row["accuracy"]["problems"]


@pytest.mark.skipif(not (DATA / "gsm8k/test.jsonl").exists(), reason="the whole test set is not here")
@pytest.mark.slow
def test_the_real_gsm8k(capsys: pytest.CaptureFixture[str]) -> None:
    """A server that knows the answers to all but every tenth problem."""
    rows = [json.loads(line) for line in (DATA / "gsm8k/test.jsonl").read_text().splitlines()]
    known = {row["question"]: row["answer"].rpartition("####")[2].strip() for row in rows}

    def script(number: int, body: dict[str, Any]) -> Answer:
        question = body["messages"][-1]["content"].partition("\nSolve it")[0]
        return chat(f"#### {known[question]}" if number % 10 else "I do not know.")

    with serving(script) as stub:
        env = ["GSM8K-v0", "--arg", f"source={DATA / 'gsm8k/test.jsonl'}", "-m", stub.spec, "-n", "200"]
        (row,) = evaluate(capsys, *env)["results"]
    assert row["accuracy"]["mean@1"] == pytest.approx(0.9) and row["accuracy"]["problems"] == 200


@pytest.mark.skipif(not (DATA / "math500/test.jsonl").exists(), reason="the whole test set is not here")
@pytest.mark.slow
def test_the_real_math_500(capsys: pytest.CaptureFixture[str]) -> None:
    """The data set's own solutions, which box their results, are right by its own answers."""
    rows = [json.loads(line) for line in (DATA / "math500/test.jsonl").read_text().splitlines()]
    known = {row["problem"]: row["solution"] for row in rows}

    def script(number: int, body: dict[str, Any]) -> Answer:
        return chat(known[body["messages"][-1]["content"].partition("\nSolve it")[0]])

    with serving(script) as stub:
        env = ["Dataset-v0", "--arg", f"source={DATA / 'math500/test.jsonl'}", "--arg", "question=problem"]
        (row,) = evaluate(capsys, *env, "-m", stub.spec, "-n", "60")["results"]
    assert row["accuracy"]["mean@1"] >= 0.98 and row["games"] == 60
