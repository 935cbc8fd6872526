"""The OpenAI SDK for Python."""

from __future__ import annotations

from functools import cache

import openai
from pydantic import BaseModel
from scenario import (
    CAPITAL,
    CITIES,
    CITY_SCHEMA,
    WEATHER,
    Endpoint,
    Transcript,
    main,
    scenario,
    weather_of,
)

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather", "parameters": CITY_SCHEMA},
}
FLAT_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather",
    "parameters": CITY_SCHEMA,
}
OTHER_TOOL = {
    "type": "function",
    "function": {
        "name": "save_person",
        "parameters": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"],
        },
    },
}


class Person(BaseModel):
    name: str
    age: int


@cache
def client_of(endpoint: Endpoint) -> openai.OpenAI:
    return openai.OpenAI(base_url=endpoint.openai, api_key=endpoint.key, max_retries=0, timeout=20)


def shown(message) -> dict:
    calls = [[c.function.name, c.function.arguments] for c in message.tool_calls or ()]
    return {"role": message.role, "text": message.content or "", "calls": calls}


@scenario("chat/answer")
def chat_answer(endpoint: Endpoint):
    found = client_of(endpoint).chat.completions.create(
        model=endpoint.model,
        messages=[
            {"role": "system", "content": "Your name is Berta."},
            {"role": "user", "content": CAPITAL},
        ],
    )
    choice = found.choices[0]
    return Transcript([shown(choice.message), choice.finish_reason, len(found.choices)])


@scenario("chat/stream")
def chat_stream(endpoint: Endpoint):
    with client_of(endpoint).chat.completions.stream(
        model=endpoint.model,
        messages=[{"role": "user", "content": CAPITAL}],
        stream_options={"include_usage": True},
    ) as stream:
        kinds = {event.type for event in stream}
        found = stream.get_final_completion()
    return [shown(found.choices[0].message), sorted(kinds), found.usage is not None]


@scenario("chat/stream-tool")
def chat_stream_tool(endpoint: Endpoint):
    pieces = []
    stream = client_of(endpoint).chat.completions.create(
        model=endpoint.model,
        messages=[{"role": "user", "content": WEATHER}],
        tools=[TOOL],
        stream=True,
    )
    for chunk in stream:
        for choice in chunk.choices:
            pieces += [
                call.function.arguments
                for call in choice.delta.tool_calls or ()
                if call.function and call.function.arguments
            ]
    return ["".join(pieces), len(pieces) > 1]


def chat_turns(endpoint: Endpoint, cities, **more) -> Transcript:
    client = client_of(endpoint)
    messages = [{"role": "system", "content": "Your name is Berta."}]
    transcript, ids = [], []
    for city in cities:
        messages.append({"role": "user", "content": f"What is the weather in {city}?"})
        for _ in range(4):
            found = client.chat.completions.create(
                model=endpoint.model, messages=messages, tools=[TOOL], **more
            )
            message = found.choices[0].message
            ids.append(found.id)
            transcript.append(shown(message))
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                ids.append(call.id)
                messages.append(
                    {"role": "tool", "tool_call_id": call.id, "content": weather_of(city)}
                )
    return Transcript(transcript, tuple(ids))


@scenario("chat/tools")
def chat_tools(endpoint: Endpoint):
    return chat_turns(endpoint, CITIES[:1])


@scenario("chat/one-tool-at-a-time")
def chat_one_at_a_time(endpoint: Endpoint):
    return chat_turns(endpoint, CITIES[:1], parallel_tool_calls=False)


@scenario("chat/five-turns")
def chat_five_turns(endpoint: Endpoint):
    return chat_turns(endpoint, CITIES)


@scenario("chat/structured")
def chat_structured(endpoint: Endpoint):
    found = client_of(endpoint).chat.completions.parse(
        model=endpoint.model,
        messages=[{"role": "user", "content": "Describe Ada."}],
        response_format=Person,
    )
    return found.choices[0].message.parsed.model_dump()


@scenario("chat/json-object")
def chat_json_object(endpoint: Endpoint):
    found = client_of(endpoint).chat.completions.create(
        model=endpoint.model,
        messages=[{"role": "user", "content": "Describe Ada. As JSON."}],
        response_format={"type": "json_object"},
    )
    return found.choices[0].message.content


