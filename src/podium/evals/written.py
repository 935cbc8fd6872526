"""What an evaluation leaves behind: a directory with every sample and its run, and the table.

DIR/conductor.jsonl     a line for each task: the sample, and the whole run
DIR/summary.json        what `--json` prints
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from podium.errors import UsageError
from podium.evals.sample import Sample
from podium.files import write_whole, writing
from podium.run import Run

SUMMARY: Final = "summary.json"
NEEDED_BYTES: Final = 1_000_000
"""Less room than this is not worth starting for."""

_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]+")


class SampleFiles:
    """The files of one evaluation. Lines are written as tasks end, so a crash keeps them."""

    def __init__(self, directory: Path) -> None:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise UsageError(
                f"{directory} is there already and not an empty directory; name a new one"
            )
        self._directory = directory
        self._files: dict[str, TextIO] = {}

    def __enter__(self) -> Self:
        with writing(self._directory, NEEDED_BYTES):
            return self

    def keep(self, strategy: str, sample: Sample, run: Run) -> None:
        """Write one sample with its run."""
        with writing(self._directory, 0):
            file = self._files.get(strategy)
            if file is None:
                path = sample_file(self._directory, strategy)
                file = self._files[strategy] = path.open("w", encoding="utf-8")
            file.write(json.dumps(sample.document(run), ensure_ascii=False) + "\n")
            file.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files.values():
            file.close()


def sample_file(directory: Path, strategy: str) -> Path:
    """Where the samples of that strategy are."""
    return directory / f"{_NOT_IN_NAMES.sub('-', strategy)}.jsonl"


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    with writing(path.parent, 0):
        write_whole(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
