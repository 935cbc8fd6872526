"""What happens during a run, as it happens.

The engine's event stream is the only way to watch a run: the command line, the server and the
tests all read the same events. A nested run's events come through its parent's stream, under
its own `run_id`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from podium.core.request import ToolCall, ToolResult
from podium.core.run import GuardrailCheck, Round, Run, StepRecord
from podium.core.workflow import Workflow


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run began or was resumed. `parent` is the run it is nested in, and that run's step.
    `restore` puts back what guardrails took out of the question: it is for whoever asked, and for
    nobody else who watches."""

    run: Run
    parent: tuple[str, int] | None = None
    restore: Callable[[str], str] | None = field(default=None, repr=False, compare=False)

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

    `kept` is how many characters of the step's reply were told as deltas already. They stand:
    the next call is asked to go on after them, so its deltas are never a repetition. What was
    told of its thinking is void.
    """

    run_id: str
    round: int
    index: int
    worker: str
    error: str
    wait_seconds: float
    kept: int = 0


@dataclass(frozen=True, slots=True)
class StepDelta:
    """A piece of the final step's reply, or of its thinking, as the worker produces it.

    Where the reply must fit a schema, it comes as one piece once it does. Words that the worker
    says before it uses tools are pieces too. A later round, if there is one, has a final step and
    a reply of its own.
    """

    run_id: str
    round: int
    index: int
    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class ToolUsed:
    """A tool of Podium's own was carried out inside a step. Tools of the client are not: a step
    that calls them ends as waiting."""

    run_id: str
    round: int
    index: int
    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, slots=True)
class GuardrailActed:
    """A guardrail did something: it redacted, blocked, noted, asked a verifier, or demanded another
    plan. What was done to the question stands on the run as it begins."""

    run_id: str
    check: GuardrailCheck


@dataclass(frozen=True, slots=True)
class StepNoted:
    """A step, or the run nested in it, has got further. `step` is what a resume would go on from,
    should the process end now; the step itself goes on."""

    run_id: str
    step: StepRecord


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step ended: done, failed, skipped or cancelled; or it waits for the results of tools."""

    run_id: str
    step: StepRecord


@dataclass(frozen=True, slots=True)
class RoundDone:
    """Every step of a round has ended, and none waits."""

    run_id: str
    round: Round


@dataclass(frozen=True, slots=True)
class RunDone:
    """The run ended and is complete now; or it waits, and can be resumed."""

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
    | ToolUsed
    | GuardrailActed
    | StepNoted
    | StepDone
    | RoundDone
    | RunDone
)

Emit = Callable[[Event], None]
"""Where events go. It must return at once: whoever needs to wait keeps a queue."""
