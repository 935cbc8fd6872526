"""Send the same faults through Podium's server and through the LiteLLM proxy.

Each contestant has an upstream that fails alike, may call a worker four times and then a second
worker as often, and is otherwise as installed. Clients and timeouts are equal; half of the
requests stream.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import middle_and_tail
from benchmarks.chaos.client import Response, post
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.upstream import (
    ANSWER,
    CallCounts,
    UpstreamOptions,
    chaos_upstream,
    read_counts,
    tokens_of,
)
from benchmarks.chaos.workload import in_turns
from benchmarks.environment import LITELLM, OnProgress, prepare
from benchmarks.processes import WORKER, Started, podium_process
from benchmarks.server import litellm_model, litellm_process

SHARE: Final = 0.2
IN_FLIGHT: Final = 64
CLIENT_SECONDS: Final = 60.0
RETRIES: Final = 3
WORKERS: Final = ("first", "second")

PEER: Final = "LiteLLM"
NO_PROXY: Final = "not with --quick, nor where it cannot be installed"

Serve = Callable[[int, Path], AbstractAsyncContextManager[Started]]
"""Starts a contestant over the upstream on that port, in that directory."""


@dataclass(slots=True)
class ClientCounts:
    """The responses that clients received. Answers and usage count as right only if exact."""

    right: int = 0
    wrong: int = 0
    stuck: int = 0
    usage_right: int = 0
    usage_wrong: int = 0
    usage_missing: int = 0
    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)


async def measure_wire(
    requests: int,
    seed: int,
    on_progress: OnProgress,
    *,
    is_quick: bool = False,
) -> Sequence[ChaosRow]:
    """Send `requests` through Podium and, unless `is_quick`, through the proxy."""
    python = None if is_quick else await prepare(LITELLM, on_progress)
    with tempfile.TemporaryDirectory(prefix="podium-chaos-") as home:
        directory = Path(home)
        ours = await _through("peer", podium, "podium-mini", requests, seed, directory)
        if python is None:
            return ours, ChaosRow(name=PEER, runs=0, not_tried=NO_PROXY)

        def proxy(upstream: int, home: Path) -> AbstractAsyncContextManager[Started]:
            return litellm_process(python, litellm_document(upstream), home / "litellm")

        name = f"{PEER} {LITELLM.version}"
        theirs = await _through(name, proxy, WORKERS[0], requests, seed, directory)
    return ours, theirs


def podium(upstream: int, directory: Path) -> AbstractAsyncContextManager[Started]:
    """Start Podium's server over two workers that are each other's fallback."""
    workers = [
        WORKER.format(name=name, port=upstream, more=f'fallback = "{fallback}"')
        for name, fallback in (WORKERS, WORKERS[::-1])
    ]
    settings = f'[conductor]\nkind = "router"\n\n[retry]\nattempts = {1 + RETRIES}\n'
    return podium_process(directory / "podium", text=settings + "".join(workers))


def litellm_document(upstream: int) -> dict[str, object]:
    """Return the proxy's configuration: the second model is the fallback of the first."""
    return {
        "model_list": [litellm_model(name, upstream) for name in WORKERS],
        "router_settings": {
            "num_retries": RETRIES,
            "fallbacks": [{WORKERS[0]: [WORKERS[1]]}],
        },
    }


async def _through(
    name: str, serve: Serve, model: str, requests: int, seed: int, directory: Path
) -> ChaosRow:
    options = UpstreamOptions(fault_share=SHARE, seed=seed)
    counts = ClientCounts()
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(chaos_upstream(options))
        server = await stack.enter_async_context(serve(upstream, directory))
        started = time.perf_counter()
        await in_turns(requests, IN_FLIGHT, lambda n: _ask(server.port, model, n, counts))
        seconds = time.perf_counter() - started
        asked = await read_counts(upstream)
    return _row(name, requests, counts, asked, seconds)


async def _ask(port: int, model: str, number: int, counts: ClientCounts) -> None:
    mark = f"chaos-{number:06d}"
    document: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": f"{mark}: what holds?"}],
    }
    if number % 2:
        document |= {"stream": True, "stream_options": {"include_usage": True}}
    began = time.perf_counter()
    try:
        response = await post(port, document, {"authorization": "Bearer sk-bench"}, CLIENT_SECONDS)
    except TimeoutError:
        counts.stuck += 1
        return
    except (OSError, EOFError) as error:
        counts.errors[type(error).__name__] += 1
        return
    finally:
        counts.seconds.append(time.perf_counter() - began)
    judge(response, mark, counts)


def judge(response: Response, mark: str, counts: ClientCounts) -> None:
    """Compare a client's response with the upstream's answer to that question."""
    if not response.is_answer:
        counts.errors[response.error or f"{response.status}, broken off"] += 1
        return
    if response.text != ANSWER:
        counts.wrong += 1
        return
    counts.right += 1
    usage = response.usage
    if usage is None:
        counts.usage_missing += 1
    elif (usage.get("prompt_tokens"), usage.get("completion_tokens")) == tokens_of(mark):
        counts.usage_right += 1
    else:
        counts.usage_wrong += 1


def _row(
    name: str, requests: int, counts: ClientCounts, asked: CallCounts, seconds: float
) -> ChaosRow:
    failed = counts.errors.total()
    times = middle_and_tail("latency", counts.seconds)
    return ChaosRow(
        name=name,
        runs=requests,
        lost=counts.wrong,
        stuck=counts.stuck,
        answered_share=counts.right / requests,
        usage_mismatch=counts.usage_wrong,
        seconds=seconds,
        note=(
            f"{failed} errors sent to clients, {counts.usage_missing} replies without usage; "
            f"p50 {times.get('latency_p50_ms')} ms, p95 {times.get('latency_p95_ms')} ms"
        ),
        figures={
            "answered": counts.right,
            "errors": failed,
            "usage_right": counts.usage_right,
            "usage_wrong": counts.usage_wrong,
            "usage_missing": counts.usage_missing,
            **times,
            "requests_per_second": round(requests / seconds, 1),
            "calls_upstream": asked.total,
            "faults_upstream": sum(asked.faults.values()),
            "commonest_errors": "; ".join(
                f"{count} × {words[:120]}" for words, count in counts.errors.most_common(3)
            ),
        },
    )
