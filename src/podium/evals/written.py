"""What an evaluation leaves behind: a directory with every sample and its run, and the table.

DIR/evaluation.json     what is measured: by this an evaluation that was cut off knows its own;
                        and what the samples cost that were measured again
DIR/conductor.jsonl     a line for each task: the sample, and the whole run
DIR/summary.json        what `--json` prints
DIR/replies.sqlite3     what workers replied
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TextIO

from podium._util.files import place, read_json, write_whole, writing
from podium.core.errors import UnreadableRun, UsageError
from podium.core.run import Run, load
from podium.core.task import JudgedRun
from podium.evals.sample import Sample

SUMMARY: Final = "summary.json"
MANIFEST: Final = "evaluation.json"
REPLIES: Final = "replies.sqlite3"
LOCK: Final = ".lock"
MANIFEST_VERSION: Final = 1
DROPPED: Final = "dropped_usd"
"""Where the manifest says what the samples cost that were dropped; without it, nothing was."""

NEEDED_BYTES: Final = 1_000_000
"""Less room than this is not worth starting for."""

HALF_PAIRS: Final = "backslashreplace"
"""How half of a surrogate pair, which no file could hold, is written: just as JSON escapes it."""

EMBEDDED: Final = "embedded"
"""What the embedded pool is called, as files of others are by their names."""

_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]+")


class Try(NamedTuple):
    """A task by its id, and which of its repeats it is, from 0."""

    task: str
    repeat: int


class Line(NamedTuple):
    """A line of a file: the strategy, its sample, and all that is written of it."""

    strategy: str
    sample: Sample
    document: Mapping[str, Any]


class SampleFiles:
    """The files of one evaluation. Lines are written as tasks end, so a crash keeps them, and
    with `resume` the same evaluation goes on from them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files: dict[str, TextIO] = {}
        self._made = [path for path in (directory, *directory.parents) if not path.exists()]
        is_begun = (directory / MANIFEST).is_file()
        if not is_begun and directory.exists() and not _is_empty(directory):
            raise UsageError(
                f"{directory} is there already, and neither empty nor an evaluation that could "
                f"go on; name a new one"
            )

    def __enter__(self) -> Self:
        with self._writing(NEEDED_BYTES):
            return self

    def forget_unless_begun(self) -> None:
        """Leave nothing behind of an evaluation that was refused before it began. It is for whoever
        holds the directory's lock: another one may be about to begin there."""
        if not _is_empty(self._directory):
            return
        with suppress(PermissionError):  # some systems keep the lock's file while it is open
            for path in self._directory.iterdir():
                path.unlink()
            for path in self._made:
                if any(path.iterdir()):
                    break
                path.rmdir()

    def resume(
        self,
        manifest: Mapping[str, Any],
        made_of: Mapping[str, str] | None = None,
        *,
        called: Mapping[str, str | None] | None = None,
    ) -> None:
        """Begin the evaluation that the manifest tells of, or go on with it where it was begun
        before; another one's directory is refused. `made_of` are the checksums of the files that
        strategies are made of: samples of one whose file has changed are another's. What pool and
        conductors were `called` is written down, and may change: the manifest says who they
        are."""
        path = self._directory / MANIFEST
        wanted = json.loads(json.dumps({"version": MANIFEST_VERSION, **manifest}))
        made_of = made_of or {}
        if not path.is_file():
            write_json(path, {**wanted, "made_of": dict(made_of), **(called or {})})
            return
        begun = read_document(path)
        for key in wanted:
            if begun.get(key) != wanted[key]:
                raise UsageError(
                    f"{self._directory} has another evaluation: its {key} is {begun.get(key)}, "
                    f"and this one's is {wanted[key]}; name a new directory"
                )
        before: dict[str, str] = begun.get("made_of") or {}
        for strategy, checksum in made_of.items():
            if before.get(strategy, checksum) != checksum:
                raise UsageError(
                    f"{self._directory} has samples of {strategy!r} from before its file changed; "
                    f"name a new directory"
                )
        if made_of.keys() - before.keys():
            write_json(path, {**begun, "made_of": {**before, **made_of}})

    def paid_usd(self) -> float:
        """What all sittings in this directory have paid, whichever strategies they measured, for
        samples that were dropped as well."""
        paid = sum(
            line.sample.paid_usd
            for path in sorted(self._directory.glob("*.jsonl"))
            for _, line in _lines(path)
        )
        return paid + _dropped_usd(read_document(self._directory / MANIFEST))

    def known(self, strategy: str, *, retry_faults: bool = False) -> dict[Try, Sample]:
        """The samples of that strategy that are there; without those that failed, if these are
        to be measured again. What they cost is written down before they are dropped, so a crash in
        between can only make it too much. A line that a crash has cut off, in the middle of a
        letter perhaps, is dropped."""
        path = sample_file(self._directory, strategy)
        if not path.exists():
            return {}
        with self._writing():
            taken, dropped_usd = list[tuple[bytes, str, Sample]](), 0.0
            for line, (of, sample, _) in _lines(path):
                if of == strategy and retry_faults and sample.fault is not None:
                    dropped_usd += sample.paid_usd
                else:
                    taken.append((line, of, sample))
            if dropped_usd:
                self._note_dropped(dropped_usd)
            kept = b"".join(line + b"\n" for line, _, _ in taken)
            if kept != path.read_bytes():
                draft = path.with_name(f"{path.name}.part")
                draft.write_bytes(kept)
                place(draft, path)
        return {
            Try(sample.task, sample.repeat): sample for _, of, sample in taken if of == strategy
        }

    def keep(self, strategy: str, sample: Sample, run: Run) -> None:
        """Write one sample with its run."""
        with self._writing():
            file = self._files.get(strategy)
            if file is None:
                path = sample_file(self._directory, strategy)
                file = self._files[strategy] = path.open("a", encoding="utf-8", errors=HALF_PAIRS)
            line = {"strategy": strategy, **sample.document(run)}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            file.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.close()

    def _note_dropped(self, usd: float) -> None:
        """Keep in mind what samples cost that are about to be dropped."""
        path = self._directory / MANIFEST
        begun = read_document(path)
        write_json(path, {**begun, DROPPED: _dropped_usd(begun) + usd})

    def _writing(self, needed: int = 0) -> AbstractContextManager[None]:
        return writing(self._directory, needed, option="--output")


