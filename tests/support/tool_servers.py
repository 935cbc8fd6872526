"""Small servers of tools, each of which does something wrong, in nothing but standard Python."""

from __future__ import annotations

import sys
from pathlib import Path

from podium.config import McpSettings

_USUAL = """
import json, os, sys, time

def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

WELCOME = {"capabilities": {}, "serverInfo": {"name": "odd", "version": "1"}}

def initialize(number, params):
    say(id=number, result={**WELCOME, "protocolVersion": params["protocolVersion"]})

def tool(name, **more):
    return {"name": name, "description": name, "inputSchema": {"type": "object"}, **more}

def listed(number, params):
    say(id=number, result={"tools": [tool("echo")]})

def call(number, params):
    text = json.dumps(params["arguments"])
    say(id=number, result={"content": [{"type": "text", "text": text}]})

def other(message):
    pass

def end():
    pass
"""

_SERVE = """
for line in sys.stdin:
    message = json.loads(line)
    method, number, params = message.get("method"), message.get("id"), message.get("params", {})
    known = {"initialize": initialize, "tools/list": listed, "tools/call": call}
    if method in known:
        known[method](number, params)
    else:
        other(message)
end()
"""


def odd_server(
    directory: Path, oddity: str = "", *, name: str = "odd", **more: object
) -> McpSettings:
    """A server that is as usual but for the functions that `oddity` defines anew."""
    file = directory / f"{name}.py"
    file.write_text(_USUAL + oddity + _SERVE, "utf-8")
    args = ("-S", "-E", str(file))
    return McpSettings(name=name, command=sys.executable, args=args, **more)  # type: ignore[arg-type]
