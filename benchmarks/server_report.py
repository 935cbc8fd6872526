"""The figures of `benchmarks server`, as a table and as one line of JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import ge, le, lt
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.engine import Bar

if TYPE_CHECKING:
    from rich.table import Table

RATE_BAR: Final = Bar(">=", 15.0, ge)
GATEWAY_BAR: Final = Bar("<=", 1.1, le)
ONE_STEP_BAR: Final = Bar("<=", 2.5, le)
FIRST_TOKEN_BAR: Final = Bar("<=", 5.0, le)
START_BAR: Final = Bar("<", 2.0, lt)

Row = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Costs:
    """One turn of a contestant: requests a second, and CPU milliseconds a request."""

    per_second: float
    cpu_ms: float


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a server: seconds until it was ready, and its CPU seconds."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFigures:
    """The turns of each contestant, times to first token and to readiness.

    `litellm_version` is None when the proxy was not measured. `load_average` is the machine's at
    the
    start: it lowers rates, and hardly CPU time.
    """

    costs: Mapping[str, Sequence[Costs]]
    first_tokens: Mapping[str, Sequence[float]]
    starts: Sequence[Start]
    litellm_start: Start | None
    litellm_version: str | None
    load_average: float

    def best_rate(self, name: str) -> float:
        """Requests a second in the fastest turn."""
        return max(costs.per_second for costs in self.costs[name])

    def cpu_ms(self, name: str) -> float:
        """CPU milliseconds a request, the median of the turns."""
        return median(costs.cpu_ms for costs in self.costs[name])

    def first_token_ms(self, name: str) -> float:
        """Milliseconds to the first token, the median of the streams."""
        return median(self.first_tokens[name]) * 1000

    def overhead_ms(self, name: str) -> float:
        """Milliseconds that a server adds to the upstream's time to first token."""
        return self.first_token_ms(name) - self.first_token_ms("upstream")

    @property
    def litellm_rps_ratio(self) -> float | None:
        """Our requests a second over theirs, each in its fastest turn."""
        if self.litellm_version is None:
            return None
        return self.best_rate("podium") / self.best_rate("litellm")

    @property
    def ttft_overhead_ms(self) -> float:
        """The larger overhead of a worker by name and a one-step run."""
        return max(self.overhead_ms("podium"), self.overhead_ms("one_step"))

    @property
    def cold_start_s(self) -> float:
        """Seconds from process start to readiness, the median."""
        return median(start.seconds for start in self.starts)

    def as_json(self) -> str:
        """Return the figures as one line of JSON."""
        ratio, theirs = self.litellm_rps_ratio, self.litellm_start
        return json.dumps(
            {
                "litellm_rps_ratio": None if ratio is None else round(ratio, 2),
                "gateway_cpu_ms": round(self.cpu_ms("podium"), 3),
                "one_step_cpu_ms": round(self.cpu_ms("one_step"), 3),
                "ttft_overhead_ms": round(self.ttft_overhead_ms, 2),
                "cold_start_s": round(self.cold_start_s, 3),
                "requests_per_second": {
                    name: round(self.best_rate(name), 1) for name in self.costs
                },
                "cpu_ms": {name: round(self.cpu_ms(name), 3) for name in self.costs},
                "ttft_ms": {
                    name: round(self.first_token_ms(name), 2) for name in self.first_tokens
                },
                "start_cpu_s": round(median(start.cpu_seconds for start in self.starts), 3),
                "litellm_start_s": None if theirs is None else round(theirs.seconds, 3),
                "rounds": len(self.costs["podium"]),
                "litellm": self.litellm_version,
                "load_average": round(self.load_average, 2),
                "python": platform.python_version(),
                "cpus": os.cpu_count(),
            }
        )

    def as_table(self) -> Table:
        """Return the figures as a table."""
        from rich.table import Table

        peer = f"LiteLLM {self.litellm_version or 'not measured'}"
        table = Table(title=f"32 in flight, at a load average of {self.load_average:.1f}")
        table.add_column("what")
        for heading in ("Podium", peer, "compared"):
            table.add_column(heading, justify="right")
        table.add_column("bar")
        for row in self._rows():
            table.add_row(*row)
        return table

    def _rows(self) -> list[Row]:
        ratio, peer = self.litellm_rps_ratio, self.litellm_version is not None
        own, gateway, one_step = (
            self.first_token_ms("upstream"),
            self.cpu_ms("podium"),
            self.cpu_ms("one_step"),
        )
        return [
            (
                "requests/s",
                f"{self.best_rate('podium'):,.0f}",
                f"{self.best_rate('litellm'):,.0f}" if peer else "",
                f"{ratio:.1f} × theirs" if ratio is not None else "",
                RATE_BAR.verdict(ratio) if ratio is not None else "",
            ),
            (
                "CPU ms, request",
                f"{gateway:.2f}",
                f"{self.cpu_ms('litellm'):.2f}" if peer else "",
                "",
                GATEWAY_BAR.verdict(gateway),
            ),
            ("CPU ms, one step", f"{one_step:.2f}", "", "", ONE_STEP_BAR.verdict(one_step)),
            (
                "first token, ms",
                f"{own + self.ttft_overhead_ms:.2f}",
                f"{self.first_token_ms('litellm'):.2f}" if peer else "",
                f"{self.ttft_overhead_ms:.2f} more",
                FIRST_TOKEN_BAR.verdict(self.ttft_overhead_ms),
            ),
            (
                "start, s",
                f"{self.cold_start_s:.2f}",
                f"{self.litellm_start.seconds:.2f}" if self.litellm_start is not None else "",
                "",
                START_BAR.verdict(self.cold_start_s),
            ),
        ]
