"""The OpenAI Agents SDK."""

from __future__ import annotations

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel
from scenario import CAPITAL, CITIES, WEATHER, Endpoint, main, scenario, weather_of

set_tracing_disabled(True)


class Person(BaseModel):
    name: str
    age: int


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return weather_of(city)


def model_of(endpoint: Endpoint, dialect: str):
    client = AsyncOpenAI(base_url=endpoint.openai, api_key=endpoint.key, max_retries=0)
    kind = OpenAIResponsesModel if dialect == "responses" else OpenAIChatCompletionsModel
    return kind(model=endpoint.model, openai_client=client)


def shown(result) -> list:
    items = []
    for item in result.new_items:
        raw = item.raw_item
        if item.type == "message_output_item":
            items.append([item.agent.name, "".join(part.text for part in raw.content)])
        elif item.type in ("tool_call_item", "handoff_call_item"):
            items.append([item.agent.name, raw.name, raw.arguments])
        else:
            items.append([item.agent.name, item.type])
    return [items, result.last_agent.name]


def register(dialect: str) -> None:
    @scenario(f"{dialect}/answer")
    async def answer(endpoint: Endpoint):
        agent = Agent(
            "Berta", instructions="Your name is Berta.", model=model_of(endpoint, dialect)
        )
        result = await Runner.run(agent, CAPITAL)
        return [shown(result), result.final_output]

    @scenario(f"{dialect}/tools")
    async def tools(endpoint: Endpoint):
        agent = Agent("A", model=model_of(endpoint, dialect), tools=[get_weather])
        result = await Runner.run(agent, WEATHER)
        return [shown(result), result.final_output]

    @scenario(f"{dialect}/stream")
    async def stream(endpoint: Endpoint):
        agent = Agent("A", model=model_of(endpoint, dialect), tools=[get_weather])
        result = Runner.run_streamed(agent, WEATHER)
        kinds = [event.type async for event in result.stream_events()]
        return [shown(result), result.final_output, "raw_response_event" in kinds]

    @scenario(f"{dialect}/handoff")
    async def handoff(endpoint: Endpoint):
        model = model_of(endpoint, dialect)
        berta = Agent("Berta", instructions="Your name is Berta.", model=model)
        triage = Agent("Triage", instructions="Your name is Triage.", model=model, handoffs=[berta])
        result = await Runner.run(triage, "Please transfer me to Berta.")
        return [shown(result), result.final_output]

    @scenario(f"{dialect}/handoff-five-turns")
    async def handoff_five_turns(endpoint: Endpoint):
        model = model_of(endpoint, dialect)
        berta = Agent("Berta", instructions="Your name is Berta.", model=model, tools=[get_weather])
        agent = Agent("Triage", instructions="Your name is Triage.", model=model, handoffs=[berta])
        said, history = [], []
        weather = (f"What is the weather in {city}?" for city in CITIES[1:])
        for text in ("Please transfer me to Berta.", *weather):
            result = await Runner.run(agent, [*history, {"role": "user", "content": text}])
            history, agent = result.to_input_list(), result.last_agent
            said.append(shown(result))
        return said

    @scenario(f"{dialect}/structured")
    async def structured(endpoint: Endpoint):
        agent = Agent("A", model=model_of(endpoint, dialect), output_type=Person)
        result = await Runner.run(agent, "Describe Ada.")
        return result.final_output.model_dump()

    @scenario(f"{dialect}/tool-required")
    async def tool_required(endpoint: Endpoint):
        agent = Agent(
            "A",
            model=model_of(endpoint, dialect),
            tools=[get_weather],
            model_settings=ModelSettings(tool_choice="required"),
        )
        result = await Runner.run(agent, WEATHER)
        return [shown(result), result.final_output]

    @scenario(f"{dialect}/five-turns")
    async def five_turns(endpoint: Endpoint):
        agent = Agent(
            "A",
            instructions="Your name is Berta.",
            model=model_of(endpoint, dialect),
            tools=[get_weather],
        )
        said, history = [], []
        for city in CITIES:
            question = {"role": "user", "content": f"What is the weather in {city}?"}
            result = await Runner.run(agent, [*history, question])
            history = result.to_input_list()
            said.append(shown(result))
        return said


register("chat")
register("responses")
main()
