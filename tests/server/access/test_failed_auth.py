from __future__ import annotations

import pytest

from podium.server.access import authenticator as authenticator
from podium.server.access.authenticator import FAILURES_PER_MINUTE, FailedAuthLimiter, network_of


def test_each_address_has_its_own_count_which_passes_with_time() -> None:
    counted = FailedAuthLimiter()
    for _ in range(FAILURES_PER_MINUTE):
        assert counted.wait("1.2.3.4", 0.0) == 0
        counted.add("1.2.3.4", 0.0)
    assert counted.wait("1.2.3.4", 0.0) == pytest.approx(60 / FAILURES_PER_MINUTE)
    assert counted.wait("4.3.2.1", 0.0) == 0
    assert counted.wait("1.2.3.4", 60.0) == 0


def test_the_least_recent_entry_is_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "MAX_ADDRESSES", 2)
    counted = FailedAuthLimiter()
    for address in ("a", "b", "a", "c"):
        for _ in range(FAILURES_PER_MINUTE):
            counted.add(address, 0.0)
    assert [counted.wait(address, 0.0) > 0 for address in "abc"] == [True, False, True]


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("1.2.3.4", "1.2.3.5", False),
        ("", "testclient", False),
        (":odd", ":odd", True),
    ],
)
def test_of_version_6_a_customers_network_counts_as_one(one: str, other: str, is_one: bool) -> None:
    assert (network_of(one) == network_of(other)) is is_one
