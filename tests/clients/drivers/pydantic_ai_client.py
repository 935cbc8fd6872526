"""pydantic-ai, with its OpenAI, Responses and Anthropic models."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from scenario import CAPITAL, CITIES, WEATHER, Endpoint, main, scenario, weather_of


class Person(BaseModel):
    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return weather_of(city)


def model_of(endpoint: Endpoint, dialect: str):
    if dialect == "messages":
        from anthropic import AsyncAnthropic

        client = AsyncAnthropic(base_url=endpoint.url, api_key=endpoint.key, max_retries=0)
        return AnthropicModel(endpoint.model, provider=AnthropicProvider(anthropic_client=client))
    provider = OpenAIProvider(base_url=endpoint.openai, api_key=endpoint.key)
    kind = OpenAIResponsesModel if dialect == "responses" else OpenAIChatModel
    return kind(endpoint.model, provider=provider)


def shown(messages) -> list:
    said = []
    for message in messages:
        for part in message.parts:
            if part.part_kind == "tool-call":
                said.append([part.part_kind, part.tool_name, part.args_as_dict()])
            elif part.part_kind != "thinking":
                said.append([part.part_kind, str(part.content)])
    return said


def register(dialect: str) -> None:
    @scenario(f"{dialect}/answer")
    async def answer(endpoint: Endpoint):
        agent = Agent(model_of(endpoint, dialect), instructions="Your name is Berta.")
        return (await agent.run(CAPITAL)).output

    @scenario(f"{dialect}/stream")
    async def stream(endpoint: Endpoint):
        agent = Agent(model_of(endpoint, dialect))
        async with agent.run_stream(CAPITAL) as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        return ["".join(pieces), len(pieces) > 1]

    @scenario(f"{dialect}/tools")
    async def tools(endpoint: Endpoint):
        agent = Agent(model_of(endpoint, dialect), tools=[get_weather])
        return shown((await agent.run(WEATHER)).all_messages())

    @scenario(f"{dialect}/structured")
    async def structured(endpoint: Endpoint):
        agent = Agent(model_of(endpoint, dialect), output_type=Person)
        return (await agent.run("Describe Ada.")).output.model_dump()

    @scenario(f"{dialect}/five-turns")
    async def five_turns(endpoint: Endpoint):
        agent = Agent(
            model_of(endpoint, dialect), instructions="Your name is Berta.", tools=[get_weather]
        )
        history = []
        for city in CITIES:
            result = await agent.run(f"What is the weather in {city}?", message_history=history)
            history = result.all_messages()
        return shown(history)


for item in ("chat", "responses", "messages"):
    register(item)

main()
