"""The examples of docs/reference/scoring.md, run from top to bottom as a reader would."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from podium.train.score import PAPER, RELEASED, Reward, Score

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "scoring.md").read_text("utf-8")


def test_the_examples_print_what_the_page_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.M)
    assert len(examples) == 3
    monkeypatch.chdir(ROOT)
    exec("\n".join(examples), {})
    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^ *print\(.*\)  # (.+)$", PAGE, re.M)
    assert printed[: len(promised)] == promised


@pytest.mark.parametrize(("name", "reward"), [("PAPER", PAPER), ("RELEASED", RELEASED)])
def test_the_rewards_are_the_ones_in_the_table(name: str, reward: Reward) -> None:
    row = f"| `{name}` | {reward.malformed:g} | {reward.wrong:g} | {reward.right:g} |"
    assert row in PAGE


def test_every_field_of_a_score_and_every_cost_of_a_reward_is_on_the_page() -> None:
    result = set(re.findall(r"`(\w+)`", PAGE))
    assert {field.name for field in fields(Score)} - {"question", "text"} <= result
    assert {field.name for field in fields(Reward) if field.name.startswith("per_")} <= result
