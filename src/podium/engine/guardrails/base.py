"""A guardrail: a function that checks a text and returns a verdict.

    def no_prices(item: GuardrailInput) -> Verdict:
        return Block("we quote no prices") if "$" in item.text else Pass()

    Podium(guardrails=[Guardrail("no-prices", no_prices, stages=("answer",))])

It may be asynchronous. An exception counts as a block, unless `on_error` says otherwise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from podium.core.errors import ConfigError
from podium.core.run import GuardrailStage

OnError = Literal["block", "pass"]
"""Effect of a guardrail that fails."""

STAGES: Final[tuple[GuardrailStage, ...]] = get_args(GuardrailStage)

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
"""Timeout for one text, calls to a verifier included."""


class Source(NamedTuple):
    """A step's reply, for checks of the answer."""

    step: str
    subtask: str
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailInput:
    """The text to check, and its context.

    Attributes:
        stage: `"question"`, `"reply"` or `"answer"`.
        text: The question or a text of the conversation before it, a worker's reply or tool
            arguments, or the answer.
        run_id: The run.
        question: The run's question, as earlier guardrails left it.
        step: Whose reply it is, as is `worker`.
        worker: The worker's name.
        sources: The other steps' replies, at the stage `"answer"`.

    """

    stage: GuardrailStage
    text: str
    run_id: str
    question: str
    step: int | None = None
    worker: str = ""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """Let the text pass. A reason is kept only if a verifier was asked."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Let the text pass and note the reason on the run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Block:
    """Stop the text; the run fails."""

    reason: str


@dataclass(frozen=True, slots=True)
class Redact:
    """Replace the text; `what` names what was removed without quoting it."""

    text: str
    what: str


@dataclass(frozen=True, slots=True)
class Replan:
    """Plan the round again, while rounds and budget last; the conductor gets the reason.

    Not possible at the stage `question`.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Verify:
    """Ask a worker of the pool first, within the run's budget; `then` decides by its reply."""

    worker: str
    prompt: str
    then: Callable[[str], Verdict]


Verdict = Pass | Note | Block | Redact | Replan | Verify

Hook = Callable[[GuardrailInput], Verdict | Awaitable[Verdict]]
"""Checks a text. A synchronous hook must return at once."""


@runtime_checkable
class HookFactory(Protocol):
    """A hook with state: `for_run` makes a new one for every run."""

    def for_run(self) -> Hook:
        """Return the hook for one run."""


@runtime_checkable
class RestoringHook(Protocol):
    """A hook that can restore what it redacted in the question."""

    def restore(self, text: str) -> str:
        """Return the text with the original values."""

    def redact(self, text: str) -> str:
        """Return the text with placeholders again."""


@runtime_checkable
class HistoryHook(Protocol):
    """A hook that must see the earlier texts of a resumed run."""

    def observe(self, text: str) -> None:
        """Take an earlier text."""


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A check of texts.

    Args:
        name: Its name on the run.
        hook: Receives a `GuardrailInput` and returns a verdict.
        stages: What it checks.
        on_error: `"block"` or `"pass"` when the hook fails.
        timeout_seconds: The longest that one check may take.

    Raises:
        ConfigError: A stage or `on_error` is unknown.

    """

    name: str
    hook: Hook | HookFactory
    stages: tuple[GuardrailStage, ...] = STAGES
    on_error: OnError = "block"
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        unknown = [stage for stage in self.stages if stage not in STAGES]
        if unknown or not self.stages:
            got = ", ".join(map(repr, unknown)) or "none"
            raise ConfigError(
                f"the guardrail {self.name!r} has the stages {got}; expected {', '.join(STAGES)}"
            )
        if self.on_error not in get_args(OnError):
            raise ConfigError(
                f"the guardrail {self.name!r} has on_error {self.on_error!r}; it is block or pass"
            )


def as_guardrail(hook: Guardrail | Hook) -> Guardrail:
    """Wrap a plain function as a guardrail of every stage, under its own name."""
    if isinstance(hook, Guardrail):
        return hook
    return Guardrail(getattr(hook, "__name__", type(hook).__name__), hook)
