"""The runs of an evaluation with what their graders thought of them, for a router or a conductor
to learn from. Samples in which a worker failed, or a grader, say nothing of what they are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from podium.credit import Judged
from podium.errors import UnreadableRun, UsageError
from podium.evals.written import MANIFEST, read_line
from podium.run import load

FAULTY: Final = "of which a call, a plan or a grader failed"


def judged_samples(directory: Path, left_out: Counter[str]) -> Iterator[Judged]:
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


def _judged(path: Path, number: int, line: bytes) -> Judged | None:
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
    return Judged(run=run, reward=float(sample.right), source=source, judged_at=run.created_at)
