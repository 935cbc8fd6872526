"""Plain HTTP, as curl and people's own code speak it: bodies that SDKs do not write."""

from __future__ import annotations

import time

import httpx
from scenario import CAPITAL, CITY_SCHEMA, WEATHER, Endpoint, main, scenario, weather_of

HTTP = httpx.Client(timeout=60)
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY_SCHEMA}}
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


def post(endpoint: Endpoint, dialect: str, **body):
    if dialect == "messages":
        body.setdefault("max_tokens", 500)
    headers = {"authorization": f"Bearer {endpoint.key}", "anthropic-version": "2023-06-01"}
    return HTTP.post(
        endpoint.url + PATHS[dialect], json={"model": endpoint.model, **body}, headers=headers
    )


def said(response) -> list:
    body = response.json()
    if "choices" in body:
        return [response.status_code, body["choices"][0]["message"]["content"]]
    if "content" in body:
        return [response.status_code, body["content"][0].get("text")]
    return [response.status_code, body.get("error", {}).get("message")]


def chat(name: str, *messages, **more) -> None:
    @scenario(f"chat/{name}")
    def run(endpoint: Endpoint):
        return said(post(endpoint, "chat", messages=list(messages), **more))


user = {"role": "user", "content": CAPITAL}
call = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}
earlier = {"role": "user", "content": "Who are you?"}
reply = {"role": "assistant", "content": "I am the model."}
result = {"role": "tool", "tool_call_id": "call_1", "content": weather_of("Paris")}

chat("key-reasoning-details", earlier, {**reply, "reasoning_details": [{"type": "x"}]}, user)
chat("key-reasoning-content", earlier, {**reply, "reasoning_content": "Hm."}, user)
chat("key-provider-fields", earlier, {**reply, "provider_specific_fields": {"a": 1}}, user)
chat("key-id", {**earlier, "id": "m1"}, {**reply, "id": "m2"}, {**user, "id": "m3"})
chat("key-created-at", {**user, "createdAt": "2026-01-01", "parts": [], "metadata": {}})
chat(
    "key-cache-control",
    {
        "role": "user",
        "content": [{"type": "text", "text": CAPITAL, "cache_control": {"type": "ephemeral"}}],
    },
)
chat(
    "image-url-text",
    {
        "role": "user",
        "content": [
            {"type": "text", "text": CAPITAL},
            {"type": "image_url", "image_url": PICTURE},
        ],
    },
)
chat(
    "content-null",
    {"role": "user", "content": WEATHER},
    {"role": "assistant", "content": None, "tool_calls": [call]},
    result,
    tools=[TOOL],
)
chat("assistant-content-null", earlier, {"role": "assistant", "content": None}, user)
chat("functions-empty", user, functions=[], tools=[])
chat("tools-null", user, tools=None, stop=None, response_format=None, user=None)
chat("unknown-top-level", user, something_new=True)
chat("developer-role", {"role": "developer", "content": "Your name is Berta."}, user)
chat("system-later", earlier, reply, {"role": "system", "content": "Your name is Berta."}, user)
chat("name-of-user", {**user, "name": "ada"})


def texts(response) -> list:
    if not response.is_success:
        raise RuntimeError(response.text)
    output = response.json()["output"]
    return [part["text"] for item in output for part in item.get("content", [])]


@scenario("responses/truncation-disabled")
def truncation(endpoint: Endpoint):
    return texts(post(endpoint, "responses", input=CAPITAL, truncation="disabled", user=None))


@scenario("responses/key-unknown")
def responses_unknown(endpoint: Endpoint):
    item = {"role": "user", "content": [{"type": "input_text", "text": CAPITAL, "x": 1}], "y": 2}
    return texts(post(endpoint, "responses", input=[item], something_new=1))


@scenario("messages/key-unknown")
def messages_unknown(endpoint: Endpoint):
    block = {"type": "text", "text": CAPITAL, "x": 1, "citations": None}
    message = {"role": "user", "content": [block], "id": "m1"}
    return said(post(endpoint, "messages", messages=[message], something_new=1))


EXPECTED = {400: 400, 401: 500, 403: 500, 404: 404, 408: 408, 409: 409, 413: 413, 422: 422}
EXPECTED |= {429: 429, 500: 502, 503: 502}


def fails(dialect: str, status: int) -> None:
    @scenario(f"{dialect}/error-{status}")
    def run(endpoint: Endpoint):
        question = f"Fail with {status}"
        if dialect == "responses":
            response = post(endpoint, dialect, input=question)
        else:
            response = post(endpoint, dialect, messages=[{"role": "user", "content": question}])
        found = EXPECTED[status] if endpoint.is_control else response.status_code
        has_wait = bool(response.headers.get("retry-after"))
        is_final = response.headers.get("x-should-retry") == "false"
        if endpoint.is_control:
            is_final = status in (401, 403)
        return {
            "status": found,
            "has_retry_after": has_wait if status == 429 else None,
            "should_not_retry": is_final if status in (401, 403) else None,
            "has_error": "error" in response.json(),
        }


for status in EXPECTED:
    fails("chat", status)
fails("responses", 400)
fails("responses", 429)
fails("messages", 400)
fails("messages", 429)


@scenario("chat/http-head-models")
def head(endpoint: Endpoint):
    return 200 if endpoint.is_control else HTTP.head(endpoint.openai + "/models").status_code


@scenario("chat/http-head-root")
def head_root(endpoint: Endpoint):
    return 200 if endpoint.is_control else HTTP.head(endpoint.url + "/").status_code


