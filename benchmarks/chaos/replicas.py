"""Kill one of three servers over one Postgres every few seconds, under load.

Clients ask all three, and after a broken connection ask another with the same `Idempotency-Key`:
every question is one run. Each client's key has a cap on money. The upstream survives and counts
what it was asked, and so what was spent.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, NamedTuple

import httpx

from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.upstream import CallCounts, StepName, chaos_upstream, read_counts
from benchmarks.chaos.workload import (
    EXACT_USD,
    PRICE,
    cost_of,
    has_ended,
    mark_of,
    runs_by_mark,
    seeded_random,
    steps_done,
)
from benchmarks.postgres import running_postgres
from benchmarks.processes import CONFIGURATION, OK, WORKER, Started, free_port, podium_process
from podium._util.process import REPLICA_VARIABLE
from podium.core.errors import NotFound
from podium.core.run import Run
from podium.server.access.keys import make_key
from podium.store import RunFilter, RunStore, open_store
from podium.store.keys import Allowance, Rules

_DONE: Final = b"data: [DONE]"


class Response(NamedTuple):
    """A response, streamed or not: the text of a whole answer, or what is wrong with it."""

    status: int
    text: str = ""
    error: str = ""


async def post(
    port: int, document: Mapping[str, Any], headers: Mapping[str, str], seconds: float
) -> Response:
    """Post to Chat Completions on a port of this machine and read the response.

    Raises `OSError` or `TimeoutError` where there is none, or it breaks off.
    """
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    async with (
        asyncio.timeout(seconds),
        httpx.AsyncClient(trust_env=False, verify=False, timeout=None) as client,  # noqa: S113, S501 -- plain HTTP
    ):
        try:
            response = await client.post(url, json=document, headers=headers)
        except httpx.TransportError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
    status, content = response.status_code, response.content
    if status != OK:
        return Response(status, error=content[:300].decode(errors="replace"))
    if not response.headers["content-type"].startswith("text/event-stream"):
        return Response(status, response.json()["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in content.splitlines() if line.startswith(b"data: {")]
    choices = [choice for event in events for choice in event.get("choices", ())]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    errors = [str(event["error"]) for event in events if event.get("error")]
    if not errors and _DONE not in content:
        errors = ["the stream broke off"]
    return Response(status, text, "".join(errors[:1]))


REPLICAS: Final = 3
LATENCY_SECONDS: Final = 0.1
LEASE_SECONDS: Final = 3
BETWEEN_KILLS_SECONDS: Final = 4.0
CLIENTS_A_KEY: Final = 4
LONGEST_TAKEOVER_SECONDS: Final = 45.0
BETWEEN_LOOKS_SECONDS: Final = 0.1

LONGEST_ANSWER_SECONDS: Final = 60.0
"""A question without an answer by then is stuck."""

BETWEEN_TRIES_SECONDS: Final = 0.1
THINKING_SECONDS: Final = 0.05
POOR_SECONDS: Final = 0.5
"""Pause of a client whose key has no money left."""

OUT_OF_BUDGET: Final = 402

CAPS_USD: Final = {"ample": 100.0, "modest": 0.02, "small": 0.005, "tiny": 0.0008}
"""The cap of each key. All but the first are spent before the end."""

INNER: Final = ("inner-0", "inner-1")
"""The workers of a run, one for each step: so the upstream identifies the step."""

STEPS: Final = [
    {"worker": INNER[0], "subtask": "begin", "access": []},
    {"worker": INNER[1], "subtask": "end", "access": [0]},
]
SETTINGS: Final = """
[conductor]
kind = "fixed"
workflow = "inner.json"

[store]
url = "{url}"
lease_seconds = {lease}

