"""LangGraph's side of `benchmarks engine`: a graph of five async nodes that do nothing.

It runs in a Python with LangGraph and without Podium. For each line on standard input, it times a
block of chains and prints the microseconds of one.
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
    """The state of the graph."""

    reply: str


DONE: State = {"reply": "done"}


async def idle(state: State) -> State:
    return DONE


def compiled_chain() -> Any:
    graph = StateGraph(State)
    previous = START
    for index in range(LENGTH):
        name = f"step_{index}"
        graph.add_node(name, idle)
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph.compile()


async def answer_for_blocks() -> None:
    """Time a block for each input line; its first chain is not timed."""
    chain = compiled_chain()
    gc.collect()
    gc.freeze()
    while sys.stdin.readline():
        await chain.ainvoke({"reply": ""})
        started = perf_counter()
        for _ in range(CHAINS_A_BLOCK):
            await chain.ainvoke({"reply": ""})
        say({"microseconds": (perf_counter() - started) / CHAINS_A_BLOCK * 1e6})


def say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(answer_for_blocks())
