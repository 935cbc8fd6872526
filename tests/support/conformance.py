"""What the conformance suites share: what they ask for, and the real SDKs as clients of a house."""

from __future__ import annotations

import base64
import re
from typing import Any, Final

import openai
from pydantic import BaseModel

from podium.core.request import Request, ToolResult
from podium.core.workflow import Step
from podium.store.keys import Allowance, Rules
from support.loopback import PATIENCE, Runtime

ULTRA: Final = "podium-ultra"
WHY: Final[Any] = [{"role": "user", "content": "Why?"}]
PIXEL: Final = base64.b64encode(b"\x89PNG....").decode()
PICTURE_URL: Final = "https://93.184.215.14/c.png"
"""An address, so that no name is resolved."""
TWO_STEPS: Final = (Step("plain", "Think."), Step("solver", "Answer.", (0,)))


class Sum(BaseModel):
    """A sum and how it was found."""

    steps: list[str]
    total: int


def openai_client(runtime: Runtime, token: str) -> openai.OpenAI:
    """The openai SDK, with that key."""
    return openai.OpenAI(
        api_key=token, base_url=f"{runtime.address}/v1", max_retries=0, timeout=PATIENCE
    )


def async_openai_client(runtime: Runtime) -> openai.AsyncOpenAI:
    """The same for asyncio, with the house's own key."""
    return openai.AsyncOpenAI(
        api_key=runtime.token, base_url=f"{runtime.address}/v1", max_retries=0, timeout=PATIENCE
    )


def not_allowed(sdk: Any) -> list[tuple[Rules, type[Exception], int]]:
    """Rules that forbid a question (the last one, the second), and the SDK's error for each."""
    return [
        (Rules(scopes=frozenset({"gateway"})), sdk.PermissionDeniedError, 403),
        (Rules(in_total=Allowance(usd=0.0)), sdk.APIStatusError, 402),
        (Rules(requests_per_minute=1), sdk.RateLimitError, 429),
    ]


def results_of(request: Request) -> list[str]:
    """The tool results in a worker's request."""
    parts = [part for message in request.messages for part in message.parts]
    return [part.text for part in parts if isinstance(part, ToolResult)]


def run_of(id_: str) -> str:
    """The run behind an answer, by the id that the answer has in a dialect."""
    stem = re.sub(r"^(chatcmpl-|msg_|resp_)", "", id_)
    return f"run_{stem.partition('_')[0]}"
