"""DSPy."""

from __future__ import annotations

import dspy
from scenario import CAPITAL, Endpoint, main, scenario


def model_of(endpoint: Endpoint, dialect: str):
    vendor = "anthropic" if dialect == "messages" else "openai"
    kind = "responses" if dialect == "responses" else "chat"
    return dspy.LM(
        f"{vendor}/{endpoint.model}",
        api_base=endpoint.openai,
        api_key=endpoint.key,
        cache=False,
        num_retries=0,
        model_type=kind,
    )


def register(dialect: str) -> None:
    @scenario(f"{dialect}/predict")
    def predict(endpoint: Endpoint):
        with dspy.context(lm=model_of(endpoint, dialect)):
            return dspy.Predict("question -> answer")(question=CAPITAL).answer

    @scenario(f"{dialect}/object")
    def structured(endpoint: Endpoint):
        with dspy.context(lm=model_of(endpoint, dialect), adapter=dspy.JSONAdapter()):
            found = dspy.Predict("question -> name: str, age: int")(question="Describe Ada.")
            return [found.name, found.age]

    @scenario(f"{dialect}/call")
    def call(endpoint: Endpoint):
        return model_of(endpoint, dialect)(CAPITAL)[0]


for item in ("chat", "responses", "messages"):
    register(item)

main()
