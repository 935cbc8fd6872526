"""Every error that Podium raises on purpose, grouped by who must act.

    PodiumError
    ├── UsageError            the person calling Podium must change something
    │   ├── ConfigError           a setting, a key or a file is wrong or missing
    │   ├── UnknownWorker         a name that is not in the pool
    │   ├── NotFound              no run with that id
    │   └── Conflict              somebody else is at work on that run
    │       └── TakenOver             the run was this process's, and another has taken it over
    ├── PlanError             the conductor (or whoever wrote the plan) must change it
    │   ├── MalformedPlan         the text is not a plan; names the list and the reason
    │   └── InvalidWorkflow       it is a plan, but not one that can be carried out
    ├── WorkerError           a worker, or the provider behind it, must act
    │   ├── AuthenticationFailed  the provider does not accept the key
    │   ├── RequestRefused        the provider will not serve this request as it is
    │   │   └── PromptTooLong         it does not fit into the model's window
    │   ├── RateLimited           too many requests; may say when to come back
    │   ├── Unavailable           unreachable, overloaded or broken off
    │   │   └── CircuitOpen           not called for a while, for it has failed too often
    │   ├── TimedOut              no reply within the worker's time limit
    │   ├── BadReply              a reply that cannot be understood or is too large
    │   └── WorkerCrashed         the worker's own code raised something else
    ├── BudgetExhausted       whoever set the budget must raise it; names the cap
    ├── GuardrailBlocked      a guardrail let something not pass; says where and why
    │   └── ReplanDemanded        it wants the round planned again
    └── StoreError            whoever runs the machine must act (disk full, locked, too new)
        ├── BudgetUnseen          what is left of a shared budget cannot be looked up
        └── UnreadableRun         a run on record that this Podium does not understand

A message says what was expected, what came, and what to do; where an optional part is missing,
`install_command` says how to get it. Nothing here knows about HTTP,
databases or terminals; the edges translate into this tree and out of it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


class PodiumError(Exception):
    """The root of the tree. `str(error)` is one line that a person can act on."""


class UsageError(PodiumError):
    """The person calling Podium must change something."""


class ConfigError(UsageError):
    """A setting, a key or a file is wrong or missing."""


class UnknownWorker(UsageError):
    """A worker was named that is not in the pool."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no worker named {name!r} in the pool; it has {', '.join(known)}")
        self.name = name
        self.known = known


class NotFound(UsageError):
    """Something was asked for by an id that the store does not hold."""


class Conflict(UsageError):
    """A run cannot be taken up or deleted now, for somebody else is at work on it."""


class RunTakenOver(Conflict):
    """A run was performed here until another process took it over, for this one was silent for
    too long. Nothing more is written of it here."""


class PlanError(PodiumError):
    """A plan cannot be used, and its author must change it."""


class MalformedPlan(PlanError):
    """The text is not a plan. `where` names the list at fault, or `plan` for the whole."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason


class InvalidWorkflow(PlanError):
    """The plan was understood, but no engine could carry it out."""


class WorkerError(PodiumError):
    """A call to a worker failed.

    `retryable` says whether the same request may succeed later; `retry_after` is the wait in
    seconds that the provider asked for, where it did; `billed` is False when the provider
    certainly charged nothing (it refused before working), so the usage is zero, not unknown.
    Each kind has its usual values, which whoever raises it may know better.
    """

    retryable = False
    billed = False

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        billed: bool | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        if billed is not None:
            self.billed = billed
        if retryable is not None:
            self.retryable = retryable


class AuthenticationFailed(WorkerError):
    """The provider does not accept the key."""


class RequestRefused(WorkerError):
    """The provider will not serve this request as it is: too long, not allowed, not supported."""


class PromptTooLong(RequestRefused):
    """What is asked does not fit into the model's window; whoever asks must shorten it."""


class RateLimited(WorkerError):
    """Too many requests or tokens in a short time."""

    retryable = True


class Unavailable(WorkerError):
    """Unreachable, overloaded, or broken off in the middle of a reply."""

    retryable = True


class CircuitOpen(Unavailable):
    """The worker has failed too often of late, so it was not called; `retry_after` is when it may
    be again."""


class TimedOut(WorkerError):
    """No complete reply within the worker's time limit."""

    retryable = True
    billed = True


class BadReply(WorkerError):
    """The worker answered, but with something that is not a reply, or far too much of it."""

    retryable = True
    billed = True


class WorkerCrashed(WorkerError):
    """The worker's own code raised something that is not a `WorkerError`."""

    billed = True


class BudgetExhausted(PodiumError):
    """A cap of the run's budget was reached, or of whatever else it draws on. `cap` is calls,
    tokens, usd, seconds or depth."""

    def __init__(self, cap: str, limit: float, whose: str = "the run's budget") -> None:
        shown = f"${limit:g}" if cap == "usd" else f"{limit:g}"
        super().__init__(f"{whose} is spent: {cap} is capped at {shown}")
        self.cap = cap
        self.limit = limit


class GuardrailBlocked(PodiumError):
    """A guardrail did not let a question, a reply or an answer through. Whoever asked must ask
    something else, or whoever set the guardrail must change it."""

    def __init__(self, guardrail: str, stage: str, reason: str) -> None:
        super().__init__(f"the guardrail {guardrail!r} blocked the {stage}: {reason}")
        self.guardrail = guardrail
        self.stage = stage
        self.reason = reason


class ReplanRequested(GuardrailBlocked):
    """A guardrail wants the round planned again, with its reason told to the conductor."""


class StoreError(PodiumError):
    """The store cannot read or write: disk full, locked, or made by a newer Podium."""


class BudgetUnavailable(StoreError):
    """What is left of a budget that several processes share cannot be looked up, so nothing more
    is spent. Whoever asked may try again; whoever runs the database must act."""


class UnreadableRun(StoreError):
    """One run on record is damaged, or was written by a newer Podium. Others may be well."""


def install_command(extra: str) -> str:
    """The command that installs an optional part, for a message: into the Python that runs, and
    from the clone where this is one."""
    clone = Path(__file__).parents[3]
    is_clone = (clone / "pyproject.toml").is_file()
    package = f"-e '{clone}[{extra}]'" if is_clone else f"'podium-conductor[{extra}]'"
    return f"{shlex.quote(sys.executable)} -m pip install {package}"