[server]
require_keys = true
"""


def p50_and_p95(name: str, seconds: Sequence[float]) -> dict[str, int | float | str | None]:
    if len(seconds) < 2:
        return {}
    cuts = quantiles(seconds, n=20)
    return {f"{name}_p50_ms": round(cuts[9] * 1000, 1), f"{name}_p95_ms": round(cuts[18] * 1000, 1)}


@dataclass(slots=True)
class Kills:
    """The findings at the kills.

    `done` has the steps that were recorded as done, and how often each was called by then: they
    must not be called again. `hit` counts how often each run was in progress in the killed process,
    `takeovers` are the seconds until another process resumed such a run, `abandoned` counts those
    that none resumed.
    """

    done: dict[StepName, int] = field(default_factory=dict)
    hit: Counter[str] = field(default_factory=Counter)
    takeovers: list[float] = field(default_factory=list)
    abandoned: int = 0
    count: int = 0

    def note(self, done: Iterable[StepName], asked: Mapping[StepName, int]) -> None:
        for step in done:
            self.done.setdefault(step, asked.get(step, 0))

    def find_repeated(self, asked: Mapping[StepName, int]) -> list[StepName]:
        """Return the steps that were called again after they were recorded."""
        return [step for step, count in self.done.items() if asked.get(step, 0) > count]


class Spending(NamedTuple):
    """One account's spending, by the upstream's count.

    `unsettled` is the cost of calls that were in flight when their process was killed.
    """

    cap: float
    spent: float
    unsettled: float
    most_in_flight: float

    @property
    def beyond(self) -> float:
        return max(0.0, self.spent - self.cap)

    @property
    def overran(self) -> bool:
        """True if the cap was exceeded by more than calls in flight explain."""
        return self.beyond > self.unsettled + self.most_in_flight + EXACT_USD


class Replica:
    """A server that is restarted whenever it was killed."""

    def __init__(self, home: Path) -> None:
        self.port = free_port()
        self._home = home
        self._stack = AsyncExitStack()
        self._started: Started | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._started is not None, "only what was started is frozen or killed"
        return self._started.process

    async def start(self) -> None:
        name = {REPLICA_VARIABLE: self._home.name}
        server = podium_process(self._home, port=self.port, environment=name)
        self._started = await self._stack.enter_async_context(server)

    async def kill(self) -> None:
        self.process.kill()
        await self.stop()

    async def stop(self) -> None:
        self._started = None
        await self._stack.aclose()


@dataclass(frozen=True, slots=True)
class CappedKey:
    """A key of the servers, with its cap."""

    name: str
    key_id: str
    token: str
    cap_usd: float

    def has_asked(self, mark: str) -> bool:
        return mark.startswith(f"chaos-{self.name}-")


@dataclass(frozen=True, slots=True)
class EndedQuestion:
    """A question that was answered, refused for its budget (`answer` is None), or neither."""

    mark: str
    key: CappedKey
    answer: str | None
    is_refused: bool
    seconds: float
    tries: int
    error: str = ""

    @property
    def is_stuck(self) -> bool:
        return self.answer is None and not self.is_refused


@dataclass(slots=True)
class Load:
    """Clients that ask one question after another."""

    replicas: Sequence[Replica]
    seed: int
    ended: list[EndedQuestion] = field(default_factory=list)
    is_over: bool = False

    async def keep_asking(self, client: int, key: CappedKey) -> None:
        rng, number = seeded_random(self.seed, client), 0
        while not self.is_over:
            ended = await self._ask(f"chaos-{key.name}-{client:02d}-{number:05d}", key, rng)
            self.ended.append(ended)
            number += 1
            await asyncio.sleep(POOR_SECONDS if ended.is_refused else THINKING_SECONDS)

    async def _ask(self, mark: str, key: CappedKey, rng: random.Random) -> EndedQuestion:
        """Ask until the question ends, changing the server after every failure."""
        document = {
            "model": "podium-ultra",
            "messages": [{"role": "user", "content": f"{mark}: what holds?"}],
            "stream": rng.random() < 0.5,
        }
        headers = {"authorization": f"Bearer {key.token}", "idempotency-key": mark}
        began, tries, error = time.monotonic(), 0, ""
        answer, is_refused = None, False
        while (left := began + LONGEST_ANSWER_SECONDS - time.monotonic()) > 0:
            tries += 1
            try:
                response = await post(rng.choice(self.replicas).port, document, headers, left)
            except (OSError, TimeoutError) as broken:
                error = f"{type(broken).__name__}: {broken}"
            else:
                error = response.error
                answer = None if error else response.text
                is_refused = response.status == OUT_OF_BUDGET or "budget" in error
                if answer is not None or is_refused:
                    break
            await asyncio.sleep(BETWEEN_TRIES_SECONDS)
        seconds = time.monotonic() - began
        return EndedQuestion(mark, key, answer, is_refused, seconds, tries, error)


async def measure_replicas(seconds: float, seed: int) -> ChaosRow:
    """Load the servers for `seconds` with kills; then let all questions end."""
    started = time.perf_counter()
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-chaos-")))
        url = stack.enter_context(running_postgres()).address()
        port = await stack.enter_async_context(chaos_upstream(LATENCY_SECONDS))
        store = await open_store(url)
        stack.push_async_callback(store.close)
        keys = [await _create_key(store, name, cap) for name, cap in CAPS_USD.items()]
        replicas = []
        for number in range(REPLICAS):
            home = directory / f"replica-{number}"
            home.mkdir()
            write_configuration(home, port, url)
            replicas.append(Replica(home))
            stack.push_async_callback(replicas[-1].stop)
        await asyncio.gather(*(replica.start() for replica in replicas))
        load, kills = Load(replicas, seed), Kills()
        async with asyncio.TaskGroup() as group:
            for client, key in enumerate([key for key in keys for _ in range(CLIENTS_A_KEY)]):
                group.create_task(load.keep_asking(client, key))
            await Killer(replicas, store, port, kills, seed).kill_for(seconds)
            load.is_over = True
        await _until_none_runs(store)
        kept = await runs_by_mark(store)
        charged = {key.key_id: await _charged_usd(store, key) for key in keys}
        asked = await read_counts(port)
    judge = Judge(load.ended, kept, asked, kills, charged)
    return judge.row(keys, time.perf_counter() - started)


def write_configuration(home: Path, port: int, url: str) -> None:
    """Write the configuration of a server over the upstream on that port and that store."""
    (home / "inner.json").write_text(json.dumps({"steps": STEPS}), "utf-8")
    price = f"price = {{ input = {PRICE.input}, output = {PRICE.output} }}"
    workers = [WORKER.format(name=name, port=port, more=price) for name in INNER]
    text = SETTINGS.format(url=url, lease=LEASE_SECONDS) + "".join(workers)
    (home / CONFIGURATION).write_text(text, "utf-8")


async def _create_key(store: RunStore, name: str, cap: float) -> CappedKey:
    made = make_key(name, Rules(in_total=Allowance(usd=cap)))
    await store.keys.add(made.key)
    return CappedKey(name, made.key.id, made.token, cap)


async def _charged_usd(store: RunStore, key: CappedKey) -> float:
    used = await store.keys.usage(key_id=key.key_id)
    return sum(item.cost_usd for item in used)


class Killer:
    """Kills servers and records the state of runs at each kill."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        store: RunStore,
        port: int,
        kills: Kills,
        seed: int,
    ) -> None:
        self._replicas = replicas
        self._store = store
        self._port = port
        self._kills = kills
        self._chance = random.Random(seed)  # noqa: S311 -- seeded_random, not unguessable

    async def kill_for(self, seconds: float) -> None:
        """Kill a server every few seconds; restart each at once, except after the end."""
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as watches:
            while (left := until - time.monotonic()) > 0:
                pause = BETWEEN_KILLS_SECONDS * self._chance.uniform(0.5, 1.5)
                await asyncio.sleep(min(pause, left))
                replica = self._chance.choice(self._replicas)
                replica.process.send_signal(signal.SIGSTOP)  # so that its state can be read
                left_behind = await self._look(f":{replica.process.pid}")
                await replica.kill()
                died = time.monotonic()
                for run in left_behind:
                    watches.create_task(self._watch(run, died))
                if time.monotonic() < until:
                    await replica.start()

    async def _look(self, process: str) -> list[Run]:
        """Record the steps of runs in progress, and return the runs of the frozen server."""
        self._kills.count += 1
        going_on = await self._store.list(RunFilter(status="running"), limit=1000)
        runs = [await self._store.load(summary.id) for summary in going_on]
        asked = await read_counts(self._port)
        for run in runs:
            self._kills.note(steps_done(run, mark_of(run.question)), asked.steps)
        left_behind = [
            run for run in runs if run.status == "running" and run.process.endswith(process)
        ]
        self._kills.hit.update(mark_of(run.question) for run in left_behind)
        return left_behind

    async def _watch(self, run: Run, died: float) -> None:
        """Measure the time until another server resumes or ends the run."""
        while time.monotonic() < died + LONGEST_TAKEOVER_SECONDS:
            try:
                now = await self._store.load(run.id)
            except NotFound:
                break
            if now.status != "running" or now.process != run.process:
                self._kills.takeovers.append(time.monotonic() - died)
                return
            await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
        self._kills.abandoned += 1


