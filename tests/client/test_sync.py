from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import pytest

from podium import (
    Budget,
    FixedConductor,
    Podium,
    PodiumError,
    Reply,
    Request,
    Run,
    ScriptedWorker,
    Step,
    Worker,
    WorkerProfile,
    Workflow,
    open_store,
)
from podium.core.errors import UnknownWorker, UsageError
from podium.core.events import Event, RunDone, RunStarted, StepDelta

PATIENCE = 60
"""Seconds that a thread may take; it never takes them unless something hangs."""

JOIN = Workflow((Step("a", "one view"), Step("b", "another"), Step("a", "both", (0, 1))))
ALONE = FixedConductor(Workflow((Step("a", "x"),)))


class HeldWorker(Worker):
    """Says that it was asked, and then never answers."""

    def __init__(self, on_asked: Callable[[], None] = lambda: None) -> None:
        self.profile = WorkerProfile(name="a")
        self.on_asked = on_asked
        self.asked = threading.Event()

    async def reply(self, request: Request) -> Reply:
        self.asked.set()
        self.on_asked()
        await asyncio.Event().wait()
        raise AssertionError("nobody lets it go")


def workers() -> list[ScriptedWorker]:
    return [ScriptedWorker("a", "answer of a"), ScriptedWorker("b", "answer of b")]


def last_run(file: Path) -> Run:
    async def load() -> Run:
        store = await open_store(file)
        try:
            return await store.load("last")
        finally:
            await store.close()

    return asyncio.run(load())


def begin(work: Callable[[], object]) -> futures.Future[object]:
    """Do the work in a thread of its own."""
    ended: futures.Future[object] = futures.Future()

    def do() -> None:
        try:
            ended.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised again in the waiting thread
            ended.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    return ended


@pytest.fixture
def podium() -> Iterator[Podium]:
    with Podium(workers(), FixedConductor(JOIN)) as podium:
        yield podium


def test_podium_waits_where_async_podium_awaits(podium: Podium) -> None:
    assert podium.ask("why?").answer == "answer of a"
    assert podium.plan("why?").workflow == JOIN
    assert podium.run(Workflow((Step("b", "x"),)), "why?").answer == "answer of b"
    events: list[Event] = list(podium.stream("why?"))
    assert isinstance(events[-1], RunDone)


def test_podium_raises_what_async_podium_raises(podium: Podium) -> None:
    with pytest.raises(UnknownWorker):
        podium.run(Workflow((Step("c", "x"),)), "why?")
    with pytest.raises(PodiumError, match="leaves no worker"):
        list(podium.stream("why?", exclude=frozenset({"a", "b"})))


def test_podium_keeps_runs_in_a_file_that_it_is_given(tmp_path: Path) -> None:
    file = tmp_path / "runs.db"
    with Podium(workers(), FixedConductor(JOIN), store=file) as podium:
        first = podium.ask("why?")
    again = Podium(workers(), FixedConductor(JOIN), store=str(file))
    with again as podium, pytest.raises(PodiumError, match="answered already"):
        podium.resume(first.id)


def test_a_resumed_run_can_be_watched_and_streamed(podium: Podium) -> None:
    cut = podium.ask("why?", budget=Budget(calls=2))
    events: list[Event] = []
    run = podium.resume(cut, budget=Budget(), emit=events.append, stream=True)
    assert run.answer == "answer of a"
    assert "".join(event.text for event in events if isinstance(event, StepDelta)) == run.answer


def test_a_stream_reaches_a_second_listener(podium: Podium) -> None:
    events: list[Event] = []
    assert list(podium.stream("why?", emit=events.append)) == events
    assert isinstance(events[-1], RunDone)


def test_a_closed_podium_refuses_everything_but_to_be_closed_again(podium: Podium) -> None:
    run = podium.ask("why?")
    podium.close()
    podium.close()
    for call in (
        lambda: podium.ask("why?"),
        lambda: podium.run(JOIN, "why?"),
        lambda: podium.plan("why?"),
        lambda: podium.resume(run),
        lambda: podium.stream("why?"),
    ):
        with pytest.raises(UsageError, match="this Podium is closed; create a new one"):
            call()


def test_closing_ends_the_wait_of_another_thread_and_keeps_its_run(tmp_path: Path) -> None:
    held = HeldWorker()
    podium = Podium([held], ALONE, store=tmp_path / "runs.db")
    asking = begin(lambda: podium.ask("why?"))
    assert held.asked.wait(PATIENCE)
    podium.close()
    with pytest.raises(UsageError, match="this Podium was closed during the run"):
        asking.result(PATIENCE)
    assert last_run(tmp_path / "runs.db").status == "interrupted"


def test_closing_ends_the_stream_of_another_thread(tmp_path: Path) -> None:
    held = HeldWorker()
    podium = Podium([held], ALONE, store=tmp_path / "runs.db")
    watching = begin(lambda: list(podium.stream("why?")))
    assert held.asked.wait(PATIENCE)
    closing = [begin(podium.close), begin(podium.close)]
    for closed in closing:
        closed.result(PATIENCE)
    with pytest.raises(UsageError, match="this Podium was closed during the run"):
        watching.result(PATIENCE)
    assert last_run(tmp_path / "runs.db").status == "interrupted"


def test_leaving_a_stream_early_stops_its_run_and_keeps_it(tmp_path: Path) -> None:
    with Podium([HeldWorker()], ALONE, store=tmp_path / "runs.db") as podium:
        for event in podium.stream("why?"):
            assert isinstance(event, RunStarted)
            break
        assert last_run(tmp_path / "runs.db").status == "interrupted"


def test_a_stream_that_was_left_standing_is_stopped_by_closing(tmp_path: Path) -> None:
    with Podium([HeldWorker()], ALONE, store=tmp_path / "runs.db") as podium:
        stream = podium.stream("why?")
        next(stream)
    assert last_run(tmp_path / "runs.db").status == "interrupted"
    stream.close()


@pytest.fixture
def ctrl_c_is_heard() -> Iterator[None]:
    """Also where a shell began the tests in the background, whose programs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("streamed", [False, True], ids=["ask", "stream"])
@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_ctrl_c_stops_the_run_and_keeps_it_as_interrupted(tmp_path: Path, streamed: bool) -> None:
    this = threading.get_ident()
    held = HeldWorker(lambda: signal.pthread_kill(this, signal.SIGINT))
    with Podium([held], ALONE, store=tmp_path / "runs.db") as podium:
        with pytest.raises(KeyboardInterrupt):
            list(podium.stream("why?")) if streamed else podium.ask("why?")
        assert last_run(tmp_path / "runs.db").status == "interrupted"
        assert podium.run(ALONE.workflow, "why?", budget=Budget(calls=0)).status == "exhausted"


def test_podium_does_not_wait_for_itself_on_its_own_thread(podium: Podium) -> None:
    refused: list[str] = []

    def ask_again(event: Event) -> None:
        for call in (lambda: podium.ask("and why?"), podium.close):
            try:
                call()
            except UsageError as error:
                refused.append(str(error))
        raise StopIteration

    assert podium.ask("why?", emit=ask_again).status == "answered"
    assert len(refused) == 2
    assert all("would wait for itself" in message for message in refused)
