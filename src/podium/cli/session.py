"""Sessions of commands that run questions: load settings, perform a run, show and print it.

    with Session(pool, store_runs=True) as session:
        run, code = session.answer(lambda podium, options: podium.ask("Why?", **options))

A session owns the event loop, so Ctrl-C is handled in one place: the interrupted run is returned
with the status `interrupted`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from podium.cli.models import fetch_weights
from podium.cli.options import (
    NO_CAPS,
    NO_PLANNING,
    BudgetOptions,
    PlanningOptions,
    PoolOptions,
    load_settings,
    run_options,
)
from podium.cli.output import (
    ExitCode,
    describe_check,
    describe_run_end,
    describe_step_end,
    echo,
    echo_error,
    echo_json,
    is_terminal,
    plan_lines,
    to_one_line,
)
from podium.client.assembly import default_options
from podium.client.client import AsyncPodium
from podium.client.documents import run_document
from podium.client.run_options import RunOptions
from podium.config import Settings
from podium.config.schema import read_files
from podium.config.settings import EVOLVED_PREFIX
from podium.config.sources import find_config_file
from podium.core.errors import StoreError
from podium.core.events import (
    Emit,
    Event,
    GuardrailActed,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDone,
    StepRetried,
)
from podium.core.request import Message
from podium.core.run import Run
from podium.engine.guardrails.redaction import restore_events
from podium.store import RunStore, open_store

Result = TypeVar("Result")

NO_API_KEY: Final = (
    "no API key is set: a small model on this machine answers; podium doctor shows other ways"
)
OFFLINE: Final = "offline, a small model on this machine answers"

CAP_OPTIONS: Final = {
    "calls": "--budget-calls N",
    "tokens": "--budget-tokens N",
    "usd": "--budget-usd USD",
    "seconds": "--budget-seconds S",
}


def run_with_store(
    config: Path | None,
    work: Callable[[RunStore], Awaitable[Result]],
    pool: Path | None = None,
) -> Result:
    tables, _ = read_files(
        file for file in (find_config_file(os.environ, config=config), pool) if file
    )

    async def work_with_store() -> Result:
        store = await open_store(
            tables.store.url or tables.store.path, lease_seconds=tables.store.lease_seconds
        )
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(work_with_store())


class LinePrinter:
    """Prints each plan as it is made and each step as it ends; nested runs are indented."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._calls: dict[tuple[str, int, int], Counter[str]] = {}

    def show(self, event: Event) -> None:
        match event:
            case RunStarted(run):
                self._runs[run.id] = run
                for check in run.guardrail_checks:
                    self._print(run, describe_check(check))
                for round_ in run.rounds:  # a resumed run starts with its earlier rounds
                    self.show(RoundPlanned(run.id, round_))
            case RoundPlanned(run_id, round_):
                run = self._runs[run_id]
                for line in plan_lines(run, round_):
                    self._print(run, line)
            case StepRetried():
                self._print(self._runs[event.run_id], self._describe_retry(event))
            case GuardrailActed(run_id, check):
                self._print(self._runs[run_id], describe_check(check))
            case StepDone(run_id, step):
                end = describe_step_end(step)
                self._print(self._runs[run_id], f"step {step.index} {step.worker}: {end}")
            case RunDone(run) if run.depth == 0:
                self._print(run, describe_run_end(run))
            case _:
                pass

    def _describe_retry(self, event: StepRetried) -> str:
        """Name the next call; only a fallback needs a reason, the step's end gives the others."""
        calls = self._calls.setdefault((event.run_id, event.round, event.index), Counter())
        if event.wait_seconds == 0 and not calls[event.worker]:
            calls[event.worker] = 1
            return f"step {event.index} falls back to {event.worker}: {event.error}"
        calls[event.worker] = max(1, calls[event.worker]) + 1
        wait = f"{event.wait_seconds:.1f} s"
        return f"step {event.index} retries {event.worker} in {wait} (call {calls[event.worker]})"

    def _print(self, run: Run, line: str) -> None:
        indent = len(line) - len(line.lstrip())
        echo("    " * run.depth + " " * indent + to_one_line(line))


