"""`deploy/kubernetes.yaml` as it stands, and what the page on scaling says of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

CLONE: Final = Path(__file__).parents[2]
MANIFEST: Final = (CLONE / "deploy" / "kubernetes.yaml").read_text("utf-8")


def number(pattern: str) -> int:
    found = re.search(pattern, MANIFEST)
    assert found is not None, pattern
    return int(found[1])


def test_a_replica_leaves_the_load_balancer_before_it_is_stopped_and_has_time_to_drain() -> None:
    before = number(r'preStop:\n[^\n]*\n\s+exec: \{ command: \["sleep", "(\d+)"\] \}')
    checks = number(r"readinessProbe:\n(?:.*\n)*?\s+periodSeconds: (\d+)")
    misses = number(r"readinessProbe:\n(?:.*\n)*?\s+failureThreshold: (\d+)")
    assert before > checks * misses, "whoever is not ready is found out by then"
    drain = number(r"drain_seconds = (\d+)")
    assert number(r"terminationGracePeriodSeconds: (\d+)") > before + drain


def test_the_page_says_that_a_replica_which_stops_refuses_connections_and_what_to_do() -> None:
    page = " ".join((CLONE / "docs" / "reference" / "scaling.md").read_text("utf-8").split())
    stopped = page.partition("**When one is stopped**")[2].partition("**")[0]
    assert "it refuses connections at once, `/readyz` included" in stopped
    assert "`preStop` waits five seconds in `deploy/kubernetes.yaml`" in stopped
