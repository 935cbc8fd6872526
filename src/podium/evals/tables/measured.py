"""An evaluation as it lies on disk, read back: its rows, and the run behind any sample.

    measured = read_measured(Path("measured/math500"))
    measured.rows                               # as the table had them
    measured.run("conductor", sample)           # read when it is asked for

What wrote it is `podium.evals.written`. An evaluation that was cut off is read as far as it came.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from podium.core.errors import UsageError
from podium.core.run import Run, load
from podium.evals.sample import Sample
from podium.evals.tables.row import Row
from podium.evals.written import MANIFEST, SUMMARY, read_document, read_line


class Place(NamedTuple):
    """Where a sample stands: its file, and how many bytes come before it."""

    path: Path
    offset: int


@dataclass(frozen=True, slots=True)
class Measured:
    """One evaluation.

    `rows` are those of the table; `measured` are the strategies that samples were written of,
    the candidates among which a row was chosen included; `chosen` says which one that was. `begun`
    is what the evaluation set out to measure, empty where nothing says it. `told` is the rest of
    the summary: the suite, the seed, what went wrong; and of an evaluation that was cut off, just
    what it set out to measure.
    """

    directory: Path
    rows: tuple[Row, ...]
    measured: tuple[Row, ...]
    chosen: Mapping[str, str]
    begun: Mapping[str, Any]
    told: Mapping[str, Any]
    is_finished: bool
    places: Mapping[tuple[str, str, int], Place]

    @property
    def suite(self) -> str:
        """What was measured on; the directory's name where nothing says it."""
        return str(self.told.get("suite") or self.directory.resolve().name)

    @property
    def pool(self) -> str:
        """What the workers' pool is called: its file's name, or `embedded`; empty where nothing
        says it."""
        return str(self.told.get("pool") or "")

    @property
    def tasks(self) -> int:
        """How many different tasks there are samples of."""
        return len({sample.task for row in self.measured for sample in row.samples})

    def row(self, strategy: str) -> Row:
        """The row of that strategy, or the samples of one that a row was chosen among."""
        known = {row.strategy: row for row in (*self.measured, *self.rows)}
        if strategy not in known:
            raise UsageError(
                f"{self.directory} has samples of {', '.join(known) or 'no strategy'}, and none of "
                f"{strategy!r}: podium eval run --output writes them"
            )
        return known[strategy]

    def run(self, strategy: str, sample: Sample) -> Run:
        """Everything that happened in that sample of that strategy."""
        return load(self._line(strategy, sample)["run"])

    def answer(self, strategy: str, sample: Sample) -> str | None:
        """What was answered in that sample."""
        answer: str | None = self._line(strategy, sample)["run"]["answer"]
        return answer

    def _line(self, strategy: str, sample: Sample) -> dict[str, Any]:
        name = self.chosen.get(strategy, strategy)
        place = self.places[name, sample.task, sample.repeat]
        with place.path.open("rb") as file:
            file.seek(place.offset)
            line: dict[str, Any] = json.loads(file.readline())
            return line


def read_measured(directory: Path) -> Measured:
    """Read what `podium eval run --output DIR` wrote."""
    summary, manifest = directory / SUMMARY, directory / MANIFEST
    told = read_document(summary) if summary.is_file() else {}
    found: dict[str, list[Sample]] = {}
    places: dict[tuple[str, str, int], Place] = {}
    for path in sorted(directory.glob("*.jsonl")):
        for place, strategy, sample in _lines(path):
            if sample.repeat < told.get("repeats", math.inf):  # else the table was made without it
                found.setdefault(strategy, []).append(sample)
                places[strategy, sample.task, sample.repeat] = place
    if not found:
        raise UsageError(
            f"{directory} has no samples; name a directory that podium eval run --output wrote"
        )
    begun = read_document(manifest) if manifest.is_file() else {}
    told = told or begun
    chosen = {
        str(row["strategy"]): max(row["candidates"], key=row["candidates"].__getitem__)
        for row in told.get("rows", ())
        if row.get("candidates")
    }
    return Measured(
        directory=directory,
        rows=tuple(_rows(told.get("rows", ()), found, chosen)) or _plain_rows(found),
        measured=_plain_rows(found),
        chosen=chosen,
        begun=begun,
        told=told,
        is_finished=summary.is_file(),
        places=places,
    )


def _lines(path: Path) -> Iterator[tuple[Place, str, Sample]]:
    """The samples of a file. A last line without an end was cut off, and is none."""
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                strategy, sample, _ = read_line(path, number, line)
                yield Place(path, offset), strategy, sample
            offset += len(line)


def _rows(
    told: Sequence[Mapping[str, Any]],
    found: Mapping[str, list[Sample]],
    chosen: Mapping[str, str],
) -> Iterator[Row]:
    """The table's rows, with the samples of the strategy that each was chosen to be."""
    for document in told:
        name = str(document["strategy"])
        samples = found.get(chosen.get(name, name))
        if samples is not None:
            note, candidates = str(document.get("note", "")), document.get("candidates")
            yield Row(name, tuple(samples), note, candidates)


def _plain_rows(found: Mapping[str, list[Sample]]) -> tuple[Row, ...]:
    return tuple(Row(name, tuple(samples)) for name, samples in found.items())
