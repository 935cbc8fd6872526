from __future__ import annotations

from pathlib import Path

import pytest

from cli.support import Podium, Vendor
from podium.cli import pool as stress
from podium.core.request import Usage
from podium.workers import Faults

POOL = """
[conductor]
kind = "rules"

[retry]
first_wait = 0.001

[[worker]]
name = "one"
provider = "scripted"
fallback = "two"
options = { reply = "ok" }

[[worker]]
name = "two"
provider = "scripted"
options = { reply = "fine" }
price = { input = 1.0, output = 2.0 }
"""


def pool_file(directory: Path, text: str = POOL) -> Path:
    file = directory / "pool.toml"
    file.write_text(text, "utf-8")
    return file


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults.evenly(0.2, latency_seconds=0.0, retry_after_seconds=0.0)
    monkeypatch.setattr(stress, "STRESS_FAULTS", faults)


def test_a_pool_is_rehearsed_and_what_it_bore_is_shown(podium: Podium, tmp_path: Path) -> None:
    ended = podium(
        "pool", "check", "--stress", "--runs", 20, "--yes", "--pool", pool_file(tmp_path)
    )
    assert ended.code == 0
    first, headings, one, two, _, answered, cost = ended.out.splitlines()
    assert first == "20 runs over 2 workers with faults"
    assert headings.split("  ")[0] == "worker"
    assert (one.split()[0], two.split()[0]) == ("one", "two")
    assert answered.startswith("answered 20 of 20 runs in ")
    assert cost.endswith(": exact")


def test_the_figures_come_as_json_and_agree_with_each_other(podium: Podium, tmp_path: Path) -> None:
    ended = podium(
        "pool", "check", "--stress", "--runs", 40, "--yes", "--json", "--pool", pool_file(tmp_path)
    )
    found = ended.json
    assert (found["runs"], found["answered"], found["answered_share"]) == (40, 40, 1.0)
    assert found["misstated"] == 0
    assert found["retries"] > 0
    calls = sum(worker["calls"] for worker in found["workers"])
    assert calls >= 3 * 40
    assert 0.1 * calls < sum(worker["faults"] for worker in found["workers"]) < 0.3 * calls
    assert found["cost_usd"] > 0
    assert found["unknown_cost"] > 0, "some calls broke off, and nobody knows what they cost"


def test_a_pool_that_cannot_support_it_is_an_error(
    podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stress, "STRESS_FAULTS", Faults(server_error=1.0))
    text = POOL + "[breaker]\nfailures = 3\ncooldown_seconds = 0.001\n"
    ended = podium(
        "pool", "check", "--stress", "--runs", 9, "--yes", "--pool", pool_file(tmp_path, text)
    )
    assert ended.code == 1
    assert "answered 0 of 9 runs" in ended.out
    assert "breakers opened" in ended.out
    assert "not answered: " in ended.out
    assert ended.complaint.startswith("the pool does not withstand that; give workers a fallback")


def test_what_an_open_breaker_refuses_is_no_call_that_failed(
    podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stress, "STRESS_FAULTS", Faults(server_error=1.0))
    impatient = POOL.replace("[retry]", "[retry]\nlongest_requested_wait = 1.0")
    text = impatient + "[breaker]\nfailures = 3\ncooldown_seconds = 60\n"
    found = podium(
        *("pool", "check", "--stress", "--runs", 9, "--yes", "--json"),
        *("--pool", pool_file(tmp_path, text)),
    ).json
    calls = [worker["calls"] for worker in found["workers"]]
    assert [worker["failed"] for worker in found["workers"]] == calls
    assert found["retries"] <= sum(calls) < 27


def test_usage_that_differs_from_the_workers_is_reported(
    podium: Podium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stress, "plausible_usage", lambda usage: Usage(1, 1, 1, 1, 1))
    ended = podium("pool", "check", "--stress", "--runs", 1, "--yes", "--pool", pool_file(tmp_path))
    assert ended.code == 1
    assert ": WRONG for 3 calls" in ended.out


def test_nothing_that_may_be_billed_is_called_unless_that_is_agreed_to(
    podium: Podium, vendor: Vendor, tmp_path: Path
) -> None:
    pool = vendor.pool("one", "two", directory=tmp_path)
    ended = podium("pool", "check", "--stress", "--pool", pool)
    assert ended.code == 2
    assert ended.complaint == (
        "--stress makes about 150 tiny calls, which one, two may charge for; add --yes to make them"
    )
    assert vendor.asked == []
    assert podium("pool", "check", "--stress", "--runs", 2, "--yes", "--pool", pool).code == 0
    assert len(vendor.asked) >= 4


def test_the_list_says_when_a_worker_is_left_alone(podium: Podium, tmp_path: Path) -> None:
    listed = podium("pool", "list", "--pool", pool_file(tmp_path)).out.splitlines()
    assert listed[-1] == (
        "circuit breaker: opens for 5.0 s or more after 8 failures in a row, or when 50% of 50 "
        "calls have failed"
    )
    text = POOL + "[breaker]\non = false\n"
    listed = podium("pool", "list", "--pool", pool_file(tmp_path, text)).out.splitlines()
    assert listed[-1] == "circuit breaker: off; a worker is called however often it fails"