def _create_display(*, silent: bool) -> AbstractContextManager[Emit]:
    """Return a live tree for a terminal, lines for a file or pipe, or nothing."""
    if silent:
        return nullcontext(lambda _: None)
    if not is_terminal(sys.stdout):
        return nullcontext(LinePrinter().show)
    from podium.cli.live_tree import LiveTree  # rich is slow to import

    return LiveTree()


RunWork = Callable[[AsyncPodium, RunOptions], Awaitable[Run]]
"""Performs a run with these options, whose `emit` and `stream` it must pass on."""


class Session:
    """Settings, weights, store and client of one command.

    Without `store_runs`, runs are not stored; with `quiet`, the note on the default pool is left
    out. `options` are those of its runs.
    """

    settings: Settings
    options: RunOptions
    store: RunStore
    podium: AsyncPodium

    def __init__(
        self,
        pool: PoolOptions,
        planning: PlanningOptions = NO_PLANNING,
        budget: BudgetOptions = NO_CAPS,
        *,
        store_runs: bool,
        quiet: bool = False,
    ) -> None:
        self._pool = pool
        self._planning = planning
        self._budget = budget
        self._store_runs = store_runs
        self._quiet = quiet
        self._loop = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            self.wait_for(self._open())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait_for(self._close())
        finally:
            self._loop.close()

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run(work)

    def answer(
        self,
        work: RunWork,
        history: tuple[Message, ...] = (),
        *,
        json: bool = False,
        quiet: bool = False,
    ) -> tuple[Run, ExitCode]:
        run = self._perform(work, history, _create_display(silent=json or quiet))
        resume = self._resume_command(run)
        return run, _print_result(run, resume, json=json, quiet=quiet)

    def _perform(
        self, work: RunWork, history: tuple[Message, ...], display: AbstractContextManager[Emit]
    ) -> Run:
        watcher, watched = _RunWatcher(), self.options.copy()
        redacts = bool(self.settings.guardrails)
        watched["emit"] = restore_events(watcher.show) if redacts else watcher.show
        watched["stream"] = True
        watched["history"] = history
        try:
            with display as watcher.display:
                self.wait_for(watcher.wait_for(work(self.podium, watched)))
        except KeyboardInterrupt:
            if watcher.run is None:
                raise
        assert watcher.run is not None, "the run has ended"
        return watcher.run

    def _resume_command(self, run: Run) -> str | None:
        """Return the command that resumes a run; None where runs are not stored."""
        if type(self.store) is RunStore:  # it stores nothing
            return None
        options: dict[str, object] = {"--pool": self._pool.pool, "--config": self._pool.config}
        conductor = self._pool.conductor
        if conductor and conductor.startswith(EVOLVED_PREFIX):  # a run has no path
            options["--conductor"] = conductor
        given = [f" {name} {shlex.quote(str(value))}" for name, value in options.items() if value]
        return f"podium runs resume {run.id}{''.join(given)}"

    async def _open(self) -> None:
        self.settings = await load_settings(self._pool, os.environ)
        self.options = run_options(self.settings, self._planning, self._budget)
        for warning in self.settings.warnings:
            echo_error(warning)
        offline = self._pool.offline
        is_small = self.settings.uses_default_pool and not self._quiet
        if is_small and not offline:  # before a download that an API key would save
            echo_error(NO_API_KEY)
        await fetch_weights(self.settings.workers, self.settings.conductor, offline=offline)
        if is_small and offline:
            echo_error(OFFLINE)
        self.store = await self._open_store()
        # The settings no longer hold what is excluded; the run must know it to be resumed alike.
        options = default_options(self.settings, exclude=frozenset(self._pool.exclude or ()))
        if self._pool.conductor:  # one that is named is meant to plan
            options = replace(options, tier="ultra")
        self.podium = AsyncPodium(settings=self.settings, store=self.store, options=options)

    async def _open_store(self) -> RunStore:
        """Open the store, or none where it fails: an answer is worth more than its record."""
        if not self._store_runs:
            return RunStore()
        try:
            store = self.settings.store
            return await open_store(store.url or store.path, lease_seconds=store.lease_seconds)
        except StoreError as error:
            echo_error(f"this run will not be stored: {error}")
            return RunStore()

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:  # if closing one fails, the other is still closed
            stack.push_async_callback(self.store.close)
            stack.push_async_callback(self.podium.close)


