"""AutoGen's AgentChat."""

from __future__ import annotations

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelInfo, UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel
from scenario import CAPITAL, WEATHER, Endpoint, main, scenario, weather_of

INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=True,
)


class Person(BaseModel):
    name: str
    age: int


async def get_weather(city: str) -> str:
    """The weather of a city."""
    return weather_of(city)


def model_of(endpoint: Endpoint):
    return OpenAIChatCompletionClient(
        model=endpoint.model,
        base_url=endpoint.openai,
        api_key=endpoint.key,
        model_info=INFO,
        max_retries=0,
    )


@scenario("chat/answer")
async def answer(endpoint: Endpoint):
    found = await model_of(endpoint).create([UserMessage(content=CAPITAL, source="user")])
    return [found.content, found.finish_reason]


@scenario("chat/stream")
async def stream(endpoint: Endpoint):
    question = UserMessage(content=CAPITAL, source="user")
    pieces = [
        item if isinstance(item, str) else item.content
        async for item in model_of(endpoint).create_stream([question])
    ]
    return [pieces[-1], len(pieces) > 2]


@scenario("chat/agent")
async def agent(endpoint: Endpoint):
    made = AssistantAgent(
        "berta",
        model_of(endpoint),
        tools=[get_weather],
        system_message="Your name is Berta.",
        reflect_on_tool_use=True,
    )
    found = await made.run(task=WEATHER)
    return [
        [item.type, item.content if isinstance(item.content, str) else len(item.content)]
        for item in found.messages
    ]


@scenario("chat/structured")
async def structured(endpoint: Endpoint):
    made = AssistantAgent("ada", model_of(endpoint), output_content_type=Person)
    found = await made.run(task="Describe Ada.")
    return found.messages[-1].content.model_dump()


@scenario("chat/team")
async def team(endpoint: Endpoint):
    """Two agents with system prompts of their own over one conversation."""
    model = model_of(endpoint)
    agents = [
        AssistantAgent(name.lower(), model, system_message=f"Your name is {name}.")
        for name in ("Berta", "Carla")
    ]
    made = RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))
    found = await made.run(task=CAPITAL)
    return [[item.source, item.content] for item in found.messages]


main()
