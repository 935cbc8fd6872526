"""Training runs and evaluations on disk, for the web pages.

The formats are those of `podium train` and `podium eval run` (see docs/reference/training.md);
nothing here imports either. Other processes write these files meanwhile: reads are bounded and
end at a whole line.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple

from podium.server.worker_statistics import format_timestamp

MAX_BYTES: Final = 32_000_000
"""Bytes read of a file; of a larger one, the last."""

MAX_JSON_BYTES: Final = 8_000_000


class FileTail(NamedTuple):
    """The last whole lines of a file. `skipped` counts the bytes before them; `modified` is None
    if there is no file."""

    lines: tuple[bytes, ...] = ()
    skipped: int = 0
    modified: float | None = None


def read_tail(path: Path, *, most: int = MAX_BYTES) -> FileTail:
    """Read the whole lines in the last `most` bytes of a file."""
    file = open_regular_file(path)
    if file is None:
        return FileTail()
    with file:
        status = os.fstat(file.fileno())
        if status.st_size > most:
            file.seek(status.st_size - most)
            file.readline(most)
        start = file.tell()
        data = file.read(most)
    lines = data[: data.rfind(b"\n") + 1].split(b"\n")
    return FileTail(tuple(line for line in lines if line.strip()), start, status.st_mtime)


def count_lines(path: Path, most: int) -> int:
    """Count the whole lines in the first `most` bytes."""
    file = open_regular_file(path)
    if file is None:
        return 0
    with file:
        return sum(file.read(1_000_000).count(b"\n") for _ in range(0, most, 1_000_000))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if there is none, or it is not completely written."""
    file = open_regular_file(path)
    if file is None:
        return {}
    with file:
        data = file.read(MAX_JSON_BYTES + 1)
    try:
        document = json.loads(data, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def open_regular_file(path: Path) -> BinaryIO | None:
    """Open a file for reading; None if it cannot be read or is not regular: a link could lead
    anywhere, and reading a pipe would block."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb")


METRICS: Final = "metrics.jsonl"
METRICS_SUFFIX: Final = ".jsonl"
METRICS_PREFIX: Final = b'{"step"'
"""The first bytes of a metrics file."""

SUMMARY: Final = "summary.json"
MANIFEST: Final = "evaluation.json"
REPORT: Final = "report.html"

MAX_DEPTH: Final = 3
MAX_FOUND: Final = 500
MAX_ENTRIES: Final = 5_000
"""Limits of the search, so that a directory named by mistake does not keep the server busy."""

MAX_FILES_OPENED: Final = 200
"""Files of one directory that are opened to check for metrics."""

Kind = Literal["training", "evaluation", "report"]

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Artifact:
    """A training run, evaluation or report. `path` is its directory or metrics file."""

    name: str
    title: str
    kind: Kind
    path: Path
    report: Path | None = None

    @property
    def metrics(self) -> Path:
        return self.path if self.path.suffix == METRICS_SUFFIX else self.path / METRICS


@dataclass(frozen=True, slots=True)
class ArtifactDirectory:
    """A configured directory, its artifacts, and why it cannot be read."""

    path: Path
    artifacts: tuple[Artifact, ...]
    problem: str = ""


DEFAULT_DIRECTORIES: Final = ("measured", "trained")
"""Where `podium eval run` and `podium train` write by the docs and recipes."""


def find_directories(directories: Sequence[str] | None) -> list[ArtifactDirectory]:
    """Find the artifacts of all directories, each once and with a unique name; by default of those
    of `DEFAULT_DIRECTORIES` that are in the working directory."""
    taken: set[str] = set()
    seen: set[Path] = set()
    named = [Path(name) for name in (DEFAULT_DIRECTORIES if directories is None else directories)]
    return [
        _scan_directory(path, taken, seen)
        for path in named
        if directories is not None or path.is_dir()
    ]


def find_artifact(directories: Sequence[str] | None, name: str) -> Artifact | None:
    artifacts = (
        artifact for named in find_directories(directories) for artifact in named.artifacts
    )
    return next((artifact for artifact in artifacts if artifact.name == name), None)


def _scan_directory(root: Path, taken: set[str], seen: set[Path]) -> ArtifactDirectory:
    try:
        if root.is_dir():
            found = list(_within(root, root.name, MAX_DEPTH))[:MAX_FOUND]
        elif root.is_file():
            found = list(_of_file(root, root.stem))
        else:
            return ArtifactDirectory(root, (), "directory not found")
    except OSError as error:
        return ArtifactDirectory(root, (), f"cannot be read: {error.strerror}")
    new = {item.path.resolve(): item for item in found}
    kept = tuple(_under_own_name(new[path], taken) for path in new if path not in seen)
    seen.update(new)
    return ArtifactDirectory(root, kept)


def _under_own_name(artifact: Artifact, taken: set[str]) -> Artifact:
    plain = ".".join(_UNSAFE.sub("-", part).strip("-") or "-" for part in artifact.title.split("/"))
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    taken.add(name)
    return replace(artifact, name=name)


def _within(directory: Path, title: str, depth: int) -> Iterator[Artifact]:
    files, directories = _list_names(directory)
    kind = _kind(directory, files)
    if kind is not None:
        yield Artifact("", title, kind, directory, _report(directory, files, directories))
        return
    lines = [name for name in files if name.endswith(METRICS_SUFFIX)]
    for name in lines[:MAX_FILES_OPENED]:
        yield from _of_file(directory / name, f"{title}/{Path(name).stem}")
    if depth:
        for name in directories:
            yield from _within_readable(directory / name, f"{title}/{name}", depth - 1)


def _within_readable(directory: Path, title: str, depth: int) -> Iterator[Artifact]:
    try:
        yield from _within(directory, title, depth)
    except OSError:  # an unreadable directory must not hide the others
        return


def _list_names(directory: Path) -> tuple[list[str], list[str]]:
    """Return the names of files and directories, sorted; links are left out."""
    files, directories = [], []
    with os.scandir(directory) as entries:
        for _, entry in zip(range(MAX_ENTRIES), entries, strict=False):
            if entry.is_file(follow_symlinks=False):
                files.append(entry.name)
            elif entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                directories.append(entry.name)
    return sorted(files), sorted(directories)


def _kind(directory: Path, files: Sequence[str]) -> Kind | None:
    if MANIFEST in files:
        return "evaluation"
    if METRICS in files:
        return "training"
    if SUMMARY in files:
        summary = read_json(directory / SUMMARY)
        if "rows" in summary:
            return "evaluation"
        if "train_minutes" in summary:
            return "training"
    return "report" if REPORT in files else None


def _report(directory: Path, files: Sequence[str], directories: Sequence[str]) -> Path | None:
    if REPORT in files:
        return directory / REPORT
    beside = directory / "report"
    if beside.name in directories and REPORT in _list_names(beside)[0]:
        return beside / REPORT
    return None


def _of_file(path: Path, title: str) -> Iterator[Artifact]:
    """Yield the artifact of a metrics file outside a run's directory."""
    file = open_regular_file(path) if path.suffix == METRICS_SUFFIX else None
    if file is None:
        return
    with file:
        is_metrics = file.read(len(METRICS_PREFIX)) == METRICS_PREFIX
    if is_metrics:
        yield Artifact("", title, "training", path)


SAMPLES: Final = "samples.jsonl"

MAX_POINTS: Final = 400
"""Points of a series; a longer one has the means of consecutive steps."""

SHARE_PREFIXES: Final = ("steps/", "shape/")
"""Prefixes of series of shares; a missing value is zero."""

MAX_SERIES: Final = 500
MAX_NUMBER: Final = 1e15
"""Larger numbers are ignored."""

MAX_SAMPLES: Final = 50
MAX_SAMPLE_CHARS: Final = 8_000

_STEP: Final = re.compile(rb'(?=\{"step")')
"""The start of an entry, also after one that a crash left incomplete."""

_STEP_OF: Final = re.compile(rb'\s*\{"step":\s*([0-9]{1,12})')

Series = dict[str, dict[int, float]]


def training_document(artifact: Artifact, most: int = MAX_BYTES) -> dict[str, Any]:
    """Return a training run with its series. Without a summary it is unknown whether it has
    finished."""
    tail = read_tail(artifact.metrics, most=most)
    series, left_out = read_series(tail.lines)
    summary = _summary(artifact)
    return {
        "object": "training",
        "name": artifact.name,
        "title": artifact.title,
        "summary": summary,
        "is_finished": summary.get("finished") is True if summary else None,
        "updated_at": format_timestamp(tail.modified),
        "series": _downsample(series),
        "left_out": left_out,
        "skipped_bytes": tail.skipped,
    }


def samples_document(artifact: Artifact, step: int | None) -> dict[str, Any]:
    """Return the samples of the step, or of the latest step before it that has some; by default
    of the last one. `steps` are all steps with samples."""
    lines: dict[int, list[bytes]] = {}
    if artifact.path != artifact.metrics:
        for line in read_tail(artifact.path / SAMPLES).lines:
            match = _STEP_OF.match(line)
            if match is not None:
                lines.setdefault(int(match[1]), []).append(line)
    steps = sorted(lines)
    chosen = max((item for item in steps if step is None or item <= step), default=None)
    chosen = steps[0] if chosen is None and steps else chosen
    found = lines.get(chosen, []) if chosen is not None else []
    return {
        "object": "samples",
        "name": artifact.name,
        "steps": steps,
        "step": chosen,
        "samples": [sample for line in found[:MAX_SAMPLES] if (sample := _sample(line))],
        "more": max(0, len(found) - MAX_SAMPLES),
    }


def read_series(lines: Iterable[bytes]) -> tuple[Series, int]:
    """Return the series and the number of invalid lines. A repeated step was resumed from a
    checkpoint: it replaces all later steps."""
    series: Series = {}
    left_out = 0
    for line in lines:
        for piece in _STEP.split(line):
            if piece.strip():
                entry = _entry(piece)
                if entry is None:
                    left_out += 1
                else:
                    _add_entry(series, *entry)
    return series, left_out


def _entry(piece: bytes) -> tuple[int, dict[str, float]] | None:
    try:
        entry = json.loads(piece)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    step = entry.pop("step", None)
    if not _is_number(step):
        return None
    numbers = {name: float(value) for name, value in entry.items() if _is_number(value)}
    if "rollouts" not in numbers:
        numbers.pop("seconds", None)  # without rollouts, they are those of the whole training
    return int(step), numbers


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER
    )