class _RunWatcher:
    """Shows the events of a run on `display`. `run` is the finished run."""

    display: Emit

    def __init__(self) -> None:
        self.run: Run | None = None
        self._error: Exception | None = None
        self._task: asyncio.Task[Any] | None = None

    async def wait_for(self, work: Awaitable[Run]) -> None:
        """Wait for the run, and raise what went wrong in showing it.

        It is kept, not returned: asyncio's runner formats the result of its main task.
        """
        self._task = asyncio.current_task()
        try:
            self.run = await work
        except asyncio.CancelledError:
            if self._error is None:
                raise
            raise self._error from None
        if self._error is not None:
            raise self._error

    def show(self, event: Event) -> None:
        """Show the event; where that fails (a closed pipe), stop the run, which stays stored."""
        if isinstance(event, RunDone) and event.run.depth == 0:
            self.run = event.run
        if self._error is not None:
            return
        try:
            self.display(event)
        except Exception as error:  # noqa: BLE001 - raised again once the run is stored
            self._error = error
            if self._task is not None and self.run is None:
                self._task.cancel()


def answer_once(
    work: Callable[[Session, RunOptions], Awaitable[Run]],
    pool: PoolOptions,
    planning: PlanningOptions = NO_PLANNING,
    budget: BudgetOptions = NO_CAPS,
    *,
    json: bool,
    quiet: bool,
    no_store: bool = False,
) -> ExitCode:
    with Session(pool, planning, budget, store_runs=not no_store, quiet=quiet) as session:
        _, code = session.answer(lambda _, options: work(session, options), json=json, quiet=quiet)
    return code


def _print_result(run: Run, resume: str | None, *, json: bool, quiet: bool) -> ExitCode:
    """Print the answer and what went wrong; `resume` is the command that resumes the run."""
    if json:
        echo_json(run_document(run))
    elif run.answer is not None and quiet:
        echo(run.answer)
    elif run.answer is not None:
        echo(f"\n{_wrap_for_terminal(run.answer)}")
    return _print_status(run, resume)


def _wrap_for_terminal(answer: str) -> str:
    if not is_terminal(sys.stdout):
        return answer
    from podium.cli.live_tree import wrap_text  # rich is slow to import

    return wrap_text(answer)


def _print_status(run: Run, resume: str | None) -> ExitCode:
    """Print how the run ended; one that a guardrail blocked cannot be resumed."""
    hint = _resume_hint(run, resume) if resume and not run.blocked_by else ""
    match run.status:
        case "answered" if run.error is None:
            return ExitCode.ANSWERED
        case "answered":
            echo_error(f"answered, with an error: {run.error}")
            return ExitCode.ANSWERED
        case "partial":
            echo_error(f"partial answer, the best before the run failed: {run.error}{hint}")
            return ExitCode.ANSWERED
        case "exhausted":
            echo_error(f"no answer: {run.error}{hint or '; raise that cap'}")
            return ExitCode.EXHAUSTED
        case "failed":
            echo_error(f"no answer: {run.error}{hint}")
            return ExitCode.FAILED
        case "waiting":
            names = ", ".join(sorted({call.name for call in run.waiting_for}))
            echo_error(f"no answer yet: the run waits for results of the client's tools: {names}")
            return ExitCode.FAILED
        case "interrupted" | "running":
            echo_error(f"interrupted{hint or '; the run was not stored'}")
            return ExitCode.INTERRUPTED


def _resume_hint(run: Run, resume: str) -> str:
    """Return the command that resumes the run; empty where it would only fail again."""
    if run.exhausted_cap:
        cap = CAP_OPTIONS.get(run.exhausted_cap)  # no option raises the depth of a started run
        return f"; raise that cap to resume: {resume} {cap}" if cap else ""
    return "" if run.request_refused else f"; resume with: {resume}"
