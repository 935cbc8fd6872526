"""The log of a training: metrics of every step, samples to read, and lines for the terminal.

    metrics.jsonl        one line a step, and one for every measurement
    samples.jsonl        plans, or runs, of every step: some of the best and of the worst
    summary.json         how far it came: steps, minutes, rollouts a second

Only the main process writes. On resume, lines after the checkpoint are written again. Trainers
write the state of the training last; a directory without it is no checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Self

from rich.console import Console

from podium._util.files import NO_SPACE_ERRNOS, write_atomically
from podium.core.errors import ConfigError, StoreError
from podium.train.diagnostics import MAX_DROPPED, StepDiagnostics, collapse_warnings
from podium.train.recipe import Recipe

if TYPE_CHECKING:
    from podium.train.sft import SftEval
    from podium_lab.evolution.training import TurnDiagnostics

METRICS: Final = "metrics.jsonl"
SAMPLES: Final = "samples.jsonl"
SUMMARY: Final = "summary.json"
MISTAKES_SHOWN: Final = 20
WARNING_STEPS: Final = 20
"""Steps that a step is compared with, and in which a warning is printed once."""


class TrainingLog:
    """The log of one training, resumed after a step; 0 starts a new one."""

    def __init__(self, recipe: Recipe, *, after: int = 0, console: Console | None = None) -> None:
        self._output = recipe.output
        self._is_kept = is_main_process()
        if self._is_kept:
            self._output.mkdir(parents=True, exist_ok=True)
        self._console = console or Console(stderr=True, quiet=not self._is_kept)
        self._steps_in_all = recipe.training.steps
        self._history: deque[StepDiagnostics] = deque(maxlen=WARNING_STEPS)
        self._recent_warnings: deque[Set[str]] = deque(maxlen=WARNING_STEPS - 1)
        earlier = _summary(self._output) if after else {}
        self._seconds_before = earlier.get("seconds", 0.0)
        self._rollouts = int(earlier.get("rollouts", 0))
        self._metrics = self._open(METRICS, after)
        self._samples = self._open(SAMPLES, after)
        self._began = time.monotonic()
        self._step_began = self._began
        self._seen: StepDiagnostics | TurnDiagnostics | None = None
        self._more: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._metrics.close()
        self._samples.close()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def step(
        self,
        seen: StepDiagnostics,
        *,
        solved_by_exploring: int = 0,
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        """Take the step's diagnostics, how many questions only exploring solved, and its times."""
        self._record_diagnostics(seen)
        spent = {f"seconds/{what}": round(value, 3) for what, value in (seconds or {}).items()}
        self._more = {**spent, "solved_by_exploring": solved_by_exploring}
        warnings = collapse_warnings(seen, self._history)
        recent = set[str]().union(*self._recent_warnings)
        fresh = [name for name in warnings if name not in recent]
        self._history.append(seen)
        self._recent_warnings.append(set(fresh))
        for name in fresh:
            self.warn(warnings[name])

    def log_candidates(self, seen: TurnDiagnostics) -> None:
        self._record_diagnostics(seen)
        if seen.dropped_share >= MAX_DROPPED:
            self.warn(
                f"{seen.dropped_share:.0%} of the runs say nothing, for workers failed; most: "
                f"{seen.main_drop_reason}"
            )

    def warn(self, words: str) -> None:
        self._print(f"warning: {words}", style="yellow")

    def end_step(self, step: int) -> None:
        now = time.monotonic()
        seconds, self._step_began = now - self._step_began, now
        if self._seen is None:
            return
        seen, self._seen = self._seen, None
        self._write(
            self._metrics,
            {
                "step": step,
                "seconds": round(seconds, 3),
                **_round(seen.as_metrics()),
                **self._more,
            },
        )
        for sample in seen.samples:
            self._write(self._samples, {"step": step, **asdict(sample)})
        self._print(f"step {step}/{self._steps_in_all} {seconds:.1f} s  {seen}")
        self._summarise(step)

    def note(self, words: str) -> None:
        """Print a line; the next step's time starts now."""
        self._print(words)
        self._step_began = time.monotonic()

    def log_measurement(
        self,
        step: int,
        seen: StepDiagnostics | TurnDiagnostics,
        *,
        everyday: float | None = None,
    ) -> None:
        metrics = seen.as_metrics()
        if everyday is not None:
            metrics["everyday"] = everyday
        line = {f"held_out/{name}": value for name, value in _round(metrics).items()}
        self._write(self._metrics, {"step": step, **line})
        kinds = ", ".join(
            f"{kind} {value:.2f}" for kind, value in sorted(seen.accuracy_by_kind.items())
        )
        beside = "" if everyday is None else f", everyday {everyday:.2f}"
        self._print(
            f"held out after step {step}: accuracy {seen.accuracy or 0.0:.3f} ({kinds}){beside}"
        )
        self._step_began = time.monotonic()

    def log_loss(self, step: int, loss: float) -> None:
        self._write(self._metrics, {"step": step, "loss": loss, "seconds": round(self.seconds, 1)})
        self._print(f"step {step}/{self._steps_in_all} {self.seconds:.0f} s  loss {loss:.4f}")
        self._summarise(step)

    def log_evaluation(self, step: int, evals: Sequence[SftEval]) -> None:
        accuracies = {result.adapter: round(result.accuracy, 4) for result in evals}
        line = {f"eval/{name}": accuracy for name, accuracy in accuracies.items()}
        self._write(self._metrics, {"step": step, "seconds": round(self.seconds, 1), **line})
        for result in evals:
            for mistake in result.mistakes[:MISTAKES_SHOWN]:
                entry = {"step": step, "adapter": result.adapter, **asdict(mistake)}
                self._write(self._samples, entry)
        line_text = ", ".join(f"{name} {accuracy:.3f}" for name, accuracy in accuracies.items())
        self._print(f"held-out examples after step {step}: {line_text}")

    def log_stop(self, step: int) -> None:
        """Write that the time limit stopped the training early."""
        self._summarise(step)
        self._print(
            f"stopped after step {step} of {self._steps_in_all}, with a checkpoint; "
            f"--resume continues from there"
        )

    def _record_diagnostics(self, seen: StepDiagnostics | TurnDiagnostics) -> None:
        self._seen = seen
        self._rollouts += seen.rollouts

    def finish(self, more: Mapping[str, float]) -> None:
        self._summarise(self._steps_in_all, finished=True, **more)

    def _summarise(self, step: int, **more: Any) -> None:
        if not self._is_kept:
            return
        seconds = self._seconds_before + self.seconds
        summary = {
            "step": step,
            "seconds": round(seconds, 1),
            "train_minutes": round(seconds / 60, 2),
            "rollouts": self._rollouts,
            "rollouts_per_second": round(self._rollouts / max(seconds, 1e-9), 1),
            **more,
        }
        write_atomically(self._output / SUMMARY, json.dumps(summary, indent=2) + "\n")

    def _print(self, words: str, style: str | None = None) -> None:
        self._console.print(words, style=style, markup=False, highlight=False, soft_wrap=True)

    def _open(self, name: str, after: int) -> IO[str]:
        if not self._is_kept:
            return open(os.devnull, "w", encoding="utf-8")
        path = self._output / name
        if after and path.exists():
            write_atomically(path, "".join(_lines_until(path, after)))
        return path.open("a" if after else "w", encoding="utf-8")

    def _write(self, file: IO[str], line: Mapping[str, Any]) -> None:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.flush()


