"""llm (Simon Willison's), with models from its extra-openai-models.yaml."""

from __future__ import annotations

import json
import os
from pathlib import Path

from scenario import CAPITAL, WEATHER, Endpoint, main, scenario, weather_of

USER = Path.home() / "llm"
USER.mkdir(exist_ok=True)
os.environ["LLM_USER_PATH"] = str(USER)


def model_of(endpoint: Endpoint):
    import llm

    entry = {
        "model_id": f"tried-{endpoint.model}",
        "model_name": endpoint.model,
        "api_base": endpoint.openai,
        "supports_tools": True,
        "supports_schema": True,
        "can_stream": True,
    }
    (USER / "extra-openai-models.yaml").write_text(json.dumps([entry]))
    (USER / "keys.json").write_text(json.dumps({"openai": endpoint.key}))
    return llm.get_model(f"tried-{endpoint.model}")


@scenario("chat/answer")
def answer(endpoint: Endpoint):
    return model_of(endpoint).prompt(CAPITAL, system="Your name is Berta.", stream=False).text()


@scenario("chat/stream")
def stream(endpoint: Endpoint):
    pieces = list(model_of(endpoint).prompt(CAPITAL, stream=True))
    return ["".join(pieces), len(pieces) > 1]


@scenario("chat/tools")
def tools(endpoint: Endpoint):
    def get_weather(city: str) -> str:
        """The weather of a city."""
        return weather_of(city)

    chain = model_of(endpoint).chain(WEATHER, tools=[get_weather], stream=False)
    found = list(chain.responses())
    calls = [[[c.name, c.arguments] for c in item.tool_calls()] for item in found]
    return [calls, found[-1].text()]


@scenario("chat/schema")
def schema(endpoint: Endpoint):
    import llm

    person = llm.schema_dsl("name, age int")
    found = model_of(endpoint).prompt("Describe Ada.", schema=person, stream=False)
    return json.loads(found.text())


@scenario("chat/conversation")
def conversation(endpoint: Endpoint):
    talk = model_of(endpoint).conversation()
    questions = (CAPITAL, "What is the capital of Japan?", "Who are you?")
    return [talk.prompt(item, stream=False).text() for item in questions]


main()
