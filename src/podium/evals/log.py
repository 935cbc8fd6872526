"""The results directory of an evaluation: every sample with its run, and the summary.

    DIR/evaluation.json     the manifest: what is evaluated, and what dropped samples cost
    DIR/conductor.jsonl     a line per sample: its figures and its whole run
    DIR/summary.json        the output of `--json`
    DIR/replies.sqlite3     cached replies

`EvalLogWriter` writes the directory and resumes an interrupted evaluation. `read_eval_log` reads
it back, as far as it was written.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TextIO

from podium._util.files import explain_write_errors, move_into_place, read_json, write_atomically
from podium.core.errors import UnreadableRun, UsageError
from podium.core.run import Run, load
from podium.core.task import JudgedRun
from podium.evals.results import StrategyRow
from podium.evals.sample import Sample, SampleKey

SUMMARY: Final = "summary.json"
MANIFEST: Final = "evaluation.json"
REPLIES: Final = "replies.sqlite3"
LOCK: Final = ".lock"
MANIFEST_VERSION: Final = 1
DROPPED_USD: Final = "dropped_usd"
NEEDED_BYTES: Final = 1_000_000
"""Free disk space that an evaluation needs to start."""

SURROGATE_ERRORS: Final = "backslashreplace"
"""Lone surrogates, which UTF-8 cannot hold, are written as JSON escapes them."""

FAILED_SAMPLE: Final = "samples with an error in a call, a plan or a grader"
_UNSAFE_IN_FILE_NAMES: Final = re.compile(r"[^\w.-]+")


class SampleLine(NamedTuple):
    """A line of a samples file: strategy, sample, the line's JSON, and where it is."""

    strategy: str
    sample: Sample
    document: Mapping[str, Any]
    raw: bytes
    offset: int
    where: str


def read_samples(path: Path) -> Iterator[SampleLine]:
    """Yield every line of a samples file but one that a crash cut off."""
    offset = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if raw.endswith(b"\n"):
                yield _sample_line(path, f"{path}, line {number}", raw, offset)
            offset += len(raw)


def _sample_line(path: Path, where: str, raw: bytes, offset: int) -> SampleLine:
    try:
        document = json.loads(raw)
        strategy = str(document.get("strategy") or path.stem)
        sample = Sample.from_document(document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{where}: expected a sample as podium eval run --output writes them ({error}); remove "
            f"the line, and the sample is run again"
        ) from error
    return SampleLine(strategy, sample, document, raw, offset, where)


