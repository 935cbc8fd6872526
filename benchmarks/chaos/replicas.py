"""Three servers over one Postgres, of which one is killed every few seconds, under load.

Clients ask all three, and on a broken connection ask another with the same `Idempotency-Key`: so
every question is one run, whoever performs it to its end. Each client's key has a cap on money.
The upstream outlives them all and knows what was asked, and so what was spent.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.chaos.checks import (
    EXACT_USD,
    Journal,
    Spending,
    every_run,
    has_ended,
    middle_and_tail,
)
from benchmarks.chaos.client import Response, post
from benchmarks.chaos.report import ChaosRow
from benchmarks.chaos.scene import INNER, PRICE, mark_of, steps_done, write_scene
from benchmarks.chaos.upstream import Asked, Conduct, asked_of, chaos_upstream, tokens_of
from benchmarks.postgres import running_postgres
from benchmarks.processes import Started, free_port, server_process
from podium._util.process import NAMED_BY
from podium.core.errors import NotFound
from podium.core.run import Run
from podium.server.access.tokens import make_key
from podium.store import RunFilter, RunStore, keys_in, open_store
from podium.store.keys import Allowance, Rules


class Replica:
    """A server that is started again whenever it was killed."""

    def __init__(self, name: str, configuration: Path, directory: Path) -> None:
        self.port = free_port()
        self._name = name
        self._configuration = configuration
        self._directory = directory
        self._stack = AsyncExitStack()
        self._started: Started | None = None

    @property
    def pid(self) -> int | None:
        """The process at work, if there is one."""
        return None if self._started is None else self._started.process.pid

    async def start(self) -> None:
        """Start it, and wait until it says that it is ready."""
        self._directory.mkdir(exist_ok=True)
        options = ("--config", str(self._configuration), "--host", "127.0.0.1")
        self._started = await self._stack.enter_async_context(
            server_process(
                self._name,
                (sys.executable, "-P", "-m", "podium", "serve", *options, "--port", str(self.port)),
                port=self.port,
                ready="/readyz",
                directory=self._directory,
                environment={"PODIUM_HOME": str(self._directory), NAMED_BY: self._name},
            )
        )

    def freeze(self) -> None:
        """Let it do nothing more, so that what it has done can be looked at before it is killed."""
        assert self._started is not None, "only what was started is frozen"
        self._started.process.send_signal(signal.SIGSTOP)

    async def kill(self) -> None:
        """End it as no process can prevent, and wait until it is gone."""
        assert self._started is not None, "only what was started is killed"
        self._started.process.kill()
        self._started = None
        await self._stack.aclose()

    async def stop(self) -> None:
        """End it gently, if it runs."""
        self._started = None
        await self._stack.aclose()


LONGEST_ANSWER_SECONDS: Final = 60.0
"""A question that has no answer by then is stuck."""

BETWEEN_TRIES_SECONDS: Final = 0.1
THINKING_SECONDS: Final = 0.05
POOR_SECONDS: Final = 0.5
"""Between two questions of a client, and where its key has no money left."""

OUT_OF_BUDGET: Final = 402


@dataclass(frozen=True, slots=True)
class Purse:
    """A key to the servers: its id, its token, and the cap on what may be spent with it."""

    name: str
    key_id: str
    token: str
    cap_usd: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A question that was answered, refused for want of money (`answer` is None), or neither."""

    mark: str
    purse: Purse
    answer: str | None
    is_refused: bool
    seconds: float
    tries: int
    error: str = ""

    @property
    def is_stuck(self) -> bool:
        """Whether it has not come to an end."""
        return self.answer is None and not self.is_refused