@scenario("chat/forced-tool")
def chat_forced(endpoint: Endpoint):
    """One forced tool comes back once, however many steps a plan has."""
    found = client_of(endpoint).chat.completions.create(
        model=endpoint.model,
        messages=[{"role": "user", "content": WEATHER}],
        tools=[TOOL, OTHER_TOOL],
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
    )
    return shown(found.choices[0].message)


@scenario("chat/forced-other-tool")
def chat_forced_other(endpoint: Endpoint):
    """After get_weather the client forces save_person."""
    client = client_of(endpoint)
    messages = [{"role": "user", "content": WEATHER}]
    first = client.chat.completions.create(
        model=endpoint.model, messages=messages, tools=[TOOL, OTHER_TOOL]
    )
    message = first.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or ():
        messages.append({"role": "tool", "tool_call_id": call.id, "content": weather_of("Paris")})
    second = client.chat.completions.create(
        model=endpoint.model,
        messages=messages,
        tools=[TOOL, OTHER_TOOL],
        tool_choice={"type": "function", "function": {"name": "save_person"}},
    )
    return [shown(message), shown(second.choices[0].message)]


@scenario("chat/changed-system")
def chat_changed_system(endpoint: Endpoint):
    """The system prompt of the second request differs from the first one's."""
    return _edited(endpoint, system="Your name is Carla.")


@scenario("chat/pruned-results")
def chat_pruned(endpoint: Endpoint):
    """The client removes the first tool result when it sends the second."""
    client = client_of(endpoint)
    messages = [{"role": "user", "content": "What is the weather in Paris and Rome?"}]
    for city in ("Paris", "Rome", ""):
        found = client.chat.completions.create(
            model=endpoint.model, messages=messages, tools=[TOOL]
        )
        message = found.choices[0].message
        for entry in messages:
            if entry["role"] == "tool":
                entry["content"] = "(pruned)"
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            result = {"role": "tool", "tool_call_id": call.id, "content": weather_of(city)}
            messages.append(result)
    return [[m["role"], m.get("content") or ""] for m in messages]


def _edited(endpoint: Endpoint, system: str):
    client = client_of(endpoint)
    messages = [
        {"role": "system", "content": "Your name is Berta."},
        {"role": "user", "content": WEATHER},
    ]
    for city in CITIES[:2]:
        for _ in range(3):
            found = client.chat.completions.create(
                model=endpoint.model, messages=messages, tools=[TOOL]
            )
            message = found.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            messages[0] = {"role": "system", "content": system}
            for call in message.tool_calls:
                text = weather_of(city) + ". And so on." * 5
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        messages.append({"role": "user", "content": "What is the weather in Rome?"})
    return [[m["role"], m.get("content") or ""] for m in messages]


@scenario("chat/pass-through")
def chat_pass_through(endpoint: Endpoint):
    found = client_of(endpoint).chat.completions.create(
        model=endpoint.model,
        messages=[{"role": "user", "content": CAPITAL}],
        n=2,
        logprobs=True,
        top_logprobs=1,
        logit_bias={"50256": -100},
        presence_penalty=0.5,
        frequency_penalty=0.25,
        extra_body={
            "top_k": 40,
            "min_p": 0.05,
            "repetition_penalty": 1.1,
            "chat_template_kwargs": {"enable_thinking": False},
            "something_new": {"a": 1},
        },
    )
    logprobs = [choice.logprobs is not None for choice in found.choices]
    return [[shown(choice.message) for choice in found.choices], logprobs]


@scenario("chat/regenerate")
def chat_regenerate(endpoint: Endpoint):
    """The same request twice, its tool results included: two answers, not a refusal."""
    client = client_of(endpoint)
    messages = [{"role": "user", "content": WEATHER}]
    first = client.chat.completions.create(model=endpoint.model, messages=messages, tools=[TOOL])
    message = first.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    for call in message.tool_calls or ():
        messages.append({"role": "tool", "tool_call_id": call.id, "content": weather_of("Paris")})
    again = [
        client.chat.completions.create(model=endpoint.model, messages=messages, tools=[TOOL])
        for _ in range(2)
    ]
    return Transcript(
        [shown(entry.choices[0].message) for entry in again], tuple(entry.id for entry in again)
    )


