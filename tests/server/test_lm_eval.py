"""The real lm-eval against the server: multiple choice by echoed log-probabilities, and generated answers.

Needs the group `lm-eval`: uv run --group lm-eval pytest -m slow tests/server/test_lm_eval.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.wire import Live

ANSWERS = ["[bet]", "[pass]", "and"]
QUESTIONS = [{"question": f"the player says {i}", "answers": ANSWERS, "gold": i % 3} for i in range(4)]
CHOICE = """
task: legos_choice
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{question}}"
doc_to_choice: "{{answers}}"
doc_to_target: "{{gold}}"
metric_list: [{metric: acc}]
"""
WRITTEN = """
task: legos_written
dataset_path: json
dataset_kwargs: {data_files: {test: DATA}}
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answers[gold]}}"
generation_kwargs: {until: ["."], max_gen_toks: 8, temperature: 0}
metric_list: [{metric: exact_match}]
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lm_eval_scores_and_generates(
    live: Live, random_model: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = pytest.importorskip("lm_eval.evaluator")
    tasks = pytest.importorskip("lm_eval.tasks")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data.json"
    data.write_text("\n".join(map(json.dumps, QUESTIONS)))
    (tmp_path / "tasks").mkdir()
    for name, text in (("choice", CHOICE), ("written", WRITTEN)):
        (tmp_path / "tasks" / f"{name}.yaml").write_text(text.replace("DATA", str(data)))
    model = str(live.core.settings.model)
    results = evaluator.simple_evaluate(
        model="local-completions",
        model_args=f"base_url={live.url}/v1/completions,model={model},tokenizer={model},max_length=512,num_concurrent=2",
        tasks=["legos_choice", "legos_written"],
        task_manager=tasks.TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        log_samples=True,
    )
    network, tokenizer = random_model
    for sample in results["samples"]["legos_choice"]:
        question = tokenizer.encode(sample["doc"]["question"])
        scores = [float(answer[0][0]) for answer in sample["resps"]]
        expected = [score(network, question, tokenizer, text) for text in sample["doc"]["answers"]]
        assert scores == pytest.approx(expected, abs=1e-3)
    assert len(results["samples"]["legos_choice"]) == len(results["samples"]["legos_written"]) == 4
    assert results["results"]["legos_choice"]["acc,none"] in (0, 0.25, 0.5, 0.75, 1)


def score(network: Any, question: list[int], tokenizer: Any, answer: str) -> float:
    """Log-probability of an answer after a question and a space, by one plain forward pass."""
    from tests.server.test_openai_client import log_softmax

    whole = tokenizer.encode(tokenizer.decode(question) + " " + answer)
    at = log_softmax(network, whole)
    return float(sum(at[i - 1, whole[i]] for i in range(len(question), len(whole))))
