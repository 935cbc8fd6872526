"""The newcomer's first question, with the real model."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import Podium
from podium.cli.session import OFFLINE
from support.local_weights import smollm2

pytestmark = pytest.mark.weights

__all__ = ["smollm2"]


def test_with_no_key_and_no_file_a_real_model_plans_and_answers(
    podium: Podium, home: Path, smollm2: Path
) -> None:
    (home / "models").mkdir(parents=True)
    (home / "models" / smollm2.name).symlink_to(smollm2)
    ended = podium("ask", "--offline", "What is the capital of Japan?")
    plan, _, answer = ended.out.partition("\n\n")
    assert ended.code == 0
    assert plan.startswith("plan by model(llamacpp/smollm2-135m-instruct): ")
    assert "  0 smollm2-brief: What is the capital of Japan? (reads nothing)" in plan
    assert "Tokyo" in answer
    assert ended.complaint == OFFLINE