def _is_empty(directory: Path) -> bool:
    """Whether there is nothing but what an evaluation leaves that was refused at once."""
    return directory.is_dir() and all(
        path.name == LOCK or path.name.startswith(REPLIES) for path in directory.iterdir()
    )


def _lines(path: Path) -> Iterator[tuple[bytes, Line]]:
    """The lines of a file, less one that was cut off, each as it is written and what it says."""
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        yield line, read_line(path, number, line)


def _dropped_usd(manifest: Mapping[str, Any]) -> float:
    """What the samples cost that were dropped; an older Podium did not write it down."""
    usd = manifest.get(DROPPED, 0.0)
    if not isinstance(usd, int | float):
        raise UsageError(
            f"{MANIFEST}: expected a number of USD as {DROPPED}, not {usd!r:.40}; name another "
            f"directory"
        )
    return usd


def sample_file(directory: Path, strategy: str) -> Path:
    """Where the samples of that strategy are."""
    return directory / f"{_NOT_IN_NAMES.sub('-', strategy)}.jsonl"


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    with writing(path.parent, 0):
        written = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
        write_whole(path, written.encode("utf-8", HALF_PAIRS).decode("utf-8"))


def read_document(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote."""
    advice = "name another directory"
    document = read_json(path, advice)
    if not isinstance(document, dict):
        raise UsageError(f"{path}: expected a JSON object; {advice}")
    return document


def read_line(path: Path, number: int, line: bytes) -> Line:
    """What a line says: names that differ in little may share a file. A line of old says no
    strategy, and its file is named by it."""
    try:
        document = json.loads(line)
        strategy = str(document.get("strategy") or path.stem)
        return Line(strategy, Sample.from_document(document), document)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path}, line {number}: expected a sample as podium eval run --output writes "
            f"them, and it is none ({error}); remove the line, and it is measured again"
        ) from error


FAULTY: Final = "of which a call, a plan or a grader failed"


def judged_samples(directory: Path, left_out: Counter[str]) -> Iterator[JudgedRun]:
    """Every sample in an evaluation's directory as a run with its reward; those that say nothing
    are counted in `left_out` by the reason."""
    if not (directory / MANIFEST).is_file():
        raise UsageError(
            f"{directory} holds no evaluation; name a directory that podium eval run --output "
            f"has written"
        )
    for path in sorted(directory.glob("*.jsonl")):
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):  # it was cut off
                    continue
                judged = _judged(path, number, line)
                if judged is None:
                    left_out[FAULTY] += 1
                else:
                    yield judged


def _judged(path: Path, number: int, line: bytes) -> JudgedRun | None:
    strategy, sample, document = read_line(path, number, line)
    if sample.fault is not None:
        return None
    try:
        run = load(document["run"])
    except (KeyError, AttributeError, UnreadableRun) as error:
        raise UsageError(
            f"{path}, line {number}: the sample has no run that can be read ({error}); remove the "
            f"line"
        ) from error
    if run.status != "answered":
        return None
    source = f"evaluation:{path.parent.name}/{strategy}"
    return JudgedRun(run=run, reward=float(sample.right), source=source, judged_at=run.created_at)
