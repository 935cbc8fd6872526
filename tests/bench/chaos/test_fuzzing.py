from __future__ import annotations

import pytest

from benchmarks.chaos import run as fuzzing
from benchmarks.chaos.run import measure_fuzz
from benchmarks.fuzz import Finding, FuzzRow


def test_what_a_fuzzer_found_breaks_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    found = FuzzRow(inputs=3, seconds=1.0, findings=(Finding("a 500", "{}"),))
    monkeypatch.setattr(fuzzing, "fuzz_plans", lambda *_: FuzzRow(inputs=20, seconds=1))
    monkeypatch.setattr(fuzzing, "fuzz_bodies", lambda *_: found)
    row = measure_fuzz(20, 1, seed=1)
    assert row.broken == ("a 500: {}",)
    assert row.note == "20 of 20 plans, 3 bodies"
    assert not row.holds


def test_a_campaign_that_was_cut_short_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    half = FuzzRow(inputs=10, seconds=1.0)
    monkeypatch.setattr(fuzzing, "fuzz_plans", lambda *_: half)
    monkeypatch.setattr(fuzzing, "fuzz_bodies", lambda *_: half)
    assert measure_fuzz(20, 1, seed=1).broken == ("only 10 of 20 plans were read in 1 s",)