@scenario("chat/http-health")
def health(endpoint: Endpoint):
    return 200 if endpoint.is_control else HTTP.get(endpoint.url + "/health").status_code


@scenario("chat/http-models")
def models(endpoint: Endpoint):
    """No model is listed twice: pinned names answer, and are not listed."""
    names = [entry["id"] for entry in HTTP.get(endpoint.openai + "/models").json()["data"]]
    return [name for name in names if "@" in name]


def unsupported(path: str, body: dict) -> None:
    @scenario(f"chat/http-no-{path.rpartition('/')[2]}")
    def run(endpoint: Endpoint):
        if endpoint.is_control:
            return [True, True]
        response = HTTP.post(endpoint.url + path, json={"model": endpoint.model, **body})
        message = response.json().get("error", {}).get("message", "")
        return [response.status_code in (400, 404, 501), "not supported" in message]


unsupported("/v1/embeddings", {"input": "a"})
unsupported("/v1/completions", {"prompt": "a"})
unsupported("/v1/moderations", {"input": "a"})


@scenario("chat/http-cors-off")
def cors(endpoint: Endpoint):
    """No origin is allowed unless the configuration names it."""
    response = HTTP.options(
        endpoint.openai + "/chat/completions",
        headers={"origin": "http://localhost:3000", "access-control-request-method": "POST"},
    )
    return response.headers.get("access-control-allow-origin")


@scenario("chat/http-idempotency-key")
def idempotency(endpoint: Endpoint):
    """The same key gives the same response; without one, each request is answered anew."""
    if endpoint.is_control:
        return [True, True]

    def ask(headers: dict) -> str:
        body = {"model": endpoint.model, "messages": [user]}
        url = endpoint.openai + "/chat/completions"
        return HTTP.post(url, json=body, headers=headers).json()["id"]

    key = {"idempotency-key": f"one for {endpoint.model}"}
    return [ask(key) == ask(key), ask({}) != ask({})]


@scenario("responses/http-fetch")
def fetch(endpoint: Endpoint):
    """Every response of a run can be fetched as it was."""
    if endpoint.is_control:
        return [True, True, True]
    tool = {"type": "function", "name": "get_weather", "parameters": CITY_SCHEMA}
    question = {"role": "user", "content": WEATHER}
    first = post(endpoint, "responses", input=[question], tools=[tool]).json()
    results = [
        {
            "type": "function_call_output",
            "call_id": item["call_id"],
            "output": weather_of("Paris"),
        }
        for item in first["output"]
        if item["type"] == "function_call"
    ]
    second = post(
        endpoint, "responses", input=results, previous_response_id=first["id"], tools=[tool]
    ).json()
    is_chained = second.get("previous_response_id") == first["id"] != second["id"]
    again = (fetched(endpoint, entry["id"]).json() == entry for entry in (first, second))
    return [is_chained, *again]


def fetched(endpoint: Endpoint, path: str):
    """Return what is stored under a path."""
    return HTTP.get(f"{endpoint.openai}/responses/{path}")


@scenario("responses/http-input-items")
def input_items(endpoint: Endpoint):
    """The items that a response answers are listed, without its instructions."""
    if endpoint.is_control:
        return [["message", [{"type": "input_text", "text": CAPITAL}]]]
    asked = post(endpoint, "responses", input=CAPITAL, instructions="Be brief.").json()
    listed = fetched(endpoint, f"{asked['id']}/input_items").json()["data"]
    return [[item["type"], item["content"]] for item in listed]


@scenario("responses/http-delete")
def delete(endpoint: Endpoint):
    """A deleted response is gone."""
    if endpoint.is_control:
        return [200, True, 404]
    id_ = post(endpoint, "responses", input=CAPITAL).json()["id"]
    gone = HTTP.delete(f"{endpoint.openai}/responses/{id_}")
    return [gone.status_code, gone.json()["deleted"], fetched(endpoint, id_).status_code]


@scenario("responses/http-background")
def background(endpoint: Endpoint):
    """A response in the background has an id at once, and is fetched when it is done."""
    if endpoint.is_control:
        return ["in_progress", "completed", "Paris is the capital of France."]
    begun = post(endpoint, "responses", input=CAPITAL, background=True).json()
    for _ in range(1000):
        found = fetched(endpoint, begun["id"]).json()
        if found["status"] != "in_progress":
            break
        time.sleep(0.02)
    return [begun["status"], found["status"], found["output"][0]["content"][0]["text"]]


@scenario("responses/http-item-unknown")
def item_unknown(endpoint: Endpoint):
    """An item that does not exist gives OpenAI's own error."""
    if endpoint.is_control:
        return [404, "Item with id 'msg_unknown' not found.", "input"]
    items = [{"type": "item_reference", "id": "msg_unknown"}, {"role": "user", "content": CAPITAL}]
    response = post(endpoint, "responses", input=items)
    error = response.json()["error"]
    return [response.status_code, error["message"].partition(" Items")[0], error["param"]]


@scenario("responses/http-previous-unknown")
def previous_unknown(endpoint: Endpoint):
    """A record that does not exist gives OpenAI's own error."""
    if endpoint.is_control:
        return [400, "previous_response_not_found", "previous_response_id"]
    response = post(endpoint, "responses", input=CAPITAL, previous_response_id="resp_unknown")
    error = response.json()["error"]
    return [response.status_code, error["code"], error["param"]]


main()
