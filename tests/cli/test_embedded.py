"""The newcomer's first question, with the real model."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import Podium
from support.local_weights import smollm2

pytestmark = pytest.mark.weights

__all__ = ["smollm2"]


def test_with_no_key_and_no_file_a_real_model_plans_and_answers(
    podium: Podium, home: Path, smollm2: Path
) -> None:
    (home / "models").mkdir(parents=True)
    (home / "models" / smollm2.name).symlink_to(smollm2)
    ended = podium("ask", "--offline", "--budget-tokens", "3000", "What is the capital of Japan?")
    lines = ended.out.splitlines()
    assert ended.code == 0
    assert lines[0].startswith("plan by model(smollm2-135m-instruct): ")
    assert lines[1].startswith("  0 smollm2-135m-instruct: ")
    assert "\n\n" in ended.out.rstrip(), "there is no answer below the plan"