def _add_entry(series: Series, step: int, numbers: Mapping[str, float]) -> None:
    if any(step in series.get(name, ()) for name in numbers):
        for values in series.values():
            for lost in [at for at in values if at >= step]:
                del values[lost]
    for name, value in numbers.items():
        if name in series or len(series) < MAX_SERIES:
            series.setdefault(name, {})[step] = value


def _downsample(series: Series) -> dict[str, list[list[float]]]:
    """Return lists of points, thinned in the same way for all series."""
    steps = sorted({step for values in series.values() for step in values})
    together = math.ceil(len(steps) / MAX_POINTS)
    if together < 2:
        return {name: [[*point] for point in sorted(v.items())] for name, v in series.items()}
    last = {
        step: steps[min(position - position % together + together, len(steps)) - 1]
        for position, step in enumerate(steps)
    }
    planned = dict.fromkeys(series.get("mean_steps", ()), 0.0)
    return {
        name: _group_means(planned | values if name.startswith(SHARE_PREFIXES) else values, last)
        for name, values in series.items()
    }


def _group_means(values: Mapping[int, float], last: Mapping[int, int]) -> list[list[float]]:
    """Return the means of grouped steps, each at the last step of its group."""
    found: dict[int, list[float]] = {}
    for step, value in sorted(values.items()):
        found.setdefault(last[step], []).append(value)
    return [[step, sum(some) / len(some)] for step, some in found.items()]


