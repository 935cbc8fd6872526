"""What happens during a run, as it happens.

The engine's event stream is the only way to watch a run: the command line, the server and the
tests all read the same events. A nested run's events come through its parent's stream, under
its own `run_id`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podium.run import Round, Run, StepRecord
from podium.workflow import Workflow


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run began or was resumed. `parent` is the run it is nested in, and that run's step."""

    run: Run
    parent: tuple[str, int] | None = None

    @property
    def run_id(self) -> str:
        """The run that began."""
        return self.run.id


@dataclass(frozen=True, slots=True)
class Planned:
    """The conductor wrote a workflow, or accepted the last answer (`workflow` is None)."""

    run_id: str
    round: Round

    @property
    def workflow(self) -> Workflow | None:
        """What will be carried out."""
        return self.round.workflow


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step's inputs are done and its worker is being asked. `prompt` is what it receives."""

    run_id: str
    round: int
    index: int
    worker: str
    prompt: str


@dataclass(frozen=True, slots=True)
class StepRetried:
    """A call failed and will be made again, perhaps by the fallback `worker`.

    Deltas of the failed call are void: its reply starts anew.
    """

    run_id: str
    round: int
    index: int
    worker: str
    error: str
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class StepDelta:
    """A piece of the final step's reply, or of its thinking, as the worker produces it."""

    run_id: str
    round: int
    index: int
    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class StepNoted:
    """The run nested in a step has got further. `step` is what a resume would go on from, should
    the process end now; the step itself goes on."""

    run_id: str
    step: StepRecord


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step ended: done, failed, skipped or cancelled."""

    run_id: str
    step: StepRecord


@dataclass(frozen=True, slots=True)
class RoundDone:
    """Every step of a round has ended."""

    run_id: str
    round: Round


@dataclass(frozen=True, slots=True)
class RunDone:
    """The run ended; it is complete now."""

    run: Run

    @property
    def run_id(self) -> str:
        """The run that ended."""
        return self.run.id


Event = (
    RunStarted
    | Planned
    | StepStarted
    | StepRetried
    | StepDelta
    | StepNoted
    | StepDone
    | RoundDone
    | RunDone
)

Emit = Callable[[Event], None]
"""Where events go. It must return at once: whoever needs to wait keeps a queue."""