@dataclass(slots=True)
class Load:
    """Questions of some clients, asked one after another by each."""

    replicas: Sequence[Replica]
    seed: int
    ended: list[Ended] = field(default_factory=list)
    is_over: bool = False

    async def keep_asking(self, client: int, purse: Purse) -> None:
        """Ask with that key until it is over."""
        chance = random.Random(f"{self.seed}:{client}")  # noqa: S311 -- repeatable
        number = 0
        while not self.is_over:
            ended = await self._ask(f"chaos-{purse.name}-{client:02d}-{number:05d}", purse, chance)
            self.ended.append(ended)
            number += 1
            await asyncio.sleep(POOR_SECONDS if ended.is_refused else THINKING_SECONDS)

    async def _ask(self, mark: str, purse: Purse, chance: random.Random) -> Ended:
        """Ask until there is an end, at another server whenever there is no answer from one."""
        document = {
            "model": "podium-ultra",
            "messages": [{"role": "user", "content": f"{mark}: what holds?"}],
            "stream": chance.random() < 0.5,
        }
        headers = {"authorization": f"Bearer {purse.token}", "idempotency-key": mark}
        began = time.monotonic()
        tries, error = 0, ""
        while (left := began + LONGEST_ANSWER_SECONDS - time.monotonic()) > 0:
            tries += 1
            try:
                port = chance.choice(self.replicas).port
                response = await post(port, document, headers, left)
            except (OSError, EOFError, TimeoutError) as broken:
                error = f"{type(broken).__name__}: {broken}"
            else:
                error = response.error
                seconds = time.monotonic() - began
                if response.is_answer:
                    return Ended(mark, purse, response.text, False, seconds, tries)
                if _is_poor(response):
                    return Ended(mark, purse, None, True, seconds, tries, error)
            await asyncio.sleep(BETWEEN_TRIES_SECONDS)
        return Ended(mark, purse, None, False, time.monotonic() - began, tries, error)


def _is_poor(response: Response) -> bool:
    return response.status == OUT_OF_BUDGET or "budget" in response.error


REPLICAS: Final = 3
LATENCY_SECONDS: Final = 0.1
LEASE_SECONDS: Final = 3
BETWEEN_KILLS_SECONDS: Final = 4.0
CLIENTS_A_KEY: Final = 4
LONGEST_TAKEOVER_SECONDS: Final = 45.0
BETWEEN_LOOKS_SECONDS: Final = 0.1

CAPS_USD: Final = {"ample": 100.0, "modest": 0.02, "small": 0.005, "tiny": 0.0008}
"""What may be spent with each key. All but the first are spent before the end."""

SETTINGS: Final = """
[store]
url = "{url}"
lease_seconds = {lease}

[server]
keys = true
"""


@dataclass(slots=True)
class Deaths:
    """What was seen at the kills: steps on record, how often each run was under way on the server
    that was killed, and the seconds until somebody else had taken such a run up."""

    journal: Journal = field(default_factory=Journal)
    hit: Counter[str] = field(default_factory=Counter)
    takeovers: list[float] = field(default_factory=list)
    abandoned: int = 0
    count: int = 0


async def measure_replicas(seconds: float, seed: int) -> ChaosRow:
    """Load them for so long, with one killed every few seconds; then let all questions end."""
    started = time.perf_counter()
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podium-chaos-")))
        url = stack.enter_context(running_postgres()).address()
        port = await stack.enter_async_context(
            chaos_upstream(Conduct(latency_seconds=LATENCY_SECONDS))
        )
        configuration = write_scene(directory, port, SETTINGS.format(url=url, lease=LEASE_SECONDS))
        store = await open_store(url)
        stack.push_async_callback(store.close)
        purses = [await _purse(store, name, cap) for name, cap in CAPS_USD.items()]
        replicas = [
            Replica(f"replica-{number}", configuration, directory / str(number))
            for number in range(REPLICAS)
        ]
        for replica in replicas:
            stack.push_async_callback(replica.stop)
        await asyncio.gather(*(replica.start() for replica in replicas))
        load, deaths = Load(replicas, seed), Deaths()
        await _under_load(load, purses, Killer(replicas, store, port, deaths, seed), seconds)
        await _until_none_runs(store)
        kept = await _kept(store)
        charged = {purse.key_id: await _charged(store, purse) for purse in purses}
        asked = await asked_of(port)
    judge = Judge(load.ended, kept, asked, deaths, charged)
    return judge.row(purses, time.perf_counter() - started)


async def _purse(store: RunStore, name: str, cap: float) -> Purse:
    made = make_key(name, Rules(in_total=Allowance(usd=cap)))
    await keys_in(store).add(made.key)
    return Purse(name, made.key.id, made.token, cap)


