"""Vertex AI, checked against Google's own types: Gemini's and Anthropic's wire at its addresses."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import google.auth
import google.auth.credentials
import pytest
from google.genai import types

from podium.core.errors import AuthenticationFailed, ConfigError
from podium.core.pool import WorkerProfile
from podium.core.request import Reply, Request, Thinking, ToolCall, Usage, user
from podium.workers import KNOWN_ENDPOINTS, Endpoint, Http, connect
from podium.workers.credentials import google_token
from podium.workers.http import HttpCall
from podium.workers.vertex import VertexClaudeWorker, vertex_host

if TYPE_CHECKING:
    from workers.conftest import Hire, Streamed, Vendor

ASKED = Request((user("hello"),))
CALL = HttpCall("ada", "https://host", {})
PATH = "/v1/projects/p/locations/global"
ANSWER = {
    "candidates": [
        {
            "content": {"role": "model", "parts": [{"text": "Hi.", "thoughtSignature": "c2ln"}]},
            "finishReason": "STOP",
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 9,
        "candidatesTokenCount": 2,
        "totalTokenCount": 11,
        "trafficType": "ON_DEMAND",
    },
    "modelVersion": "gemini-3.8-flash",
}


def fits(body: dict[str, Any]) -> None:
    """Check a body by the types of google-genai, which know no other field."""
    system = [body["systemInstruction"]] if "systemInstruction" in body else []
    for content in (*system, *body["contents"]):
        types.Content.model_validate(content)
    for tool in body.get("tools", ()):
        types.Tool.model_validate(tool)
    if "toolConfig" in body:
        types.ToolConfig.model_validate(body["toolConfig"])
    types.GenerationConfig.model_validate(body.get("generationConfig", {}))
    with pytest.raises(ValueError, match="Extra inputs"):
        types.GenerationConfig.model_validate({"unknown": 1})


async def test_gemini_is_called_at_the_projects_address(
    vendor: Vendor, hire: Hire, plain: Request, tooled: Request
) -> None:
    types.GenerateContentResponse.model_validate(ANSWER)
    vendor.says(ANSWER)
    worker = hire("vertex", path=PATH, model="gemini-3.8-flash")
    reply = await worker.reply(replace(plain, max_tokens=9, temperature=0.1, effort="low"))
    thinking = (Thinking("", '{"": "c2ln"}', "gemini-3.8-flash"),)
    usage = Usage(9, 2, 0, 0, 0)
    assert reply == Reply("Hi.", usage, thinking=thinking, model="gemini-3.8-flash")
    path = f"{PATH}/publishers/google/models/gemini-3.8-flash:generateContent"
    assert vendor.received[0].path == path
    fits(vendor.body)
    await worker.reply(replace(tooled, schema={"type": "object"}, tool_choice="weather"))
    fits(vendor.body)


async def test_gemini_streams(vendor: Vendor, hire: Hire, streamed: Streamed) -> None:
    vendor.streams(ANSWER, done=False)
    worker = hire("vertex", path=PATH, model="gemini-3.8-flash")
    assert (await streamed(worker, ASKED))[1].text == "Hi."
    assert vendor.received[0].path.endswith("gemini-3.8-flash:streamGenerateContent?alt=sse")


async def test_claude_is_called_with_its_model_in_the_address(
    vendor: Vendor, hire: Hire, streamed: Streamed, tooled: Request
) -> None:
    usage = {"input_tokens": 3, "output_tokens": 2}
    vendor.streams(
        {"type": "message_start", "message": {"model": "claude-x", "usage": usage}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t", "name": "clock", "input": {}},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
        done=False,
    )
    worker = hire("vertex", path=PATH, model="claude-haiku-5-5@20261001")
    assert isinstance(worker, VertexClaudeWorker)
    assert (await streamed(worker, tooled))[1].tool_calls == (ToolCall("t", "clock", "{}"),)
    received = vendor.received[0]
    assert received.path == (
        f"{PATH}/publishers/anthropic/models/claude-haiku-5-5@20261001:streamRawPredict"
    )
    assert received.body["anthropic_version"] == "vertex-2023-10-16"
    assert "model" not in received.body
    assert "anthropic-version" not in received.headers
    assert received.headers["authorization"] == "Bearer sk-a-secret-key"


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("", "aiplatform.googleapis.com"),
        ("global", "aiplatform.googleapis.com"),
        ("europe-west4", "europe-west4-aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
    ],
)
def test_the_address_comes_from_googles_variables(location: str, host: str) -> None:
    variables = {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": location}
    address = KNOWN_ENDPOINTS["vertex"].address_in(variables)
    where = location or "global"
    assert vertex_host(address) == f"https://{host}/v1/projects/p/locations/{where}"


def test_another_host_keeps_project_and_location() -> None:
    vertex = KNOWN_ENDPOINTS["vertex"]
    variables = {"GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_VERTEX_BASE_URL": "http://proxy/"}
    assert vertex.address_in(variables) == f"http://proxy{PATH}"
    assert vertex.address_in({}) == ""
    with pytest.raises(
        ConfigError, match="set GOOGLE_CLOUD_PROJECT in the environment, or base_url"
    ):
        connect(WorkerProfile(name="ada", provider="vertex", model="m"), Endpoint(), Http())


class Login(google.auth.credentials.Credentials):
    """Credentials that are renewed without a network."""

    def refresh(self, request: Any) -> None:
        self.token = "from-adc"
        self.expiry = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
        self.expiry += datetime.timedelta(hours=1)


async def test_the_machines_login_provides_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    logins: list[Any] = []

    def default(scopes: list[str]) -> tuple[Login, str]:
        logins.append(scopes)
        return Login(), "p"  # type: ignore[no-untyped-call]

    monkeypatch.setattr(google.auth, "default", default)
    token = google_token("https://aiplatform.googleapis.com")
    for _ in range(2):
        assert await token.headers(CALL) == {"Authorization": "Bearer from-adc"}
    assert logins == [["https://www.googleapis.com/auth/cloud-platform"]]


async def test_the_real_library_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(AuthenticationFailed, match="no credentials for Google Cloud: .*none.json"):
        await google_token("https://aiplatform.googleapis.com").headers(CALL)