class EvalLogWriter:
    """Writes the results directory. Each sample is written as it ends, so a crash keeps it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, TextIO] = {}
        self._created = [path for path in (directory, *directory.parents) if not path.exists()]
        is_started = (directory / MANIFEST).is_file()
        if not is_started and directory.exists() and not _is_unused(directory):
            raise UsageError(
                f"{directory} exists, and is neither empty nor an evaluation that can be resumed; "
                f"name a new directory"
            )

    def __enter__(self) -> Self:
        with self._explain_write_errors(NEEDED_BYTES):
            return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def remove_if_unused(self) -> None:
        """Remove the directory of an evaluation that never started. The caller holds its lock."""
        if not _is_unused(self._directory):
            return
        with suppress(PermissionError):  # some systems keep the lock's file while it is open
            for path in self._directory.iterdir():
                path.unlink()
            for path in self._created:
                if any(path.iterdir()):
                    break
                path.rmdir()

    def resume(
        self,
        manifest: Mapping[str, Any],
        checksums: Mapping[str, str] | None = None,
        *,
        labels: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the evaluation of that manifest, or resume it; reject another one's directory.

        `checksums` are those of the strategies' files: a strategy whose file changed is another
        one. `labels`, such as the name of the pool, are recorded and may change.
        """
        path = self._directory / MANIFEST
        expected = json.loads(json.dumps({"version": MANIFEST_VERSION, **manifest}))
        checksums = checksums or {}
        if not path.is_file():
            write_json(path, {**expected, "checksums": dict(checksums), **(labels or {})})
            return
        found = read_json_object(path)
        for key in expected:
            if found.get(key) != expected[key]:
                raise UsageError(
                    f"{self._directory} holds another evaluation: its {key} is {found.get(key)}, "
                    f"expected {expected[key]}; name a new directory"
                )
        before: dict[str, str] = found.get("checksums") or {}
        for strategy, checksum in checksums.items():
            if before.get(strategy, checksum) != checksum:
                raise UsageError(
                    f"{self._directory} has samples of {strategy!r} from before its file changed; "
                    f"name a new directory"
                )
        if checksums.keys() - before.keys():
            write_json(path, {**found, "checksums": {**before, **checksums}})

    def paid_usd(self) -> float:
        """Return what all samples in this directory cost, dropped ones included."""
        files = sorted(self._directory.glob("*.jsonl"))
        paid = sum(line.sample.paid_usd for path in files for line in read_samples(path))
        return paid + _dropped_usd(read_json_object(self._directory / MANIFEST))

    def known(self, strategy: str, *, retry_errors: bool = False) -> dict[SampleKey, Sample]:
        """Return the samples of a strategy; with `retry_errors`, drop those with an error.

        The cost of dropped samples is recorded first, so a crash can only count it twice. A line
        that a crash cut off is dropped.
        """
        path = samples_path(self._directory, strategy)
        if not path.exists():
            return {}
        with self._explain_write_errors():
            kept, dropped_usd = list[SampleLine](), 0.0
            for line in read_samples(path):
                if line.strategy == strategy and retry_errors and line.sample.error is not None:
                    dropped_usd += line.sample.paid_usd
                else:
                    kept.append(line._replace(document={}))
            if dropped_usd:
                manifest = self._directory / MANIFEST
                found = read_json_object(manifest)
                write_json(manifest, {**found, DROPPED_USD: _dropped_usd(found) + dropped_usd})
            content = b"".join(line.raw for line in kept)
            if content != path.read_bytes():
                draft = path.with_name(f"{path.name}.part")
                draft.write_bytes(content)
                move_into_place(draft, path)
        return {line.sample.key: line.sample for line in kept if line.strategy == strategy}

    def write_sample(self, strategy: str, sample: Sample, run: Run) -> None:
        with self._explain_write_errors():
            file = self._files.get(strategy)
            if file is None:
                path = samples_path(self._directory, strategy)
                file = self._files[strategy] = path.open(
                    "a", encoding="utf-8", errors=SURROGATE_ERRORS
                )
            line = {"strategy": strategy, **sample.document(run)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()

    def _explain_write_errors(self, needed: int = 0) -> AbstractContextManager[None]:
        return explain_write_errors(self._directory, needed, option="--output")


def _is_unused(directory: Path) -> bool:
    """True if the directory has nothing but a lock and a cache."""
    return directory.is_dir() and all(
        path.name == LOCK or path.name.startswith(REPLIES) for path in directory.iterdir()
    )


def _dropped_usd(manifest: Mapping[str, Any]) -> float:
    usd = manifest.get(DROPPED_USD, 0.0)
    if not isinstance(usd, int | float):
        raise UsageError(
            f"{MANIFEST}: expected a number of USD as {DROPPED_USD}, not {usd!r:.40}; name another "
            f"directory"
        )
    return usd


def samples_path(directory: Path, strategy: str) -> Path:
    """Return the path of a strategy's samples; similar names may share a file."""
    return directory / f"{_UNSAFE_IN_FILE_NAMES.sub('-', strategy)}.jsonl"


def write_json(path: Path, document: dict[str, Any]) -> None:
    with explain_write_errors(path.parent, 0):
        text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        write_atomically(path, text.encode("utf-8", SURROGATE_ERRORS).decode("utf-8"))


def read_json_object(path: Path) -> dict[str, Any]:
    advice = "name another directory"
    document = read_json(path, advice)
    if not isinstance(document, dict):
        raise UsageError(f"{path}: expected a JSON object; {advice}")
    return document


def read_judged_runs(directory: Path, skipped: Counter[str]) -> Iterator[JudgedRun]:
    """Yield every sample of a results directory as a run with its reward.

    Samples that failed are counted in `skipped` by the reason.
    """
    if not (directory / MANIFEST).is_file():
        raise UsageError(
            f"{directory} holds no evaluation; name a directory that podium eval run --output wrote"
        )
    for path in sorted(directory.glob("*.jsonl")):
        for line in read_samples(path):
            run = None if line.sample.error is not None else _read_run(line)
            if run is None or run.status != "answered":
                skipped[FAILED_SAMPLE] += 1
                continue
            yield JudgedRun(
                run=run,
                reward=float(line.sample.right),
                source=f"evaluation:{directory.name}/{line.strategy}",
                judged_at=run.created_at,
            )


def _read_run(line: SampleLine) -> Run:
    try:
        return load(line.document["run"])
    except (KeyError, AttributeError, UnreadableRun) as error:
        raise UsageError(
            f"{line.where}: the sample's run cannot be read ({error}); remove the line"
        ) from error


class LinePosition(NamedTuple):
    """The position of a sample: its file, and the offset of its line in bytes."""

    path: Path
    offset: int


@dataclass(frozen=True, slots=True)
class EvalLog:
    """An evaluation, read back.

    `rows` are those of the table, `all_rows` also have the candidates among which a row was
    chosen, and `chosen` says which one. `summary` is the rest of the summary or, of an
    interrupted evaluation, the manifest.
    """

    directory: Path
    rows: tuple[StrategyRow, ...]
    all_rows: tuple[StrategyRow, ...]
    chosen: Mapping[str, str]
    manifest: Mapping[str, Any]
    summary: Mapping[str, Any]
    is_finished: bool
    positions: Mapping[tuple[str, SampleKey], LinePosition]

    @property
    def suite(self) -> str:
        """The suite, or the directory's name if the suite is unknown."""
        return str(self.summary.get("suite") or self.directory.resolve().name)

    @property
    def pool(self) -> str:
        """The pool's name, or nothing if it is unknown."""
        return str(self.summary.get("pool") or "")

    @property
    def tasks(self) -> int:
        return len({sample.task for row in self.all_rows for sample in row.samples})

    def row(self, strategy: str) -> StrategyRow:
        known = {row.strategy: row for row in (*self.all_rows, *self.rows)}
        if strategy not in known:
            raise UsageError(
                f"{self.directory} has samples of {', '.join(known) or 'no strategy'}, and none of "
                f"{strategy!r}: podium eval run --output writes them"
            )
        return known[strategy]

    def run(self, strategy: str, sample: Sample) -> Run:
        return load(self._document(strategy, sample)["run"])

    def answer(self, strategy: str, sample: Sample) -> str | None:
        answer: str | None = self._document(strategy, sample)["run"]["answer"]
        return answer

    def _document(self, strategy: str, sample: Sample) -> dict[str, Any]:
        position = self.positions[self.chosen.get(strategy, strategy), sample.key]
        with position.path.open("rb") as file:
            file.seek(position.offset)
            line: dict[str, Any] = json.loads(file.readline())
            return line


def read_eval_log(directory: Path) -> EvalLog:
    """Read what `podium eval run --output DIR` wrote."""
    summary_path, manifest_path = directory / SUMMARY, directory / MANIFEST
    summary = read_json_object(summary_path) if summary_path.is_file() else {}
    repeats = summary.get("repeats", math.inf)
    found: dict[str, list[Sample]] = {}
    positions: dict[tuple[str, SampleKey], LinePosition] = {}
    for path in sorted(directory.glob("*.jsonl")):
        for line in read_samples(path):
            if line.sample.repeat < repeats:  # else the table was made without it
                found.setdefault(line.strategy, []).append(line.sample)
                positions[line.strategy, line.sample.key] = LinePosition(path, line.offset)
    if not found:
        raise UsageError(
            f"{directory} has no samples; name a directory that podium eval run --output wrote"
        )
    manifest = read_json_object(manifest_path) if manifest_path.is_file() else {}
    summary = summary or manifest
    chosen = {
        str(row["strategy"]): max(row["candidates"], key=row["candidates"].__getitem__)
        for row in summary.get("rows", ())
        if row.get("candidates")
    }
    all_rows = tuple(StrategyRow(name, tuple(samples)) for name, samples in found.items())
    return EvalLog(
        directory=directory,
        rows=tuple(_table_rows(summary.get("rows", ()), found, chosen)) or all_rows,
        all_rows=all_rows,
        chosen=chosen,
        manifest=manifest,
        summary=summary,
        is_finished=summary_path.is_file(),
        positions=positions,
    )


def _table_rows(
    rows: Sequence[Mapping[str, Any]],
    found: Mapping[str, list[Sample]],
    chosen: Mapping[str, str],
) -> Iterator[StrategyRow]:
    for document in rows:
        name = str(document["strategy"])
        samples = found.get(chosen.get(name, name))
        if samples is not None:
            note, candidates = str(document.get("note", "")), document.get("candidates")
            yield StrategyRow(name, tuple(samples), note, candidates)