async def _charged(store: RunStore, purse: Purse) -> float:
    used = await keys_in(store).usage(key_id=purse.key_id)
    return sum(each.cost_usd for each in used)


async def _under_load(load: Load, purses: Sequence[Purse], killer: Killer, seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        for client, purse in enumerate([purse for purse in purses for _ in range(CLIENTS_A_KEY)]):
            group.create_task(load.keep_asking(client, purse))
        await killer.kill_for(seconds)
        load.is_over = True


class Killer:
    """Kills one server after another, and looks at what is on record then."""

    def __init__(
        self, replicas: Sequence[Replica], store: RunStore, port: int, deaths: Deaths, seed: int
    ) -> None:
        self._replicas = replicas
        self._store = store
        self._port = port
        self._deaths = deaths
        self._chance = random.Random(seed)  # noqa: S311 -- repeatable, not unguessable

    async def kill_for(self, seconds: float) -> None:
        """Kill one every few seconds for so long; each but the last is started again at once."""
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as watches:
            while (left := until - time.monotonic()) > 0:
                pause = BETWEEN_KILLS_SECONDS * self._chance.uniform(0.5, 1.5)
                await asyncio.sleep(min(pause, left))
                replica = self._chance.choice(self._replicas)
                replica.freeze()
                left_behind = await self._look(f":{replica.pid}")
                await replica.kill()
                died = time.monotonic()
                for run in left_behind:
                    watches.create_task(self._watch(run, died))
                if time.monotonic() < until:
                    await replica.start()

    async def _look(self, process: str) -> list[Run]:
        """Note what is on record of the runs that are under way, while the server that is to be
        killed stands still; those that it performs."""
        self._deaths.count += 1
        going_on = await self._store.list(RunFilter(status="running"), limit=1000)
        runs = [await self._store.load(summary.id) for summary in going_on]
        asked = await asked_of(self._port)
        for run in runs:
            self._deaths.journal.note(steps_done(run, mark_of(run.question)), asked.steps)
        left_behind = [
            run for run in runs if run.status == "running" and run.process.endswith(process)
        ]
        self._deaths.hit.update(mark_of(run.question) for run in left_behind)
        return left_behind

    async def _watch(self, run: Run, died: float) -> None:
        """See how long it takes until somebody else performs the run, or has ended it."""
        until = died + LONGEST_TAKEOVER_SECONDS
        while time.monotonic() < until:
            try:
                now = await self._store.load(run.id)
            except NotFound:
                break
            if now.status != "running" or now.process != run.process:
                self._deaths.takeovers.append(time.monotonic() - died)
                return
            await asyncio.sleep(BETWEEN_LOOKS_SECONDS)
        self._deaths.abandoned += 1


async def _until_none_runs(store: RunStore) -> None:
    """Wait until what clients gave up is ended by whoever took it up."""
    for _ in range(round(LONGEST_TAKEOVER_SECONDS / BETWEEN_LOOKS_SECONDS)):
        if not await store.list(RunFilter(status="running"), limit=1):
            return
        await asyncio.sleep(BETWEEN_LOOKS_SECONDS)


async def _kept(store: RunStore) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    async for summary in every_run(store):
        found.setdefault(mark_of(summary.question), []).append(await store.load(summary.id))
    return found


def cost_of(mark: str) -> float:
    """What a call for that question costs."""
    read, written = tokens_of(mark)
    return (read * PRICE.input + written * PRICE.output) / 1_000_000


@dataclass(frozen=True, slots=True)
class Judge:
    """What clients were told, what the store keeps, what the upstream was asked, and what the keys
    were charged: held against each other."""

    ended: Sequence[Ended]
    kept: Mapping[str, Sequence[Run]]
    asked: Asked
    deaths: Deaths
    charged: Mapping[str, float]

    def is_lost(self, end: Ended) -> bool:
        """Whether a question was answered of which no run tells, or another answer."""
        runs = self.kept.get(end.mark, ())
        return end.answer is not None and not any(run.answer == end.answer for run in runs)

    def asked_again(self) -> int:
        """Questions of which a step was asked again although it was on record, or although no call
        for it was ever in flight at a kill."""
        again = {step.mark for step in self.deaths.journal.repeated(self.asked.steps)}
        for mark, runs in self.kept.items():
            recorded = sum(len(list(run.calls)) for run in runs)
            in_flight = sum(n for step, n in self.asked.cut_off.items() if step.mark == mark)
            if not self.deaths.hit[mark] and self.asked.calls(mark) > recorded + in_flight:
                again.add(mark)
        return len(again)

    def spending(self, purse: Purse) -> Spending:
        """What was spent with a key, as the upstream has it. What is on no record is unsettled as
        far as kills can have hidden it, and otherwise spent as all else is."""
        marks = {step.mark for step in self.asked.steps if _is_of(purse, step.mark)}
        asked = {mark: self.asked.calls(mark) * cost_of(mark) for mark in marks}
        recorded = {
            mark: sum(run.cost_usd or 0.0 for run in self.kept.get(mark, ())) for mark in marks
        }
        dearest = max(map(cost_of, marks), default=0.0)
        return Spending(
            cap=purse.cap_usd,
            spent=sum(asked.values()),
            unsettled=sum(
                min(max(0.0, asked[mark] - recorded[mark]), self._hidden_at_most(mark))
                for mark in marks
            ),
            most_in_flight=CLIENTS_A_KEY * dearest,
        )

    def _hidden_at_most(self, mark: str) -> float:
        """What those calls cost of which kills can have left no record: whoever performs the
        question asks for each of its steps once, and is killed before any of them is kept."""
        return self.deaths.hit[mark] * len(INNER) * cost_of(mark)

    def is_mischarged(self, purse: Purse) -> bool:
        """Whether the key was charged something else than its runs came to, each of them once."""
        runs = [
            run for mark, of_mark in self.kept.items() if _is_of(purse, mark) for run in of_mark
        ]
        cost = sum(run.cost_usd or 0.0 for run in runs)
        return abs(cost - self.charged[purse.key_id]) > EXACT_USD * max(1, len(runs))

    def row(self, purses: Sequence[Purse], seconds: float) -> ChaosRow:
        """All of it as a row."""
        deaths, ended = self.deaths, self.ended
        spendings = [self.spending(purse) for purse in purses]
        twice = sum(len(runs) > 1 for runs in self.kept.values())
        left = sum(not has_ended(run) for runs in self.kept.values() for run in runs)
        rich = [end for end in ended if not end.is_refused]
        broken = [f"{twice} questions have more than one run"] if twice else []
        if left:
            broken.append(f"{left} runs of the store did not end")
        if deaths.abandoned:
            broken.append(f"{deaths.abandoned} runs were not taken up in time")
        refused = sum(end.is_refused for end in ended)
        return ChaosRow(
            name="replicas",
            runs=len(ended),
            lost=sum(map(self.is_lost, ended)),
            stuck=sum(end.is_stuck for end in ended),
            answered_share=sum(end.answer is not None for end in rich) / len(rich)
            if rich
            else None,
            usage_mismatch=sum(map(self.is_mischarged, purses)),
            repeated_steps=self.asked_again(),
            budget_overruns=sum(spending.overran for spending in spendings),
            seconds=seconds,
            note=(
                f"killed {deaths.count} times, {len(deaths.takeovers)} runs taken over; "
                f"{refused} questions refused for want of money"
            ),
            broken=tuple(broken),
            figures={
                "kills": deaths.count,
                "takeovers": len(deaths.takeovers),
                **middle_and_tail("takeover", deaths.takeovers),
                **middle_and_tail("latency", [end.seconds for end in rich]),
                "tries": sum(end.tries for end in ended),
                "refused": refused,
                "calls": sum(self.asked.steps.values()),
                "most_usd_beyond_a_cap": round(max(each.beyond for each in spendings), 9),
                "errors": "; ".join(sorted({end.error for end in ended if end.is_stuck})[:3]),
            },
        )


def _is_of(purse: Purse, mark: str) -> bool:
    return mark.startswith(f"chaos-{purse.name}-")
