"""The measurement behind `benchmarks engine`: every contestant in turns, then the join."""

from __future__ import annotations

from contextlib import AsyncExitStack

from benchmarks import chain
from benchmarks.contest import Contestant, take_turns
from benchmarks.environment import LANGGRAPH, InstallCommands, Say, install_commands, prepare
from benchmarks.figures import EngineFigures
from benchmarks.join import join_makespan
from benchmarks.peer import peer_process


async def measure_engine(
    repeat: int, *, peers: bool, say: Say, install: InstallCommands = install_commands
) -> EngineFigures:
    """Measure with `repeat` blocks of each contestant; without `peers`, Podium alone."""
    contestants: list[Contestant] = [
        chain.bare_taskgroup(),
        chain.engine(watched=False),
        chain.engine(watched=True),
        chain.runner(),
    ]
    langgraph_version = None
    async with AsyncExitStack() as stack:
        if peers:
            python = await prepare(LANGGRAPH, say, install)
            peer = await stack.enter_async_context(
                peer_process("langgraph", python, "langgraph_chain.py")
            )
            langgraph_version = (await peer.next_line())["version"]
            contestants.append(peer)
        say(f"measuring {repeat} blocks of each, in turns …")
        timings = await take_turns(contestants, repeat)
    return EngineFigures(
        timings=timings,
        join_seconds=await join_makespan(),
        langgraph_version=langgraph_version,
        repeat=repeat,
    )