def _summary(artifact: Artifact) -> dict[str, float | bool]:
    if artifact.path == artifact.metrics:
        return {}
    summary = read_json(artifact.path / SUMMARY)
    return {
        name: value
        for name, value in summary.items()
        if _is_number(value) or isinstance(value, bool)
    }


def _sample(line: bytes) -> dict[str, Any] | None:
    try:
        sample = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return {
        name: value[:MAX_SAMPLE_CHARS] if isinstance(value, str) else value
        for name, value in sample.items()
        if isinstance(value, str | bool) or _is_number(value)
    }


MAX_ROWS: Final = 200
MAX_FILES: Final = 200
MAX_COUNTED: Final = 256_000_000
"""Bytes of a sample file in which samples are counted."""


def evaluation_document(artifact: Artifact) -> dict[str, Any]:
    """Return the table so far, and the number of samples of each strategy."""
    summary = read_json(artifact.path / SUMMARY)
    settings = summary or read_json(artifact.path / MANIFEST)
    return {
        "object": "evaluation",
        "name": artifact.name,
        "title": artifact.title,
        "is_finished": bool(summary) and "stopped" not in summary,
        "updated_at": format_timestamp(_latest(artifact.path)),
        "has_report": artifact.report is not None,
        **{
            name: settings.get(name)
            for name in ("suite", "n", "repeats", "seed", "limit", "strategies")
        },
        "rows": _objects(summary.get("rows"))[:MAX_ROWS],
        "problems": _objects(summary.get("problems")),
        "stopped": summary.get("stopped"),
        "samples": {
            file.stem: count_lines(file, MAX_COUNTED) for file in _sample_files(artifact.path)
        },
    }


