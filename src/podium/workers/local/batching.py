"""Concurrent requests to one local model, completed in batches.

Requests that arrive at about the same time form one batch; each caller gets its own completion.
Completions themselves are `podium.workers.local.decoding`.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from podium.workers.local import weights
from podium.workers.local.sources import weights_file

if TYPE_CHECKING:
    from podium.workers.local.decoding import Completion, Decoder, Job, Sampling
    from podium.workers.local.pretrained import Pretrained

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class SharedByKey(Generic[Key, Value]):
    """Creates one value per key and drops it when it is no longer used. Thread-safe."""

    def __init__(self, make: Callable[[Key], Value]) -> None:
        self._make = make
        self._values: weakref.WeakValueDictionary[Key, Value] = weakref.WeakValueDictionary()
        self._changing = threading.Lock()

    def __call__(self, key: Key) -> Value:
        with self._changing:
            value = self._values.get(key)
            if value is None:
                value = self._values[key] = self._make(key)
            return value


IDLE_LOOP_ITERATIONS: Final = 8
"""A batch closes after this many turns of the callers' event loop without a new request.

What follows from one event, such as the second steps of a thousand workflows, arrives within a few
turns, however long they take.
"""

LONGEST_WAIT_SECONDS: Final = 2.0
"""A batch closes after this many seconds even if requests keep coming."""

MAX_ROWS: Final = 1024


class ModelSpec(NamedTuple):
    """A model and how it is loaded; see `podium.workers.local.pretrained`."""

    name: str
    dtype: str = "auto"
    device: str = ""


class BatchRequest(Protocol):
    """A request that waits for its result."""

    @property
    def future(self) -> asyncio.Future[Any]:
        """Receives the result."""

    @property
    def size(self) -> int:
        """The most tokens that it may take."""


RequestT = TypeVar("RequestT", bound=BatchRequest)
RequestT_contra = TypeVar("RequestT_contra", bound=BatchRequest, contravariant=True)
Arrivals = Callable[[], Sequence[RequestT]]


class LoadedModel(Protocol[RequestT_contra]):
    """A loaded model that answers batches."""

    @property
    def pretrained(self) -> Pretrained:
        """The model and its tokenizer."""

    def answer(
        self, requests: Sequence[RequestT_contra], arrivals: Arrivals[RequestT_contra]
    ) -> None:
        """Resolve every request, with an error if it failed; never raise.

        Those that it takes from `arrivals` came meanwhile, and are resolved too.
        """


class SharedBatchModel(Generic[RequestT]):
    """One model in memory, shared by this process. Safe across event loops and threads."""

    def __init__(
        self, model: ModelSpec, begin: Callable[[ModelSpec], LoadedModel[RequestT]]
    ) -> None:
        self._model = model
        self._begin = begin
        self._users = 0
        self._changing = threading.Lock()
        self._thread: _BatchThread[RequestT] | None = None
        self._end: weakref.finalize[Any, SharedBatchModel[RequestT]] | None = None

    def acquire(self) -> None:
        with self._changing:
            self._users += 1

    async def release(self) -> None:
        """Count one user less; the last one unloads the model."""
        with self._changing:
            self._users -= 1
            is_last = not self._users
        if is_last:
            await asyncio.to_thread(self.close)

    @property
    def is_loaded(self) -> bool:
        thread = self._thread
        return thread is not None and not thread.is_over and thread.loaded.done()

    async def load(self) -> Pretrained:
        """Return the model and its tokenizer, loaded if necessary."""
        loaded = self._running().loaded
        return loaded.result() if loaded.done() else await asyncio.wrap_future(loaded)

    async def ready(self) -> Pretrained:
        """Download the weights if Podium manages them, then load the model."""
        file = weights_file(self._model.name)
        if file is not None and not self.is_loaded:
            await weights.locate(file)
        return await self.load()

    def submit(self, request: RequestT) -> None:
        while not self._running().submit(request):
            pass  # it has just ended: the next one is begun

    def close(self) -> None:
        """Unload the model after pending requests; the next use loads it again."""
        with self._changing:
            thread, self._thread = self._thread, None
            end, self._end = self._end, None
        if thread is not None and end is not None:
            end()
            thread.join()

    def _running(self) -> _BatchThread[RequestT]:
        with self._changing:
            if self._thread is None or self._thread.is_over:
                if self._end is not None:
                    self._end.detach()
                self._thread = _BatchThread(self._model, self._begin)
                # The thread knows nothing of this object, and ends with it.
                self._end = weakref.finalize(self, self._thread.end)
                self._thread.start()
            return self._thread


class _BatchThread(threading.Thread, Generic[RequestT]):
    """Loads a model and answers batches until it is stopped."""

    def __init__(
        self, model: ModelSpec, begin: Callable[[ModelSpec], LoadedModel[RequestT]]
    ) -> None:
        super().__init__(name="podium-batches", daemon=True)
        self.loaded: Future[Pretrained] = Future()
        self.loaded.set_running_or_notify_cancel()  # a cancelled caller must not cancel the others
        self.is_over = False
        self._model = model
        self._begin = begin
        self._queue: queue.SimpleQueue[RequestT | None] = queue.SimpleQueue()
        self._ending = threading.RLock()

    def submit(self, request: RequestT) -> bool:
        """Submit a request; False if the thread is stopping."""
        with self._ending:
            if not self.is_over:
                self._queue.put(request)
            return not self.is_over

    def end(self) -> None:
        """Stop after the pending requests."""
        with self._ending:
            if not self.is_over:
                self.is_over = True
                self._queue.put(None)

    def run(self) -> None:
        try:
            work = self._begin(self._model)
        except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
            self.end()
            self.loaded.set_exception(error)
            deliver(list(iter(self._queue.get, None)), error)
            return
        self.loaded.set_result(work.pretrained)
        is_last = False
        while not is_last:
            requests, is_last = self._next_batch()
            work.answer(requests, self._arrivals)

    def _next_batch(self) -> tuple[list[RequestT], bool]:
        requests: list[RequestT] = []
        another = self._queue.get()
        latest = time.monotonic() + LONGEST_WAIT_SECONDS
        while another is not None:
            requests.append(another)
            if len(requests) == MAX_ROWS or time.monotonic() > latest:
                return requests, False
            if self._queue.empty():
                _wait_for_turns(another.future.get_loop(), LONGEST_WAIT_SECONDS)
            try:
                another = self._queue.get_nowait()
            except queue.Empty:
                return requests, False
        return requests, True

    def _arrivals(self) -> list[RequestT]:
        """Return the requests that wait, without waiting for any."""
        found: list[RequestT] = []
        while not self._queue.empty():
            another = self._queue.get()
            if another is None:
                self._queue.put(None)  # the end comes after what it waits for
                break
            found.append(another)
        return found


def _wait_for_turns(loop: asyncio.AbstractEventLoop, longest: float) -> None:
    """Let that event loop turn a few times, so that its tasks can submit requests."""
    is_over = threading.Event()

    def turn(left: int) -> None:
        if left:
            loop.call_soon(turn, left - 1)
        else:
            is_over.set()

    try:
        loop.call_soon_threadsafe(turn, IDLE_LOOP_ITERATIONS)
    except RuntimeError:
        return  # the loop is closed
    is_over.wait(longest)


def split_batches(requests: Sequence[RequestT], max_tokens: int) -> Iterator[list[RequestT]]:
    """Group requests of similar length, no more at a time than memory holds."""
    batch: list[RequestT] = []
    for one in sorted(requests, key=lambda one: one.size):
        if batch and (len(batch) + 1) * one.size > max_tokens:
            yield batch
            batch = []
        batch.append(one)
    if batch:
        yield batch


def deliver(batch: Sequence[BatchRequest], outcome: Sequence[Any] | Exception) -> None:
    """Resolve the futures, grouped by event loop."""
    waiting: dict[asyncio.AbstractEventLoop, list[tuple[Any, Any]]] = {}
    for position, request in enumerate(batch):
        own = outcome if isinstance(outcome, Exception) else outcome[position]
        waiting.setdefault(request.future.get_loop(), []).append((request.future, own))
    for loop, settled in waiting.items():
        try:
            loop.call_soon_threadsafe(_settle, settled)
        except RuntimeError:
            continue  # the loop is closed


def _settle(waiting: Sequence[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, outcome in waiting:
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


MAX_TOKENS: Final = 600_000
"""Rows times their greatest length, if memory allows."""

PROCESSOR_BYTES: Final = 2 * 2**30
"""Bytes for the keys and values of a batch on a CPU; on a GPU, half of the free memory after
loading."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A prompt that waits for its completion; `adapter` is a directory."""

    prompt: Sequence[int]
    sampling: Sampling
    adapter: str | None
    future: asyncio.Future[Completion]

    @property
    def size(self) -> int:
        return len(self.prompt) + self.sampling.max_tokens


