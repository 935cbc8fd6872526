"""What a guardrail is: a function that looks at a text and says what is to become of it.

    def no_prices(checked: Checked) -> Verdict:
        return Block("we quote no prices") if "$" in checked.text else Pass()

    Podium(guardrails=[Guardrail("no-prices", no_prices, places=("answer",))])

It may be asynchronous. What it returns is one of the verdicts below; whatever it raises counts as
a block, unless the guardrail says otherwise. Who calls it, and when, is `guard`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from podium.core.errors import ConfigError
from podium.core.run_records import Place

OnError = Literal["block", "pass"]
"""What a guardrail that fails does."""

PLACES: Final[tuple[Place, ...]] = get_args(Place)

SECONDS: Final = 60.0
"""How long a guardrail may take over one text, its verifier's calls included."""


class Source(NamedTuple):
    """What a step replied, for whoever checks the answer against it."""

    step: str
    subtask: str
    reply: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardrailInput:
    """What a guardrail gets to see.

    `text` is what it decides about: the question or one text of the conversation before it, a
    worker's reply or what it calls a tool with, or the answer. `worker` and `step` are whose it
    is, where it is somebody's. `question` is the run's, as the guardrails before left it.
    `sources` are the replies of the other steps, for an answer.
    """

    place: Place
    text: str
    run_id: str
    question: str
    step: int | None = None
    worker: str = ""
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Pass:
    """Nothing is wrong with it. A reason is kept on the run only where a verifier was asked."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """It goes on as it is, and the run says what was noticed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Block:
    """It goes no further, and the run ends as failed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Redact:
    """Another text takes its place; `what` was taken out of it, in words that do not repeat it."""

    text: str
    what: str


@dataclass(frozen=True, slots=True)
class Replan:
    """The round is planned again, as long as rounds and budget last, and the conductor is told why.
    Of a question there is no plan yet, so it cannot be said there."""

    reason: str


@dataclass(frozen=True, slots=True)
class Verify:
    """A worker of the pool is asked first, in these words, within the run's budget and rules;
    what it replies is given to `then`, which decides."""

    worker: str
    prompt: str
    then: Callable[[str], Verdict]


Verdict = Pass | Note | Block | Redact | Replan | Verify

Hook = Callable[[GuardrailInput], Verdict | Awaitable[Verdict]]
"""Looks at a text and decides. One that is not asynchronous must return at once."""


@runtime_checkable
class PerRun(Protocol):
    """A hook that remembers something from text to text has `for_run`, and is asked for a new one
    for every run."""

    def for_run(self) -> Hook:
        """The hook for one run."""
        ...


@runtime_checkable
class Restoring(Protocol):
    """A hook that took something out of the question and can put it back, for whoever asked."""

    def restore(self, text: str) -> str:
        """The text with what was taken out."""
        ...

    def mark(self, text: str) -> str:
        """The text without it again."""
        ...


@runtime_checkable
class Recalling(Protocol):
    """A hook that wants to know what was said in a run that goes on after an interruption."""

    def recall(self, text: str) -> None:
        """Take something that was said before."""
        ...


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A hook, the places where it looks, and what happens should it fail. `seconds` is how long it
    may take over one text."""

    name: str
    hook: Hook | PerRun
    places: tuple[Place, ...] = PLACES
    on_error: OnError = "block"
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        unknown = [place for place in self.places if place not in PLACES]
        if unknown or not self.places:
            got = ", ".join(map(repr, unknown)) or "none"
            raise ConfigError(
                f"the guardrail {self.name!r} has the places {got}; there are {', '.join(PLACES)}"
            )
        if self.on_error not in get_args(OnError):
            raise ConfigError(
                f"the guardrail {self.name!r} has on_error {self.on_error!r}; it is block or pass"
            )


def as_guardrail(hook: Guardrail | Hook) -> Guardrail:
    """A bare function as a guardrail in every place, under its own name."""
    if isinstance(hook, Guardrail):
        return hook
    return Guardrail(getattr(hook, "__name__", type(hook).__name__), hook)
