"""What clients send to the server, and what is odd in any place of it: what the fuzzers of bodies
start from."""

from __future__ import annotations

from typing import Any, Final

IMAGE: Final = "data:image/png;base64,iVBORw0KGgo="
FORM: Final = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

BODIES: Final[dict[str, list[dict[str, Any]]]] = {
    "/v1/chat/completions": [
        {
            "model": "podium-ultra",
            "messages": [
                {"role": "system", "content": "Be kind."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": IMAGE, "detail": "low"}},
                    ],
                },
            ],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": FORM, "strict": True},
            },
            "stream": True,
            "stream_options": {"include_usage": True},
            "stop": ["END"],
            "temperature": 0.5,
            "max_completion_tokens": 100,
            "reasoning_effort": "low",
            "podium": {"budget": {"usd": 0.5, "calls": 9}, "exclude": ["plain"], "rounds": 2},
        },
        {
            "model": "solver",
            "messages": [
                {"role": "user", "content": "What time is it?"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": "call_0123456789abcdef_1",
                            "type": "function",
                            "function": {"name": "clock", "arguments": "{}"},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_0123456789abcdef_1", "content": "12:00"},
            ],
            "tools": [
                {"type": "function", "function": {"name": "clock", "parameters": FORM}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "clock"}},
        },
    ],
    "/v1/responses": [
        {
            "model": "podium-ultra",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]},
                {
                    "type": "message",
                    "id": "msg_1",
                    "role": "assistant",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "So.", "annotations": []}],
                },
                {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "none"},
                {"role": "user", "content": [{"type": "input_image", "image_url": IMAGE}]},
            ],
            "instructions": "Be kind.",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": FORM}},
            "reasoning": {"effort": "high", "summary": "auto"},
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "podium": {
                "workflow": {"steps": [{"worker": "seer", "subtask": "Look.", "access": []}]}
            },
        },
        {
            "model": "podium-mini",
            "previous_response_id": "resp_0123456789abcdef",
            "input": [
                {"type": "function_call", "call_id": "call_1", "name": "clock", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "12:00"},
            ],
            "tools": [{"type": "function", "name": "clock", "parameters": FORM, "strict": True}],
            "tool_choice": "required",
            "store": False,
            "metadata": {"who": "me"},
        },
        {
            "model": "podium-ultra",
            "input": [
                {"role": "user", "content": "What does it say?"},
                {
                    "type": "additional_tools",
                    "id": "at_1",
                    "role": "developer",
                    "tools": [
                        {
                            "type": "namespace",
                            "name": "functions",
                            "description": "those of the client",
                            "tools": [
                                {"type": "function", "name": "clock", "parameters": FORM},
                                {"type": "custom", "name": "read"},
                            ],
                        }
                    ],
                },
                {
                    "type": "custom_tool_call",
                    "call_id": "call_0123456789abcdef_1",
                    "namespace": "functions",
                    "name": "read",
                    "input": "page.pdf",
                },
                {
                    "type": "custom_tool_call_output",
                    "call_id": "call_0123456789abcdef_1",
                    "output": [
                        {"type": "input_file", "filename": "page.pdf", "file_data": "JVBE"},
                        {"type": "input_file", "file_data": "data:text/plain;base64,SGk="},
                    ],
                },
                {
                    "type": "agent_message",
                    "author": "/root/reader",
                    "recipient": "/root",
                    "content": [
                        {"type": "input_text", "text": "Message Type: FINAL_ANSWER"},
                        {"type": "encrypted_content", "encrypted_content": "It is a page."},
                    ],
                },
            ],
            "tools": [
                {
                    "type": "custom",
                    "name": "patch",
                    "description": "changes files",
                    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"},
                }
            ],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "custom", "name": "patch"}],
            },
            "store": False,
            "stream": True,
        },
    ],
    "/v1/messages": [
        {
            "model": "podium-ultra",
            "max_tokens": 2000,
            "system": [
                {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
            ],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "iVBORw0KGgo=",
                            },
                        },
                    ],
                }
            ],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"effort": "high", "format": {"type": "json_schema", "schema": FORM}},
            "stream": True,
            "stop_sequences": ["END"],
        },
        {
            "model": "solver",
            "max_tokens": 100,
            "messages": [
                {"role": "user", "content": "What time is it?"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "none"},
                        {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "12:00"},
                        {
                            "type": "document",
                            "title": "clocks",
                            "source": {
                                "type": "base64",
                                "media_type": "application/pdf",
                                "data": "JVBE",
                            },
                        },
                        {
                            "type": "document",
                            "context": "an hour later",
                            "source": {
                                "type": "content",
                                "content": [{"type": "text", "text": "13:00"}],
                            },
                        },
                    ],
                },
            ],
            "tools": [{"name": "clock", "description": "the time", "input_schema": FORM}],
            "tool_choice": {"type": "any"},
            "metadata": {"user_id": "me"},
        },
    ],
    "/v1/plan": [
        {"question": "Compare tea and coffee.", "model": "podium", "podium": {"max_steps": 2}}
    ],
    "/v1/messages/count_tokens": [
        {"model": "podium", "messages": [{"role": "user", "content": "Why?"}], "system": "Be kind."}
    ],
}
"""What clients send, by address."""

ODD: Final[list[Any]] = [
    *(None, True, False, 0, -1, 5.0, 0.1, 2**63, -(2**200), 1e308, float("nan"), float("inf")),
    *("", " ", "podium", "\x00", "\ud800", "é\u202e", "x" * 5000, "{}", "https://[", "data:,"),
    *("call_0123456789abcdef_1", "resp_0123456789abcdef", "run_", "../../etc/passwd", "%s%n"),
    *([], {}, [[]], [None], [{}], {"": None}, {"type": "object"}, {"$ref": "#"}, {"type": []}),
    {"type": "string", "pattern": "(a+)+$"},
]
"""What may stand anywhere in a body and means nothing there."""

HEADERS: Final = {
    "X-Podium-Budget": ("usd", "usd=", "usd=x", "calls=1e99", "=1", ",", "calls=-1", "\xe9=1"),
    "X-Podium-Exclude": ("", ",", "nobody", "solver-works,seer-works,plain-works"),
    "X-Podium-Max-Steps": ("0", "-1", "1.5", "nan", "9" * 400, "inf"),
    "X-Podium-Rounds": ("0", "1e400", "x"),
    "X-Podium-Workflow": ("", "{", "[]", '{"steps": []}', '{"steps": [{"worker": "nobody"}]}'),
    "X-Podium-Trace": ("", "2", "true"),
    "Authorization": ("Bearer", "Basic x", "Bearer pk__", "Bearer " + "x" * 5000, "\xff"),
    "anthropic-version": ("", "1999"),
}
"""Headers that the server reads, and values for them that no client should send."""
