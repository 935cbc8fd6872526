"""LangGraph's side of `python -m benchmarks engine`: five async nodes in a row that do nothing.

It is run by a Python that has LangGraph and not Podium. The graph is compiled once. At first a
line of JSON says which version this is; then each line on stdin asks for a block of chains, and
gets a line of JSON with the microseconds that one chain took.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from importlib.metadata import version
from time import perf_counter
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]

LENGTH = 5
CHAINS_A_BLOCK = 2


class State(TypedDict):
    """What the nodes hand on."""

    reply: str


DONE: State = {"reply": "done"}


async def idle(state: State) -> State:
    """Do nothing."""
    return DONE


def compiled_chain() -> Any:
    """The five nodes as a graph that can be invoked."""
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
    """Carry out a block for each line that comes; its first chain is not timed."""
    chain = compiled_chain()
    say({"version": version("langgraph")})
    gc.collect()
    gc.freeze()
    while sys.stdin.readline():
        await chain.ainvoke({"reply": ""})
        started = perf_counter()
        for _ in range(CHAINS_A_BLOCK):
            await chain.ainvoke({"reply": ""})
        say({"microseconds": (perf_counter() - started) / CHAINS_A_BLOCK * 1e6})


def say(message: dict[str, object]) -> None:
    """Write one line and send it off."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(answer_for_blocks())