@scenario("chat/foreign-results")
def chat_foreign(endpoint: Endpoint):
    """Tool results of calls that another server made."""
    call = {
        "id": "call_of_another_server",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
    }
    found = client_of(endpoint).chat.completions.create(
        model=endpoint.model,
        messages=[
            {"role": "user", "content": WEATHER},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": weather_of("Paris")},
        ],
        tools=[TOOL],
    )
    return shown(found.choices[0].message)


def output_of(found) -> list:
    items = []
    for item in found.output:
        if item.type == "function_call":
            items.append(["call", item.name, item.arguments])
        elif item.type == "message":
            items.append(["message", "".join(part.text for part in item.content)])
    return items


@scenario("responses/answer")
def responses_answer(endpoint: Endpoint):
    found = client_of(endpoint).responses.create(
        model=endpoint.model, instructions="Your name is Berta.", input=CAPITAL
    )
    return [output_of(found), found.status, found.output_text]


@scenario("responses/stream")
def responses_stream(endpoint: Endpoint):
    with client_of(endpoint).responses.stream(model=endpoint.model, input=CAPITAL) as stream:
        kinds = {event.type for event in stream}
        found = stream.get_final_response()
    return [output_of(found), "response.output_text.delta" in kinds]


def responses_turns(endpoint: Endpoint, cities, *, chained: bool) -> Transcript:
    client = client_of(endpoint)
    history, transcript, ids = [], [], []
    previous = openai.omit
    for city in cities:
        new = [{"role": "user", "content": f"What is the weather in {city}?"}]
        for _ in range(4):
            history += new
            found = client.responses.create(
                model=endpoint.model,
                instructions="Your name is Berta.",
                input=new if chained else history,
                previous_response_id=previous if chained else openai.omit,
                tools=[FLAT_TOOL],
            )
            ids.append(found.id)
            previous = found.id
            transcript.append(output_of(found))
            items = [item.model_dump(exclude_none=True) for item in found.output]
            history += items
            ids += [item.id for item in found.output if item.id]
            new = [
                {
                    "type": "function_call_output",
                    "call_id": item.call_id,
                    "output": weather_of(city),
                }
                for item in found.output
                if item.type == "function_call"
            ]
            if not new:
                break
    return Transcript(transcript, tuple(ids))


@scenario("responses/tools")
def responses_tools(endpoint: Endpoint):
    return responses_turns(endpoint, CITIES[:1], chained=False)


@scenario("responses/five-turns")
def responses_five(endpoint: Endpoint):
    return responses_turns(endpoint, CITIES, chained=False)


@scenario("responses/previous-response")
def responses_chained(endpoint: Endpoint):
    return responses_turns(endpoint, CITIES[:2], chained=True)


@scenario("responses/structured")
def responses_structured(endpoint: Endpoint):
    found = client_of(endpoint).responses.parse(
        model=endpoint.model, input="Describe Ada.", text_format=Person
    )
    return found.output_parsed.model_dump()


@scenario("responses/forced-tool")
def responses_forced(endpoint: Endpoint):
    found = client_of(endpoint).responses.create(
        model=endpoint.model,
        input=WEATHER,
        tools=[FLAT_TOOL],
        tool_choice={"type": "function", "name": "get_weather"},
    )
    return output_of(found)


@scenario("responses/item-reference")
def responses_item_reference(endpoint: Endpoint):
    client = client_of(endpoint)
    question = {"role": "user", "content": WEATHER}
    first = client.responses.create(model=endpoint.model, input=[question], tools=[FLAT_TOOL])
    calls = [item for item in first.output if item.type == "function_call"]
    outputs = [
        {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": weather_of("Paris"),
        }
        for call in calls
    ]
    references = [{"type": "item_reference", "id": call.id} for call in calls]
    second = client.responses.create(
        model=endpoint.model, input=[question, *references, *outputs], tools=[FLAT_TOOL]
    )
    return [output_of(first), output_of(second)]


@scenario("chat/embeddings")
def embeddings(endpoint: Endpoint):
    found = client_of(endpoint).embeddings.create(
        model=endpoint.model, input=["a", "b"], encoding_format="float"
    )
    return [entry.embedding for entry in found.data]


@scenario("chat/request-id")
def request_id(endpoint: Endpoint):
    found = client_of(endpoint).chat.completions.create(
        model=endpoint.model, messages=[{"role": "user", "content": CAPITAL}]
    )
    return bool(found._request_id)


main()
