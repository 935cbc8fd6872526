from __future__ import annotations

from podium.engine.guardrails import GuardrailInput, Pass, Verdict
from podium.engine.guardrails.chain import HookMemory


def passes(checked: GuardrailInput) -> Verdict:
    return Pass()


def test_what_is_remembered_of_waiting_runs_is_bounded_and_taken_once() -> None:
    memory = HookMemory(most=2)
    for number in range(3):
        memory.keep(f"run_{number}", {"x": passes})
    assert memory.take("run_0") == {}
    assert list(memory.take("run_2")) == ["x"]
    assert memory.take("run_2") == {}
