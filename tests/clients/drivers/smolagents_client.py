"""smolagents with its OpenAI model."""

from __future__ import annotations

from scenario import CAPITAL, WEATHER, Endpoint, main, scenario, weather_of
from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    return weather_of(city)


def model_of(endpoint: Endpoint):
    return OpenAIModel(
        model_id=endpoint.model,
        api_base=endpoint.openai,
        api_key=endpoint.key,
        client_kwargs={"max_retries": 0},
    )


@scenario("chat/answer")
def answer(endpoint: Endpoint):
    messages = [{"role": "user", "content": [{"type": "text", "text": CAPITAL}]}]
    return model_of(endpoint).generate(messages).content


@scenario("chat/stream")
def stream(endpoint: Endpoint):
    messages = [{"role": "user", "content": [{"type": "text", "text": CAPITAL}]}]
    pieces = [item.content or "" for item in model_of(endpoint).generate_stream(messages)]
    return "".join(pieces)


@scenario("chat/agent")
def agent(endpoint: Endpoint):
    made = ToolCallingAgent(
        [get_weather], model_of(endpoint), verbosity_level=LogLevel.OFF, max_steps=4
    )
    found = made.run(WEATHER)
    steps = [
        [[call.name, call.arguments] for call in step.tool_calls or ()]
        for step in made.memory.steps
        if hasattr(step, "tool_calls")
    ]
    return [found, steps]


main()
