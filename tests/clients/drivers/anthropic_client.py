"""The Anthropic SDK for Python."""

from __future__ import annotations

from functools import cache

import anthropic
from scenario import (
    CAPITAL,
    CITIES,
    CITY_SCHEMA,
    PERSON_SCHEMA,
    WEATHER,
    Endpoint,
    Transcript,
    main,
    scenario,
    weather_of,
)

TOOL = {"name": "get_weather", "description": "The weather", "input_schema": CITY_SCHEMA}
OTHER_TOOL = {"name": "save_person", "description": "Save", "input_schema": PERSON_SCHEMA}


@cache
def client_of(endpoint: Endpoint) -> anthropic.Anthropic:
    return anthropic.Anthropic(
        base_url=endpoint.url, api_key=endpoint.key, max_retries=0, timeout=20
    )


def shown(message) -> list:
    return [
        [block.type, block.text if block.type == "text" else [block.name, block.input]]
        for block in message.content
        if block.type in ("text", "tool_use")
    ]


def ask(endpoint: Endpoint, messages, **more):
    return client_of(endpoint).messages.create(
        model=endpoint.model, max_tokens=500, messages=messages, **more
    )


@scenario("messages/answer")
def answer(endpoint: Endpoint):
    found = ask(endpoint, [{"role": "user", "content": CAPITAL}], system="Your name is Berta.")
    return [shown(found), found.stop_reason]


@scenario("messages/stream")
def stream(endpoint: Endpoint):
    with client_of(endpoint).messages.stream(
        model=endpoint.model, max_tokens=500, messages=[{"role": "user", "content": CAPITAL}]
    ) as streamed:
        text = "".join(streamed.text_stream)
        found = streamed.get_final_message()
    return [text, shown(found), found.stop_reason]


@scenario("messages/stream-tool")
def stream_tool(endpoint: Endpoint):
    pieces = 0
    with client_of(endpoint).messages.stream(
        model=endpoint.model,
        max_tokens=500,
        messages=[{"role": "user", "content": WEATHER}],
        tools=[TOOL],
    ) as streamed:
        for event in streamed:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                pieces += bool(event.delta.partial_json)
        found = streamed.get_final_message()
    return [shown(found), pieces > 1]


def turns(endpoint: Endpoint, cities, **more) -> Transcript:
    messages, transcript, ids = [], [], []
    for city in cities:
        messages.append({"role": "user", "content": f"What is the weather in {city}?"})
        for _ in range(4):
            found = ask(endpoint, messages, system="Your name is Berta.", tools=[TOOL], **more)
            ids.append(found.id)
            transcript.append([shown(found), found.stop_reason])
            blocks = [block.model_dump(exclude_none=True) for block in found.content]
            messages.append({"role": "assistant", "content": blocks})
            calls = [block for block in found.content if block.type == "tool_use"]
            if not calls:
                break
            ids += [call.id for call in calls]
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": weather_of(city)}
                for call in calls
            ]
            messages.append({"role": "user", "content": results})
    return Transcript(transcript, tuple(ids))


@scenario("messages/tools")
def tools(endpoint: Endpoint):
    return turns(endpoint, CITIES[:1])


@scenario("messages/five-turns")
def five_turns(endpoint: Endpoint):
    return turns(endpoint, CITIES)


@scenario("messages/one-tool-at-a-time")
def one_at_a_time(endpoint: Endpoint):
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    return turns(endpoint, CITIES[:1], tool_choice=choice)


@scenario("messages/forced-tool")
def forced(endpoint: Endpoint):
    found = ask(
        endpoint,
        [{"role": "user", "content": WEATHER}],
        tools=[TOOL, OTHER_TOOL],
        tool_choice={"type": "tool", "name": "get_weather"},
    )
    return [shown(found), found.stop_reason]


@scenario("messages/changed-system")
def changed_system(endpoint: Endpoint):
    question = {"role": "user", "content": WEATHER}
    first = ask(endpoint, [question], system="Your name is Berta.", tools=[TOOL])
    blocks = [block.model_dump(exclude_none=True) for block in first.content]
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": weather_of("Paris")}
        for block in first.content
        if block.type == "tool_use"
    ]
    second = ask(
        endpoint,
        [
            question,
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": results},
        ],
        system="Your name is Carla.",
        tools=[TOOL],
    )
    return [shown(first), shown(second)]


@scenario("messages/structured")
def structured(endpoint: Endpoint):
    found = ask(
        endpoint,
        [{"role": "user", "content": "Describe Ada."}],
        output_config={"format": {"type": "json_schema", "schema": PERSON_SCHEMA}},
    )
    return shown(found)


@scenario("messages/document")
def document(endpoint: Endpoint):
    source = {"type": "text", "media_type": "text/plain", "data": "The name of the cat is Tom."}
    found = ask(
        endpoint,
        [
            {
                "role": "user",
                "content": [
                    {"type": "document", "source": source, "title": "Cats"},
                    {"type": "text", "text": CAPITAL},
                ],
            }
        ],
    )
    return shown(found)


@scenario("messages/prefill")
def prefill(endpoint: Endpoint):
    found = ask(
        endpoint,
        [{"role": "user", "content": CAPITAL}, {"role": "assistant", "content": "Paris is"}],
    )
    return shown(found)


@scenario("messages/cache-control")
def cache_control(endpoint: Endpoint):
    mark = {"type": "ephemeral"}
    found = ask(
        endpoint,
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": CAPITAL, "cache_control": mark}],
            }
        ],
        system=[{"type": "text", "text": "Your name is Berta.", "cache_control": mark}],
        tools=[{**TOOL, "cache_control": mark}],
        metadata={"user_id": "someone"},
    )
    return shown(found)


@scenario("messages/request-id")
def request_id(endpoint: Endpoint):
    found = ask(endpoint, [{"role": "user", "content": CAPITAL}])
    return bool(found._request_id)


@scenario("messages/count-tokens")
def count_tokens(endpoint: Endpoint):
    found = client_of(endpoint).messages.count_tokens(
        model=endpoint.model, messages=[{"role": "user", "content": CAPITAL}]
    )
    return found.input_tokens > 0


main()
