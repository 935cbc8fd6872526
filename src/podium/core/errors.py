"""Every error of Podium, in families by who must act.

    PodiumError
    ├── UsageError               the caller must change something
    │   ├── ConfigError              a setting, a key or a file is wrong or missing
    │   ├── UnknownWorker            a worker that is not in the pool
    │   ├── NotFound                 no run with that id
    │   └── Conflict                 another process works on that run
    │       └── RunTakenOver             another process took over a run of this one
    ├── PlanError                the author of the plan, mostly the conductor, must change it
    │   ├── MalformedPlan            the text is not a plan; names the list and the reason
    │   └── InvalidWorkflow          a plan that cannot be executed
    ├── WorkerError              the worker or its provider must act
    │   ├── AuthenticationFailed     the provider rejects the API key
    │   ├── RequestRefused           the provider rejects this request
    │   │   └── PromptTooLong            it exceeds the model's context window
    │   ├── RateLimited              too many requests
    │   ├── Unavailable              unreachable, overloaded or broken off
    │   │   └── CircuitOpen              not called for a while after too many failures
    │   ├── TimedOut                 no reply within the worker's time limit
    │   ├── BadReply                 a reply that is malformed or too large
    │   └── WorkerCrashed            the worker's own code raised something else
    ├── BudgetExhausted          the owner of the budget must raise it; names the cap
    ├── GuardrailBlocked         the asker or the guardrail's author must act
    │   └── ReplanRequested          a guardrail requests another plan
    └── StoreError               the operator must act: disk full, locked, newer version
        ├── BudgetUnavailable        a shared budget cannot be read
        └── UnreadableRun            a stored run is damaged or of a newer version

A message says what happened, what was expected and what to do. Nothing here knows HTTP, databases
or terminals; the edges translate into this tree and out of it.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PodiumError(Exception):
    """The root of the tree. `str(error)` is one line that a person can act on."""


class UsageError(PodiumError):
    """The caller must change something."""


class ConfigError(UsageError):
    """A setting, a key or a file is wrong or missing."""


class UnknownWorker(UsageError):
    """A worker that is not in the pool."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no worker named {name!r} in the pool; it has {', '.join(known)}")
        self.name = name
        self.known = known


class NotFound(UsageError):
    """The store has nothing with that id."""


class Conflict(UsageError):
    """Another process works on the run, so it cannot be resumed or deleted now."""


class RunTakenOver(Conflict):
    """Another process took the run over after a missed heartbeat; this one writes no more of it."""


class PlanError(PodiumError):
    """A plan cannot be used, and its author must change it."""


class MalformedPlan(PlanError):
    """The text is not a plan. `where` names the list at fault, or `plan` for the whole."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class InvalidWorkflow(PlanError):
    """The plan was parsed, but cannot be executed."""


class WorkerError(PodiumError):
    """A call to a worker failed.

    Each kind has default values; the raising code may know better.

    Attributes:
        retryable: The same request may succeed later.
        retry_after: Seconds to wait, where the provider asked for it.
        billed: False if the provider certainly charged nothing; usage is then zero, not unknown.
        status: The provider's HTTP status, or the one that says the same; None if there is none.
    """

    retryable = False
    billed = False
    status: int | None = None

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        billed: bool | None = None,
        retryable: bool | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        if billed is not None:
            self.billed = billed
        if retryable is not None:
            self.retryable = retryable
        if status is not None:
            self.status = status


class AuthenticationFailed(WorkerError):
    """The provider rejects the API key."""

    status = 401


class RequestRefused(WorkerError):
    """The provider rejects this request: too long, not allowed, not supported."""

    status = 400


class PromptTooLong(RequestRefused):
    """The prompt exceeds the model's context window; the asker must shorten it."""


class RateLimited(WorkerError):
    """Too many requests or tokens in a short time."""

    retryable = True
    status = 429


class Unavailable(WorkerError):
    """Unreachable, overloaded, or broken off in the middle of a reply."""

    retryable = True


class CircuitOpen(Unavailable):
    """Not called, after too many recent failures; `retry_after` is when the circuit may close."""


class TimedOut(WorkerError):
    """No complete reply within the worker's time limit."""

    retryable = True
    billed = True


class BadReply(WorkerError):
    """A reply that is malformed or far too large."""

    retryable = True
    billed = True


class WorkerCrashed(WorkerError):
    """The worker's own code raised something that is not a `WorkerError`."""

    billed = True


class BudgetExhausted(PodiumError):
    """A cap was reached. `cap` is calls, tokens, usd, seconds or depth."""

    def __init__(self, cap: str, limit: float, message: str = "") -> None:
        shown = format_usd(limit) if cap == "usd" else f"{limit:g}"
        super().__init__(message or f"the run's budget is spent: the cap on {cap} is {shown}")
        self.cap = cap
        self.limit = limit


class GuardrailBlocked(PodiumError):
    """A guardrail blocked a question, a reply or an answer, its `stage`."""

    def __init__(self, guardrail: str, stage: str, reason: str) -> None:
        super().__init__(f"the guardrail {guardrail!r} blocked the {stage}: {reason}")
        self.guardrail = guardrail
        self.stage = stage
        self.reason = reason


class ReplanRequested(GuardrailBlocked):
    """A guardrail requests another plan of the round; the conductor gets its reason."""


class StoreError(PodiumError):
    """The store cannot read or write: disk full, locked, or written by a newer Podium."""


class BudgetUnavailable(StoreError):
    """A shared budget cannot be read, so nothing more is spent. The caller may retry."""


class UnreadableRun(StoreError):
    """One stored run is damaged or was written by a newer Podium; others may be readable."""


def format_usd(amount: float) -> str:
    """Format US dollars without an exponent: $0.5, $0.0000001."""
    return "$" + (f"{amount:.12f}".rstrip("0").rstrip(".") or "0")


@contextmanager
def needs_extra(extra: str, purpose: str) -> Iterator[None]:
    """Import packages of an extra inside this block; `ConfigError` names it if one is missing."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "podium":
            raise
        missing = isinstance(error, ModuleNotFoundError)
        reason = f"there is no {error.name}" if missing else str(error)
        raise ConfigError(
            f"{purpose} needs the extra {extra} ({reason}); install it: {install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """Return the pip command that installs an extra into this Python, from a clone if it is one."""
    clone = Path(__file__).parents[3]
    is_clone = (clone / "pyproject.toml").is_file()
    package = f"-e '{clone}[{extra}]'" if is_clone else f"'podium-conductor[{extra}]'"
    return f"{shlex.quote(sys.executable)} -m pip install {package}"
