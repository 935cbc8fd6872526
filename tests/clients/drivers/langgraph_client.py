"""LangChain and LangGraph: chat models by themselves and as agents."""

from __future__ import annotations

from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from scenario import CAPITAL, CITIES, WEATHER, Endpoint, Transcript, main, scenario, weather_of


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return weather_of(city)


def model_of(endpoint: Endpoint, dialect: str):
    if dialect == "messages":
        return ChatAnthropic(
            model=endpoint.model,
            base_url=endpoint.url,
            api_key=endpoint.key,
            max_retries=0,
            max_tokens=500,
        )
    return ChatOpenAI(
        model=endpoint.model,
        base_url=endpoint.openai,
        api_key=endpoint.key,
        max_retries=0,
        use_responses_api=dialect == "responses",
    )


def shown(messages) -> list:
    return [
        [m.type, m.text, [[c["name"], c["args"]] for c in getattr(m, "tool_calls", [])]]
        for m in messages
    ]


def ids_of(messages) -> tuple[str, ...]:
    return tuple(message.id for message in messages if message.id)


def register(dialect: str) -> None:
    @scenario(f"{dialect}/answer")
    def answer(endpoint: Endpoint):
        found = model_of(endpoint, dialect).invoke(
            [("system", "Your name is Berta."), ("user", CAPITAL)]
        )
        return shown([found])

    @scenario(f"{dialect}/stream")
    def stream(endpoint: Endpoint):
        pieces = [piece.text for piece in model_of(endpoint, dialect).stream(CAPITAL)]
        return ["".join(pieces), sum(map(bool, pieces)) > 1]

    @scenario(f"{dialect}/structured")
    def structured(endpoint: Endpoint):
        method = "function_calling"
        bound = model_of(endpoint, dialect).with_structured_output(Person, method=method)
        return bound.invoke("Describe Ada.").model_dump()

    @scenario(f"{dialect}/agent")
    def agent(endpoint: Endpoint):
        made = create_agent(
            model_of(endpoint, dialect), [get_weather], system_prompt="Your name is Berta."
        )
        messages = made.invoke({"messages": [("user", WEATHER)]})["messages"]
        return Transcript(shown(messages), ids_of(messages))

    @scenario(f"{dialect}/agent-stream")
    def agent_stream(endpoint: Endpoint):
        made = create_agent(model_of(endpoint, dialect), [get_weather])
        state = {"messages": [("user", WEATHER)]}
        updates = []
        for update in made.stream(state, stream_mode="updates"):
            for node, change in update.items():
                updates += [[node, *item] for item in shown(change["messages"])]
        return updates

    @scenario(f"{dialect}/agent-person")
    def agent_person(endpoint: Endpoint):
        made = create_agent(
            model_of(endpoint, dialect), [get_weather], response_format=ToolStrategy(Person)
        )
        found = made.invoke({"messages": [("user", WEATHER)]})
        person = found.get("structured_response")
        return [person and person.model_dump(), shown(found["messages"])]

    @scenario(f"{dialect}/agent-provider-person")
    def agent_provider_person(endpoint: Endpoint):
        made = create_agent(
            model_of(endpoint, dialect), [get_weather], response_format=ProviderStrategy(Person)
        )
        found = made.invoke({"messages": [("user", WEATHER)]})
        person = found.get("structured_response")
        return [person and person.model_dump(), len(found["messages"])]

    @scenario(f"{dialect}/agent-five-turns")
    def agent_five_turns(endpoint: Endpoint):
        made = create_agent(
            model_of(endpoint, dialect), [get_weather], system_prompt="Your name is Berta."
        )
        messages = []
        for city in CITIES:
            question = {"role": "user", "content": f"What is the weather in {city}?"}
            messages = made.invoke({"messages": [*messages, question]})["messages"]
        return Transcript(shown(messages), ids_of(messages))


for item in ("chat", "responses", "messages"):
    register(item)

main()
