"""LiteLLM as a library, in the three dialects, with its own message objects sent back."""

from __future__ import annotations

import litellm
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

litellm.telemetry = False
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather", "parameters": CITY_SCHEMA},
}


def ask(endpoint: Endpoint, dialect: str, messages, **more):
    vendor = "anthropic" if dialect == "messages" else "openai"
    url = endpoint.url if dialect == "messages" else endpoint.openai
    return litellm.completion(
        model=f"{vendor}/{endpoint.model}",
        api_base=url,
        api_key=endpoint.key,
        messages=messages,
        num_retries=0,
        max_tokens=500,
        **more,
    )


def shown(message) -> list:
    calls = [[c.function.name, c.function.arguments] for c in message.tool_calls or ()]
    return [message.role, message.content or "", calls]


def register(dialect: str) -> None:
    @scenario(f"{dialect}/answer")
    def answer(endpoint: Endpoint):
        messages = [
            {"role": "system", "content": "Your name is Berta."},
            {"role": "user", "content": CAPITAL},
        ]
        found = ask(endpoint, dialect, messages)
        return [shown(found.choices[0].message), found.choices[0].finish_reason]

    @scenario(f"{dialect}/stream")
    def stream(endpoint: Endpoint):
        pieces = [
            chunk.choices[0].delta.content or ""
            for chunk in ask(endpoint, dialect, [{"role": "user", "content": CAPITAL}], stream=True)
        ]
        return ["".join(pieces), sum(map(bool, pieces)) > 1]

    @scenario(f"{dialect}/tools")
    def tools(endpoint: Endpoint):
        return turns(endpoint, dialect, CITIES[:1])

    @scenario(f"{dialect}/five-turns")
    def five_turns(endpoint: Endpoint):
        return turns(endpoint, dialect, CITIES)


def turns(endpoint: Endpoint, dialect: str, cities) -> Transcript:
    messages, transcript, ids = [], [], []
    for city in cities:
        messages.append({"role": "user", "content": f"What is the weather in {city}?"})
        for _ in range(4):
            found = ask(endpoint, dialect, messages, tools=[TOOL])
            message = found.choices[0].message
            ids.append(found.id)
            transcript.append(shown(message))
            messages.append(message)
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                messages.append(
                    {
                        "role": "tool",
                        "tool_call_id": call.id,
                        "name": "get_weather",
                        "content": weather_of(city),
                    }
                )
    return Transcript(transcript, tuple(ids))


@scenario("chat/message-objects")
def message_objects(endpoint: Endpoint):
    """What LiteLLM's objects hold beyond the standard, dumped whole into the next request."""
    import openai

    client = openai.OpenAI(base_url=endpoint.openai, api_key=endpoint.key, max_retries=0)
    messages = [{"role": "user", "content": WEATHER}]
    first = ask(endpoint, "chat", messages, tools=[TOOL])
    message = first.choices[0].message
    messages.append({**message.model_dump(), "provider_specific_fields": {"a": 1}})
    for call in message.tool_calls or ():
        messages.append(
            {"role": "tool", "tool_call_id": call.id, "content": weather_of("Paris"), "name": "x"}
        )
    second = client.chat.completions.create(model=endpoint.model, messages=messages, tools=[TOOL])
    return shown(second.choices[0].message)


register("chat")
register("messages")


@scenario("responses/answer")
def responses_answer(endpoint: Endpoint):
    found = litellm.responses(
        model=f"openai/{endpoint.model}",
        api_base=endpoint.openai,
        api_key=endpoint.key,
        input=CAPITAL,
        instructions="Your name is Berta.",
    )
    return [[item.type, item.content[0].text] for item in found.output]


main()
