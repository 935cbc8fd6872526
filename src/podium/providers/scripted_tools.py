"""A script that calls tools: the scripted worker of a pool file whose options hold `tool_reply`
calls the tool that it is offered, and answers with what the tool said.

    options = { reply = "…", tool_reply = "It says: {result}", tool_arguments = { city = "Oslo" } }

So tools can be tried with no model at all. What the arguments do not name is made up to fit the
tool's schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from podium.request import Reply, Request, Tool, ToolCall, ToolResult

RESULT: Final = "{result}"
"""Where the words of the tool go in a reply."""

_SAMPLES: Final[Mapping[str, Any]] = {
    "string": "text",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
}


@dataclass(frozen=True, slots=True)
class ToolScript:
    """Says `reply`; offered tools, it calls one, and says `tool_reply` of the result."""

    reply: str
    tool_reply: str
    arguments: Mapping[str, Any]

    def __call__(self, request: Request) -> Reply | str:
        """The next line, by what the conversation has come to."""
        results = [part for part in request.messages[-1].parts if isinstance(part, ToolResult)]
        if results:
            said = "; ".join(result.text for result in results)
            return self.tool_reply.replace(RESULT, said)
        if not request.tools or request.tool_choice == "none":
            return self.reply
        tool = next((t for t in request.tools if t.name == request.tool_choice), request.tools[0])
        call = ToolCall(
            id=f"call_{len(request.messages)}",
            name=tool.name,
            arguments=json.dumps(self._fitting(tool), ensure_ascii=False),
        )
        return Reply("", finish="tool", tool_calls=(call,))

    def _fitting(self, tool: Tool) -> dict[str, Any]:
        """Arguments for what the tool asks for."""
        wanted: Any = tool.parameters.get("properties")
        if not isinstance(wanted, Mapping):
            return {}
        return {
            name: self.arguments.get(name, _sample(schema))
            for name, schema in wanted.items()
            if isinstance(schema, Mapping)
        }


def _sample(schema: Mapping[str, Any]) -> Any:
    """A value that fits the schema, as far as its type and its list of values say."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    return _SAMPLES.get(str(kind), "text")
