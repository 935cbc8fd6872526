"""LangGraph's side of the benchmarks. It runs in a Python with LangGraph and without Podium.

Standard input holds one JSON object. `{"repeat": N}` times N blocks of a chain of five nodes that
do nothing, and prints the microseconds of one chain in each. `{"jobs": [[plan, [step, ...]], ...],
"at_once": N}` plans and executes jobs of so many seconds, as the template does but without its
call after each step, and prints the seconds from question to answer.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from time import perf_counter
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]

LENGTH = 5
CHAINS_A_BLOCK = 2


class State(TypedDict):
    """The seconds of the plan, and of the steps that are left."""

    plan: float
    steps: list[float]


IDLE: State = {"plan": 0.0, "steps": []}


async def idle(state: State) -> State:
    return IDLE


def compile_chain() -> Any:
    graph = StateGraph(State)
    names = [f"step_{index}" for index in range(LENGTH)]
    for name in names:
        graph.add_node(name, idle)
    for before, after in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(before, after)
    return graph.compile()


async def time_chains(repeat: int) -> list[float]:
    """Time blocks of chains; the first chain of each is not timed."""
    chain, found = compile_chain(), []
    gc.collect()
    gc.freeze()
    for _ in range(repeat):
        await chain.ainvoke(IDLE)
        started = perf_counter()
        for _ in range(CHAINS_A_BLOCK):
            await chain.ainvoke(IDLE)
        found.append((perf_counter() - started) / CHAINS_A_BLOCK * 1e6)
    return found


async def plan(state: State) -> dict[str, Any]:
    await asyncio.sleep(state["plan"])
    return {}


async def execute(state: State) -> dict[str, Any]:
    first, *rest = state["steps"]
    await asyncio.sleep(first)
    return {"steps": rest}


def compile_planner() -> Any:
    graph = StateGraph(State)
    graph.add_node("planner", plan)
    graph.add_node("agent", execute)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "agent")
    graph.add_conditional_edges("agent", lambda state: "agent" if state["steps"] else END)
    return graph.compile()


async def time_jobs(jobs: list[list[Any]], at_once: int) -> list[float]:
    graph, slots = compile_planner(), asyncio.Semaphore(at_once)

    async def perform(seconds: float, steps: list[float]) -> float:
        async with slots:
            started = perf_counter()
            await graph.ainvoke({"plan": seconds, "steps": steps})
            return perf_counter() - started

    return list(await asyncio.gather(*(perform(*job) for job in jobs)))


if __name__ == "__main__":
    order = json.load(sys.stdin)
    work = time_jobs(**order) if "jobs" in order else time_chains(**order)
    sys.stdout.write(json.dumps(asyncio.run(work)))