def _summary(output: Path) -> dict[str, float]:
    """Read the numbers of the summary; a damaged one gives fewer."""
    try:
        found = json.loads((output / SUMMARY).read_text("utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    numbers = found.items() if isinstance(found, dict) else ()
    return {
        name: value
        for name, value in numbers
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max
    }


def _lines_until(path: Path, step: int) -> Iterator[str]:
    for line in path.read_text("utf-8", errors="replace").split("\n"):
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        number = entry.get("step", 0) if isinstance(entry, dict) else None
        if isinstance(number, int) and number <= step:
            yield f"{line}\n"


def _round(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 5) for name, value in metrics.items()}


def process_count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_index() -> int:
    return int(os.environ.get("RANK", "0"))


def wait_for_everyone() -> None:
    if process_count() > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()


def is_main_process() -> bool:
    return process_index() == 0


CHECKPOINTS: Final = "checkpoints"
STATE_FILE: Final = "trainer_state.json"
"""The file that is written last."""

_NAME: Final = re.compile(r"checkpoint-(\d+)")
_DISK_FULL_MESSAGES: Final = ("no space left", "disk quota", "inline_container", "iostream error")
"""Messages of a full disk without an error number; the last two are torch's."""
_NO_MEMORY: Final = "out of memory"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    step: int


def last_checkpoint(output: Path) -> Checkpoint | None:
    found = [
        Checkpoint(path, int(name[1]))
        for path in (output / CHECKPOINTS).glob("checkpoint-*")
        if (name := _NAME.fullmatch(path.name)) and _is_whole(path)
    ]
    return max(found, key=lambda checkpoint: checkpoint.step, default=None)


def _is_whole(path: Path) -> bool:
    try:
        json.loads((path / STATE_FILE).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return True


@contextmanager
def explain_out_of_space(output: Path, *, memory_keys: str) -> Iterator[None]:
    """Turn a full disk or GPU into an error that says which checkpoint is left.

    `memory_keys` names the recipe keys that need less memory when they are lower.
    """
    try:
        yield
    except Exception as error:
        kept = last_checkpoint(output)
        left = f"the checkpoint of step {kept.step} is whole" if kept else "no checkpoint is whole"
        again = "continue with --resume" if kept else "start again"
        if isinstance(error, RuntimeError) and _NO_MEMORY in str(error):
            reason = str(error).partition("\n")[0].partition(". ")[0]
            raise ConfigError(
                f"GPU out of memory; {left} ({reason}); stop other GPU programs, "
                f"then {again}, or start over with a lower {memory_keys}"
            ) from error
        if not _is_disk_full(error):
            raise
        raise StoreError(
            f"no space left in {output}: the last write is lost, {left}; free some, then {again}"
        ) from error


def _is_disk_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in NO_SPACE_ERRNOS:
        return True
    words = str(error).lower()
    return any(sign in words for sign in _DISK_FULL_MESSAGES)
