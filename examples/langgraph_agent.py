"""A LangGraph agent whose model is Podium. Needs `podium serve` and langchain with its OpenAI part.

pip install langchain langchain-openai
"""

import os

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"It is sunny in {city}."


model = ChatOpenAI(
    model="podium",
    base_url=os.environ.get("PODIUM_URL", "http://127.0.0.1:7755") + "/v1",
    api_key=os.environ.get("PODIUM_KEY", "none"),
)
agent = create_agent(model, [get_weather])
state = agent.invoke({"messages": [("user", "What is the weather in Paris?")]})
print(state["messages"][-1].text)
