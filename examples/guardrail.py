"""Keep addresses away from every model, and block answers that name a price."""

from podium import Guardrail, GuardrailInput, Podium, Redaction, ScriptedWorker
from podium.engine.guardrails import Block, Pass, Verdict


def no_prices(item: GuardrailInput) -> Verdict:
    return Block("we quote no prices") if "$" in item.text else Pass()


checks = [
    Guardrail("privacy", Redaction(restore=True), stages=("question",)),
    Guardrail("no-prices", no_prices, stages=("answer",)),
]
echo = ScriptedWorker("echo", lambda request: f"You said: {request.messages[-1].text}")
with Podium([echo], guardrails=checks) as podium:
    run = podium.ask("Write to ada@example.com")
    print(f"the model saw: {run.question}; the asker gets: {run.answer}")
    print(podium.ask("It costs $5").error)
