"""instructor: objects from tools, JSON schemas and Messages."""

from __future__ import annotations

import anthropic
import instructor
import openai
from pydantic import BaseModel
from scenario import Endpoint, main, scenario

QUESTION = [{"role": "user", "content": "Describe Ada."}]


class Person(BaseModel):
    name: str
    age: int


def openai_of(endpoint: Endpoint, mode) -> instructor.Instructor:
    client = openai.OpenAI(base_url=endpoint.openai, api_key=endpoint.key, max_retries=0)
    return instructor.from_openai(client, mode=mode)


@scenario("chat/tools-mode")
def tools_mode(endpoint: Endpoint):
    found = openai_of(endpoint, instructor.Mode.TOOLS).chat.completions.create(
        model=endpoint.model, response_model=Person, messages=QUESTION, max_retries=0
    )
    return found.model_dump()


@scenario("chat/json-schema-mode")
def schema_mode(endpoint: Endpoint):
    found = openai_of(endpoint, instructor.Mode.JSON_SCHEMA).chat.completions.create(
        model=endpoint.model, response_model=Person, messages=QUESTION, max_retries=0
    )
    return found.model_dump()


@scenario("chat/json-mode")
def json_mode(endpoint: Endpoint):
    found = openai_of(endpoint, instructor.Mode.JSON).chat.completions.create(
        model=endpoint.model, response_model=Person, messages=QUESTION, max_retries=0
    )
    return found.model_dump()


@scenario("chat/partial-stream")
def partial(endpoint: Endpoint):
    client = openai_of(endpoint, instructor.Mode.TOOLS)
    found = [
        item.model_dump()
        for item in client.chat.completions.create_partial(
            model=endpoint.model, response_model=Person, messages=QUESTION, max_retries=0
        )
    ]
    return found[-1]


@scenario("responses/tools-mode")
def responses_mode(endpoint: Endpoint):
    found = openai_of(endpoint, instructor.Mode.RESPONSES_TOOLS).chat.completions.create(
        model=endpoint.model, response_model=Person, messages=QUESTION, max_retries=0
    )
    return found.model_dump()


@scenario("messages/tools-mode")
def messages_mode(endpoint: Endpoint):
    client = anthropic.Anthropic(base_url=endpoint.url, api_key=endpoint.key, max_retries=0)
    found = instructor.from_anthropic(client).messages.create(
        model=endpoint.model,
        response_model=Person,
        messages=QUESTION,
        max_tokens=500,
        max_retries=0,
    )
    return found.model_dump()


main()
