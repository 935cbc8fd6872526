"""LangGraph's side of `benchmarks latency`: plan and execute, as its template does.

A planner node, then one node that executes the next step of the plan until none is left. The
template's call after each step, which may plan again, is left out. Each line on standard input is
a JSON list of jobs; a job holds the seconds of its plan and of its steps. The reply is a JSON list
of the seconds from question to answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import perf_counter
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]


class State(TypedDict):
    """The seconds of the plan, and of the steps that are left."""

    plan: float
    steps: list[float]


async def plan(state: State) -> dict[str, Any]:
    await asyncio.sleep(state["plan"])
    return {}


async def execute(state: State) -> dict[str, Any]:
    first, *rest = state["steps"]
    await asyncio.sleep(first)
    return {"steps": rest}


def compiled_graph() -> Any:
    graph = StateGraph(State)
    graph.add_node("planner", plan)
    graph.add_node("agent", execute)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", "agent")
    graph.add_conditional_edges("agent", lambda state: "agent" if state["steps"] else END)
    return graph.compile()


async def measure(jobs: list[list[Any]], at_once: int) -> list[float]:
    graph, slots = compiled_graph(), asyncio.Semaphore(at_once)

    async def perform(seconds: float, steps: list[float]) -> float:
        async with slots:
            started = perf_counter()
            await graph.ainvoke({"plan": seconds, "steps": steps})
            return perf_counter() - started

    return list(await asyncio.gather(*(perform(*job) for job in jobs)))


if __name__ == "__main__":
    order = json.load(sys.stdin)
    sys.stdout.write(json.dumps(asyncio.run(measure(order["jobs"], order["at_once"]))))
