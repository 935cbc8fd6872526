"""LlamaIndex with OpenAILike, OpenAI's Responses and its function agent."""

from __future__ import annotations

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from llama_index.llms.openai_like.responses import OpenAILikeResponses
from pydantic import BaseModel
from scenario import CAPITAL, WEATHER, Endpoint, main, scenario, weather_of


class Person(BaseModel):
    """A person."""

    name: str
    age: int


def get_weather(city: str) -> str:
    """The weather of a city."""
    return weather_of(city)


def model_of(endpoint: Endpoint, dialect: str):
    kind = OpenAILikeResponses if dialect == "responses" else OpenAILike
    return kind(
        model=endpoint.model,
        api_base=endpoint.openai,
        api_key=endpoint.key,
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=100_000,
        max_retries=0,
    )


def register(dialect: str) -> None:
    @scenario(f"{dialect}/answer")
    def answer(endpoint: Endpoint):
        messages = [
            ChatMessage(role="system", content="Your name is Berta."),
            ChatMessage(role="user", content=CAPITAL),
        ]
        return model_of(endpoint, dialect).chat(messages).message.content

    @scenario(f"{dialect}/stream")
    def stream(endpoint: Endpoint):
        messages = [ChatMessage(role="user", content=CAPITAL)]
        pieces = [item.delta or "" for item in model_of(endpoint, dialect).stream_chat(messages)]
        return ["".join(pieces), sum(map(bool, pieces)) > 1]

    @scenario(f"{dialect}/structured")
    def structured(endpoint: Endpoint):
        prompt = PromptTemplate("Describe Ada.")
        return model_of(endpoint, dialect).structured_predict(Person, prompt).model_dump()

    @scenario(f"{dialect}/agent")
    async def agent(endpoint: Endpoint):
        made = FunctionAgent(
            tools=[FunctionTool.from_defaults(get_weather)],
            llm=model_of(endpoint, dialect),
            system_prompt="Your name is Berta.",
            streaming=False,
        )
        found = await made.run(WEATHER)
        calls = [[item.tool_name, item.tool_kwargs] for item in found.tool_calls]
        return [found.response.content, calls]


register("chat")
register("responses")
main()
