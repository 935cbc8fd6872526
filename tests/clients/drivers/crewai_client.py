"""CrewAI."""

from __future__ import annotations

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from pydantic import BaseModel
from scenario import CAPITAL, WEATHER, Endpoint, main, scenario, weather_of


class Person(BaseModel):
    name: str
    age: int


@tool("get_weather")
def get_weather(city: str) -> str:
    """The weather of a city."""
    return weather_of(city)


def model_of(endpoint: Endpoint):
    return LLM(model=f"openai/{endpoint.model}", base_url=endpoint.openai, api_key=endpoint.key)


def crew_of(endpoint: Endpoint, question: str, *, tools=(), output=None) -> Crew:
    agent = Agent(
        role="Expert",
        goal="Answer",
        backstory="You know it all.",
        llm=model_of(endpoint),
        tools=list(tools),
        max_iter=4,
    )
    task = Task(
        description=question, expected_output="An answer", agent=agent, output_pydantic=output
    )
    return Crew(agents=[agent], tasks=[task], verbose=False)


@scenario("chat/call")
def call(endpoint: Endpoint):
    return model_of(endpoint).call(CAPITAL)


@scenario("chat/crew")
def crew(endpoint: Endpoint):
    return crew_of(endpoint, CAPITAL).kickoff().raw


@scenario("chat/crew-tool")
def crew_tool(endpoint: Endpoint):
    return crew_of(endpoint, WEATHER, tools=[get_weather]).kickoff().raw


main()
