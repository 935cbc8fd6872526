"""What a server has done, in numbers, as Prometheus reads them. Nothing here is about anybody's
words, and nothing is sent anywhere: whoever wants the numbers fetches them. How the processes of
one server add theirs up is `tally`."""

from __future__ import annotations

import asyncio
import json
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, TypeVar

from podium.core.run import Run
from podium.core.usage import NO_USAGE, Usage

Amount = TypeVar("Amount", int, float)


@dataclass(slots=True)
class RequestCost:
    """What a request has come to, also where it was cut off before there was an answer. `run` is
    the run that it began or went on with, as that ended."""

    usage: Usage = NO_USAGE
    orchestration: Usage = NO_USAGE
    cost_usd: float | None = 0.0
    run: Run | None = None

    def add_run(self, run: Run, before: Run | None) -> None:
        """Take what this request added to the run: one that goes on has been billed for what came
        `before`."""
        self.run = run
        self.usage, self.orchestration, self.cost_usd = run.usage, run.orchestration, run.cost_usd
        if before is not None:
            self.usage = _less(run.usage, before.usage)
            self.orchestration = _less(run.orchestration, before.orchestration)
            self.cost_usd = _difference(run.cost_usd, before.cost_usd)


def _less(usage: Usage, before: Usage) -> Usage:
    names = [field.name for field in fields(Usage)]
    return Usage(*(_difference(getattr(usage, name), getattr(before, name)) for name in names))


def _difference(now: Amount | None, then: Amount | None) -> Amount | None:
    """What was added, which is unknown where either is."""
    return None if now is None or then is None else now - then


Labels = tuple[str, ...]
Counted = list[tuple[Sequence[str], list[float]]]
"""Numbers by their labels, as they are written down."""

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""The bounds of the buckets that durations are counted in."""

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Counter:
    """A number that only grows, for each combination of labels."""

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        self.name = name
        self._meaning = meaning
        self._labels = labels
        self._values: dict[Labels, float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        """Count."""
        self._values[labels] = self._values.get(labels, 0) + amount

    def counted(self) -> Counted:
        """What was counted, by labels."""
        return [(labels, [value]) for labels, value in self._values.items()]

    def take(self, counted: Counted) -> None:
        """Add what was counted elsewhere."""
        for labels, (value,) in counted:
            self.add(*labels, amount=value)

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        yield f"# HELP {self.name} {self._meaning}"
        yield f"# TYPE {self.name} counter"
        for labels, value in self._values.items():
            yield f"{self.name}{_labelled(self._labels, labels)} {_number(value)}"


class Histogram:
    """Durations in buckets, for each combination of labels."""

    def __init__(self, name: str, meaning: str, labels: Labels = ()) -> None:
        self.name = name
        self._meaning = meaning
        self._labels = labels
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        """Count a duration."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(SECONDS) + 1)
        counts[bisect_left(SECONDS, seconds)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + seconds

    def counted(self) -> Counted:
        """What was counted, by labels: the sum, and then each bucket."""
        return [(key, [self._sums[key], *counts]) for key, counts in self._counts.items()]

    def take(self, counted: Counted) -> None:
        """Add what was counted elsewhere."""
        for labels, (total, *counts) in counted:
            key = tuple(labels)
            own = self._counts.get(key, [0] * (len(SECONDS) + 1))
            self._counts[key] = [one + int(other) for one, other in zip(own, counts, strict=True)]
            self._sums[key] = self._sums.get(key, 0.0) + total

    def lines(self) -> Iterator[str]:
        """As Prometheus reads it."""
        yield f"# HELP {self.name} {self._meaning}"
        yield f"# TYPE {self.name} histogram"
        for labels, counts in self._counts.items():
            total = 0
            for bound, count in zip((*map(str, SECONDS), "+Inf"), counts, strict=True):
                total += count
                names = _labelled((*self._labels, "le"), (*labels, bound))
                yield f"{self.name}_bucket{names} {total}"
            names = _labelled(self._labels, labels)
            yield f"{self.name}_sum{names} {_number(self._sums[labels])}"
            yield f"{self.name}_count{names} {total}"


class Metrics:
    """Everything that is counted."""

    def __init__(self) -> None:
        self.requests = Counter(
            "podium_requests_total",
            "Requests that have ended, by endpoint, model and status.",
            ("endpoint", "model", "status"),
        )
        self.seconds = Histogram(
            "podium_request_seconds",
            "How long requests took, to the last byte.",
            ("endpoint", "model"),
        )
        self.first_token = Histogram(
            "podium_first_piece_seconds",
            "How long streams took to their first byte.",
            ("endpoint", "model"),
        )
        self.tokens = Counter(
            "podium_tokens_total",
            "Tokens that the providers reported, by model and kind.",
            ("model", "kind"),
        )
        self.cost = Counter(
            "podium_cost_usd_total", "US dollars, where the price is known, by model.", ("model",)
        )
        self.runs = Counter("podium_runs_total", "Runs that have ended, by status.", ("status",))
        self.openings = Counter(
            "podium_breaker_openings_total",
            "How often a worker was left alone, for it had failed too often.",
            ("worker",),
        )
        self.recovered = Counter(
            "podium_runs_recovered_total",
            "Runs that were cut off with their process and carried to an end here, by status.",
            ("status",),
        )
        self.guardrails = Counter(
            "podium_guardrails_total",
            "What guardrails did, by guardrail, stage and action.",
            ("guardrail", "stage", "action"),
        )

    @property
    def _all(self) -> tuple[Counter | Histogram, ...]:
        counted = (self.requests, self.seconds, self.first_token, self.tokens, self.cost)
        return (*counted, self.runs, self.recovered, self.guardrails, self.openings)

    def counted(self) -> dict[str, Counted]:
        """Everything that was counted, by name."""
        return {each.name: each.counted() for each in self._all}

    def take(self, counted: Mapping[str, Counted]) -> None:
        """Add what was counted elsewhere."""
        for each in self._all:
            each.take(counted[each.name])

    def text(self, **now: float) -> bytes:
        """The page; `now` are numbers as they stand at this moment, by their names."""
        lines = [line for each in self._all for line in each.lines()]
        for name, value in now.items():
            lines += (f"# TYPE podium_{name} gauge", f"podium_{name} {_number(value)}")
        return ("\n".join(lines) + "\n").encode()


def _labelled(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return f"{value:.10g}"


WRITE_SECONDS: Final = 1.0


class Tally:
    """Writes the numbers of one process, `name` among all, and reads everybody's."""

    def __init__(self, metrics: Metrics, directory: Path, name: str = str(os.getpid())) -> None:
        self._metrics = metrics
        self._directory = directory
        self._own = directory / f"{name}.json"

        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Write what was counted, now and about once a second."""
        self._writing = asyncio.create_task(self._keep_writing())

    async def close(self) -> None:
        """Write a last time."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})
        self.write()

    async def _keep_writing(self) -> None:
        while True:
            self.write()
            await asyncio.sleep(WRITE_SECONDS)

    def write(self) -> None:
        """Write what was counted so far; readers see all of it, or all that was there before."""
        unfinished = self._own.with_suffix(".new")
        unfinished.write_text(json.dumps(self._metrics.counted()), "utf-8")
        unfinished.replace(self._own)

    def whole(self) -> Metrics:
        """What all processes have counted; the others, when they wrote last."""
        whole = Metrics()
        whole.take(self._metrics.counted())
        for file in self._directory.glob("*.json"):
            if file != self._own:
                whole.take(json.loads(file.read_text("utf-8")))
        return whole