MAX_RESULTS: Final = 5_000
MAX_RESULT_CHARS: Final = 400
RESULT_FIELDS: Final = (
    *("task", "repeat", "kind", "difficulty", "right", "valid", "expected", "grader", "judge"),
    *("error", "error_source", "steps", "calls", "seconds", "cost_usd", "cached_calls"),
)


def results_document(artifact: Artifact) -> dict[str, Any]:
    """Return every sample of an evaluation without its run; long texts are truncated."""
    results, left_out, skipped = list[dict[str, Any]](), 0, 0
    for file in _sample_files(artifact.path):
        tail = read_tail(file)
        skipped += tail.skipped
        for line in tail.lines:
            sample = _read_result(line, file.stem)
            if sample is None or len(results) >= MAX_RESULTS:
                left_out += 1
                continue
            run = sample["run"]
            texts = {name: run.get(name) for name in ("question", "answer", "status")}
            shown = {name: sample.get(name) for name in RESULT_FIELDS} | texts
            results.append(
                {"strategy": sample["strategy"]}
                | {k: v[:MAX_RESULT_CHARS] if isinstance(v, str) else v for k, v in shown.items()}
            )
    return {"object": "list", "data": results, "left_out": left_out, "skipped_bytes": skipped}


def find_result(artifact: Artifact, strategy: str, task: str, repeat: int) -> dict[str, Any] | None:
    """Return a sample of an evaluation with its run, as it was written."""
    for file in _sample_files(artifact.path):
        for line in read_tail(file).lines:
            found = _read_result(line, file.stem)
            if found is not None and (strategy, task, repeat) == (
                found["strategy"],
                found.get("task"),
                found.get("repeat", 0),
            ):
                return found
    return None


def _read_result(line: bytes, strategy: str) -> dict[str, Any] | None:
    try:
        sample = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    if not isinstance(sample, dict) or not isinstance(sample.get("run", {}), dict):
        return None
    return {"run": {}, "strategy": strategy, **sample}


def evaluation_summary(artifact: Artifact) -> dict[str, Any]:
    """Return what a list shows of an evaluation."""
    summary = read_json(artifact.path / SUMMARY)
    rows = [row for row in _objects(summary.get("rows")) if _is_number(row.get("accuracy"))]
    best = max(rows, key=lambda row: float(row["accuracy"]), default={})
    settings = summary or read_json(artifact.path / MANIFEST)
    return {
        "suite": settings.get("suite"),
        "is_finished": bool(summary) and "stopped" not in summary,
        "best": {name: best.get(name) for name in ("strategy", "accuracy")} if best else None,
    }


def _objects(found: Any) -> list[dict[str, Any]]:
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def _sample_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jsonl"))[:MAX_FILES] if directory.is_dir() else []


def _latest(directory: Path) -> float | None:
    times = []
    for file in (*directory.glob("*.jsonl"), directory / SUMMARY, directory / MANIFEST):
        try:
            times.append(file.lstat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)