class CompletionModel(SharedBatchModel[CompletionRequest]):
    """One model in memory with any number of adapters. Safe across event loops and threads."""

    def __init__(self, model: ModelSpec) -> None:
        super().__init__(model, _LoadedCompletion)

    async def complete(
        self, prompt: Sequence[int], sampling: Sampling, adapter: str | None = None
    ) -> Completion:
        """Complete the prompt, in a batch with concurrent requests."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.submit(CompletionRequest(prompt, sampling, adapter, future))
        return await future


class _LoadedCompletion:
    def __init__(self, model: ModelSpec) -> None:
        from podium.workers.local import pretrained
        from podium.workers.local.captured import GROUPED_ATTENTION, can_be_captured
        from podium.workers.local.decoding import Decoder

        self.pretrained = pretrained.load(
            model.name, dtype=pretrained.data_type(model.dtype), device=model.device
        )
        self._decoder: Decoder = Decoder(
            self.pretrained.model,
            end_tokens=self.pretrained.end_tokens,
            padding=self.pretrained.tokenizer.pad_token_id,
        )
        self._most_tokens = max_tokens(self.pretrained.model)
        self._captured = can_be_captured(self.pretrained.model)
        if self._captured:
            self.pretrained.model.config._attn_implementation = GROUPED_ATTENTION

    def answer(
        self, requests: Sequence[CompletionRequest], arrivals: Arrivals[CompletionRequest]
    ) -> None:
        """Complete the requests; an error fails only its own batch."""
        able = self._able(requests)
        if self._captured:
            able = self._complete_in_rows(able, arrivals)
        for batch in split_batches(able, self._most_tokens):
            try:
                deliver(batch, self._completions(batch))
            except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
                deliver(batch, error)

    def _able(self, requests: Sequence[CompletionRequest]) -> list[CompletionRequest]:
        waiting = [request for request in requests if not request.future.cancelled()]
        return [request for request in waiting if self._has_adapter(request)]

    def _complete_in_rows(
        self, requests: Sequence[CompletionRequest], arrivals: Arrivals[CompletionRequest]
    ) -> list[CompletionRequest]:
        """Complete what fits into captured rows; return the rest."""
        too_long: list[CompletionRequest] = []
        while requests:
            run = _CapturedRun(self._decoder, arrivals)
            run.complete(requests)
            too_long += run.too_long
            requests = self._able(run.later)
        return too_long

    def _completions(self, batch: Sequence[CompletionRequest]) -> list[Completion]:
        adapters = self._decoder.adapters
        return self._decoder.complete(
            [request.prompt for request in batch],
            [request.sampling for request in batch],
            adapter_indices=[adapters.index(request.adapter) for request in batch]
            if adapters
            else None,
        )

    def _has_adapter(self, request: CompletionRequest) -> bool:
        """Load the adapter if necessary; True if one is used.

        A model without adapters need not support them.
        """
        if request.adapter is None:
            return True
        from podium.workers.local.lora import EVERY_LINEAR_LAYER, AdapterStack

        try:
            if self._decoder.adapters is None:
                model = self.pretrained.model
                self._decoder.adapters = AdapterStack(
                    model, targets=EVERY_LINEAR_LAYER, dtype=model.dtype
                )
            if request.adapter not in self._decoder.adapters.names:
                self._decoder.adapters.add(request.adapter, Path(request.adapter))
        except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
            deliver([request], error)
            return False
        return True


class _CapturedRun:
    """Completes requests in captured rows, and others that join.

    `later` have an adapter that was not loaded; it would change the captured step. `too_long` do
    not fit into a row.
    """

    def __init__(self, decoder: Decoder, arrivals: Arrivals[CompletionRequest]) -> None:
        self.later: list[CompletionRequest] = []
        self.too_long: list[CompletionRequest] = []
        self._decoder = decoder
        self._arrivals = arrivals
        self._unfinished: dict[Hashable, CompletionRequest] = {}

    def complete(self, requests: Sequence[CompletionRequest]) -> None:
        try:
            for done in self._decoder.complete_jobs(self._jobs(requests), self._joining):
                ended = [self._unfinished.pop(key) for key, _ in done]
                deliver(ended, [completion for _, completion in done])
        except Exception as error:  # noqa: BLE001 - every fault goes to those who wait
            deliver(list(self._unfinished.values()), error)

    def _joining(self) -> list[Job]:
        return [] if self.later else self._jobs(self._arrivals())

    def _jobs(self, requests: Sequence[CompletionRequest]) -> list[Job]:
        from podium.workers.local.decoding import Job

        adapters, jobs = self._decoder.adapters, []
        known = (None, *adapters.names) if adapters is not None else (None,)
        for request in requests:
            if request.adapter not in known:
                self.later.append(request)
                continue
            index = adapters.index(request.adapter) if adapters is not None else None
            job = Job(id(request), request.prompt, request.sampling, index)
            if self._decoder.has_room_for(job):
                self._unfinished[job.key] = request
                jobs.append(job)
            else:
                self.too_long.append(request)
        return jobs


def max_tokens(model: Any) -> int:
    """Return the number of tokens whose keys and values fit into memory."""
    from podium.workers.local.captured import bytes_per_token, free_bytes

    is_on_a_card = model.device.type == "cuda"
    room = free_bytes(model) // 2 if is_on_a_card else PROCESSOR_BYTES
    return min(MAX_TOKENS, room // bytes_per_token(model))


shared_completion_model: Final = SharedByKey(CompletionModel)
"""Return the one model of this process with that name and settings."""
