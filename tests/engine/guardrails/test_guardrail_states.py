from __future__ import annotations

import pytest

from podium.engine.guardrails import GuardrailInput, Pass, Verdict
from podium.engine.guardrails.chain import GuardrailStates


def passes(checked: GuardrailInput) -> Verdict:
    return Pass()


def test_states_of_waiting_runs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("podium.engine.guardrails.chain.MAX_WAITING_RUNS", 2)
    states = GuardrailStates()
    for number in range(3):
        states.keep(f"run_{number}", {"x": passes})
    assert {run_id: list(hooks) for run_id, hooks in states.items()} == {
        "run_1": ["x"],
        "run_2": ["x"],
    }