async def _until_none_runs(store: RunStore) -> None:
    for _ in range(round(LONGEST_TAKEOVER_SECONDS / BETWEEN_LOOKS_SECONDS)):
        if not await store.list(RunFilter(status="running"), limit=1):
            return
        await asyncio.sleep(BETWEEN_LOOKS_SECONDS)


@dataclass(frozen=True, slots=True)
class Judge:
    """Compares the clients' answers, the store, the upstream's counts and the keys' charges."""

    ended: Sequence[EndedQuestion]
    kept: Mapping[str, Sequence[Run]]
    asked: CallCounts
    kills: Kills
    charged: Mapping[str, float]

    def is_lost(self, end: EndedQuestion) -> bool:
        """True if no stored run has the answer that the client got."""
        runs = self.kept.get(end.mark, ())
        return end.answer is not None and not any(run.answer == end.answer for run in runs)

    def asked_again(self) -> int:
        """Count questions with a step called again although it was recorded or never in flight at a
        kill."""
        again = {step.mark for step in self.kills.find_repeated(self.asked.steps)}
        for mark, runs in self.kept.items():
            recorded = sum(len(list(run.calls)) for run in runs)
            in_flight = sum(n for step, n in self.asked.cut_off.items() if step.mark == mark)
            if not self.kills.hit[mark] and self.asked.calls(mark) > recorded + in_flight:
                again.add(mark)
        return len(again)

    def spending(self, key: CappedKey) -> Spending:
        """Return what was spent with a key, by the upstream's count.

        Unrecorded calls are unsettled as far as kills can have hidden them: a killed server has
        called each step of a question at most once without recording it.
        """
        marks = {step.mark for step in self.asked.steps if key.has_asked(step.mark)}
        spent = unsettled = 0.0
        for mark in marks:
            cost, asked = cost_of(mark), self.asked.calls(mark) * cost_of(mark)
            recorded = sum(run.cost_usd or 0.0 for run in self.kept.get(mark, ()))
            hidden_at_most = self.kills.hit[mark] * len(INNER) * cost
            unsettled += min(max(0.0, asked - recorded), hidden_at_most)
            spent += asked
        most = CLIENTS_A_KEY * max(map(cost_of, marks), default=0.0)
        return Spending(key.cap_usd, spent, unsettled, most)

    def is_mischarged(self, key: CappedKey) -> bool:
        """True if the key was not charged the cost of its runs, each of them once."""
        runs = [
            run for mark, of_mark in self.kept.items() if key.has_asked(mark) for run in of_mark
        ]
        cost = sum(run.cost_usd or 0.0 for run in runs)
        return abs(cost - self.charged[key.key_id]) > EXACT_USD * max(1, len(runs))

    def row(self, keys: Sequence[CappedKey], seconds: float) -> ChaosRow:
        kills, ended = self.kills, self.ended
        spendings = [self.spending(key) for key in keys]
        twice = sum(len(runs) > 1 for runs in self.kept.values())
        left = sum(not has_ended(run) for runs in self.kept.values() for run in runs)
        rich = [end for end in ended if not end.is_refused]
        answered = sum(end.answer is not None for end in rich)
        refused = len(ended) - len(rich)
        broken = (
            (twice, "questions have more than one run"),
            (left, "runs of the store did not end"),
            (kills.abandoned, "runs were not taken up in time"),
        )
        return ChaosRow(
            name="replicas",
            runs=len(ended),
            lost=sum(map(self.is_lost, ended)),
            stuck=sum(end.is_stuck for end in ended),
            answered_share=answered / len(rich) if rich else None,
            usage_mismatch=sum(map(self.is_mischarged, keys)),
            repeated_steps=self.asked_again(),
            budget_overruns=sum(spending.overran for spending in spendings),
            seconds=seconds,
            note=(
                f"killed {kills.count} times, {len(kills.takeovers)} runs taken over; "
                f"{refused} questions refused for their budget"
            ),
            broken=tuple(f"{count} {words}" for count, words in broken if count),
            figures={
                "kills": kills.count,
                "takeovers": len(kills.takeovers),
                **p50_and_p95("takeover", kills.takeovers),
                **p50_and_p95("latency", [end.seconds for end in rich]),
                "tries": sum(end.tries for end in ended),
                "refused": refused,
                "calls": self.asked.total,
                "most_usd_beyond_a_cap": round(max(item.beyond for item in spendings), 9),
                "errors": "; ".join(sorted({end.error for end in ended if end.is_stuck})[:3]),
            },
        )
