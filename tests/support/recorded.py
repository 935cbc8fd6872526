"""Recorded outcomes in the form in which they are passed around, of invented questions."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from pathlib import Path

SUMS = ("11_A", "12_A", "13_A", "14_A", "15_A")
WORDS = ("21_B", "22_B", "23_B", "24_B", "25_B")
UNKNOWN_TEXT = "99_Z"
"""A question of which there are outcomes and no text."""


def write_livecodebench(directory: Path) -> Path:
    """Ann passes sums and Ben passes words, seven and nine times of ten; Cid passes nothing, and
    has no outcome for one question."""
    performances = [
        {
            "question_id": question,
            "model": model,
            "date": 0,
            "difficulty": "easy" if question in SUMS else "hard",
            "platform": "atcoder",
            "pass@1": percent,
        }
        for question in (*SUMS, *WORDS, UNKNOWN_TEXT)
        for model, percent in (
            ("Ann", 70 if question in SUMS else 0),
            ("Ben", 90 if question in WORDS else 10),
            ("Cid", 0),
        )
        if (question, model) != (UNKNOWN_TEXT, "Cid")
    ]
    results = directory / "livecodebench_results"
    results.mkdir(parents=True)
    with gzip.open(results / "codegen_2024_02_26.json.gz", "wt") as file:
        json.dump({"performances": performances, "models": [], "date_marks": []}, file)
    texts = directory / "livecodebench_v1"
    texts.mkdir()
    lines = [
        json.dumps(
            {
                "question_id": question,
                "question_content": (
                    f"Read {number} numbers and print their sum plus {number}."
                    if question in SUMS
                    else f"Read a word and print it backwards {number} times."
                ),
                "public_test_cases": '[{"input": "1", "output": "1", "testtype": "stdin"}]',
                "metadata": "{}",
                "starter_code": "",
                "difficulty": "easy",
            }
        )
        for number, question in enumerate((*SUMS, *WORDS), start=2)
    ]
    (texts / "lcb_v1_public.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return directory


def write_routellm(directory: Path) -> Path:
    """Two models on three questions of MMLU, one of them twice, and two of GSM8K."""
    weak, strong = "maker/Weak", "strong"
    results = directory / "routellm_results"
    results.mkdir(parents=True)
    with zipfile.ZipFile(results / "routellm_evals.zip", "w") as archive:
        for subject, rows in {
            "anatomy": [
                ["Where is the heart?", "True", "True"],
                ["And the liver?", "False", "True"],
            ],
            "virology": [["And the liver?", "False", "True"], ["What is RNA?", "True", "False"]],
        }.items():
            table = [["prompt", weak, strong], *rows]
            archive.writestr(f"mmlu/responses/mmlu_{subject}.csv", _csv(table))
        table = [
            ["prompt", weak, strong, f"{weak}_response", f"{strong}_response"],
            ["Six times seven?", "False", "True", "It is 41.", "It is 42."],
            ["One and one?", "True", "True", "#### 2", "It is 2."],
        ]
        archive.writestr("gsm8k/gsm8k_responses.csv", _csv(table))
    return directory


def _csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
