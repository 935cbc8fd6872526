"""A server of tools as others write them: the official package, run as a program or in a test."""

from __future__ import annotations

import os

import anyio
from mcp.server.mcpserver import MCPServer

peer = MCPServer("peer")


@peer.tool()
def add(a: int, b: int) -> int:
    """Adds two whole numbers."""
    return a + b


@peer.tool(name="where.am/i")
def where(name: str) -> str:
    """Says what a variable of the environment holds."""
    return os.environ.get(name, "nothing")


@peer.tool()
def fail() -> str:
    """Fails."""
    raise ValueError("the disk is full")


@peer.tool()
async def hang() -> str:
    """Never ends."""
    await anyio.sleep_forever()
    return "never"


if __name__ == "__main__":
    peer.run("stdio")
