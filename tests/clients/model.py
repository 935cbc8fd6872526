"""A scripted model: it answers from the conversation alone, whatever dialect that came in.

It knows a few questions. `What is the weather in Paris?` needs the tool `get_weather`; everything
else it knows. The answer does not depend on how a prompt is wrapped, so a client gets the same
answer from a plan of several steps as from one call. `Your name is Berta` in the system prompt is
shown in the answer: a system prompt that got lost shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

ANSWERS: Final[Mapping[str, str]] = {
    "What is the capital of France?": "Paris is the capital of France.",
    "What is the capital of Japan?": "Tokyo is the capital of Japan.",
    "Who are you?": "I am the model.",
    "Please transfer me to Berta.": "I speak to you now.",
    "Describe Ada.": "Ada is 36.",
}
WEATHER: Final = re.compile(r"What is the weather in (\w+)\?")
TWO: Final = re.compile(r"What is the weather in (\w+) and (\w+)\?")
FILE: Final = re.compile(r"Create the file (\w+)\.txt")
FAULT: Final = re.compile(r"Fail with (\d{3})")
ID: Final = re.compile(r"\b(?:call|toolu)_\w+")
NAME: Final = re.compile(r"Your name is (\w+)")
SHELLS: Final = (*("Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell"),)


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call with its arguments as JSON."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: text, tool calls of an assistant, or the id that a tool result answers."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    result_of: str = ""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a request asks for, read from any of the three dialects.

    `tool_choice` is `auto`, `none`, `required` or the name of a tool. `schema` is the JSON schema
    of a structured answer, empty for any JSON object, and None for text.
    """

    system: str
    turns: tuple[Turn, ...]
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tool_choice: str = "auto"
    schema: Mapping[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON without the ids of calls, which some clients write into texts, too."""
        return {
            "system": self.system,
            "turns": [
                [
                    turn.role,
                    ID.sub("ID", turn.text),
                    [[call.name, call.arguments] for call in turn.calls],
                ]
                for turn in self.turns
            ],
            "tools": sorted(self.tools),
            "tool_choice": self.tool_choice if self.tools else "auto",
            "is_structured": self.schema is not None,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """A text, tool calls, or an HTTP status to fail with."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    status: int = 200


def answer(asked: Conversation) -> Answer:
    """Return the model's reply."""
    position, question = _question(asked.turns)
    if fault := FAULT.fullmatch(question):
        return Answer(status=int(fault[1]))
    later = asked.turns[position:]
    seen = "\n".join(turn.text for turn in later)
    called = [call.name for turn in later for call in turn.calls]
    if cities := TWO.fullmatch(question):
        return _about_two(cities.groups(), seen, later)
    may_call = asked.tools and asked.tool_choice != "none"
    if may_call and (name := _tool_to_call(asked, question, seen, called)):
        fact = _fact(question, seen, called)
        return Answer(calls=(Call(name, _arguments(name, asked.tools[name], question, fact)),))
    if asked.schema is not None:
        return Answer(json.dumps(example(asked.schema) if asked.schema else PERSON))
    return Answer(_formatted(asked, question, _fact(question, seen, called)))


PERSON: Final = {"name": "Ada", "age": 36}


def _about_two(cities: Sequence[str], seen: str, later: Sequence[Turn]) -> Answer:
    """Call the tool for one city after the other, then name the cities whose result is there."""
    called = [call.arguments for turn in later for call in turn.calls]
    for city in cities:
        if not any(city in arguments for arguments in called):
            return Answer(calls=(Call("get_weather", json.dumps({"city": city})),))
    known = [city for city in cities if f"degrees in {city}" in seen]
    return Answer(f"I know about {' and '.join(known)}.")


def _question(turns: Sequence[Turn]) -> tuple[int, str]:
    """Return the newest question that the model knows, and the turn that it is in."""
    for position in range(len(turns) - 1, -1, -1):
        turn = turns[position]
        if turn.role != "user":
            continue
        found = [
            match.group()
            for pattern in (WEATHER, TWO, FILE, FAULT)
            if (match := pattern.search(turn.text))
        ]
        found += [question for question in ANSWERS if question in turn.text]
        if found:
            return position, min(found, key=turn.text.index)
    return 0, ""


def _tool_to_call(
    asked: Conversation, question: str, seen: str, called: Sequence[str]
) -> str | None:
    """Return the tool that the reply must or should call, if any."""
    if asked.tool_choice in asked.tools:
        return asked.tool_choice
    wanted: str | None = None
    if (city := WEATHER.match(question)) and f"degrees in {city[1]}" not in seen:
        wanted = _first(asked.tools, lambda name: "weather" in name)
    elif question == "Please transfer me to Berta." and "Your name is Berta" not in asked.system:
        wanted = _first(asked.tools, lambda name: name.lower().startswith("transfer_to"))
        wanted = None if wanted in called else wanted
    elif FILE.match(question) and not {*called} & {*SHELLS}:
        wanted = next((name for name in SHELLS if name in asked.tools), None)
    if wanted is None and asked.tool_choice == "required":
        names = [*asked.tools][::-1]
        wanted = next((name for name in names if name not in called), None)
        wanted = wanted or names[0]
    return wanted


def _first(names: Mapping[str, Any], fits: Any) -> str | None:
    return next((name for name in names if fits(name)), None)


def _fact(question: str, seen: str, called: Sequence[str]) -> str:
    if city := WEATHER.match(question):
        known = f"sunny, 21 degrees in {city[1]}"
        return f"It is {known}." if known in seen else "I have no tool for that."
    if file := FILE.match(question):
        has_written = {*called} & {*SHELLS}
        return f"{file[1]}.txt has been written." if has_written else "I have no tool for that."
    return ANSWERS.get(question, "I do not know.")


def _arguments(name: str, schema: Mapping[str, Any], question: str, fact: str) -> str:
    if (city := WEATHER.match(question)) and "weather" in name:
        return json.dumps({"city": city[1]})
    if file := FILE.match(question):
        return json.dumps(_write_arguments(schema, file[1]))
    if name == "final_answer":
        return json.dumps({"answer": fact})
    return json.dumps(example(schema))


def _write_arguments(schema: Mapping[str, Any], stem: str) -> dict[str, Any]:
    """Return arguments of a shell that append to the file, so that writing twice shows."""
    properties = schema.get("properties", {})
    command = f"echo {stem} >> {stem}.txt"
    if "cmd" in properties:
        return {"cmd": command}
    is_list = properties.get("command", {}).get("type") == "array"
    arguments: dict[str, Any] = {"command": ["sh", "-c", command] if is_list else command}
    if "description" in properties:
        arguments["description"] = f"Write {stem}.txt"
    if "is_background" in properties:
        arguments["is_background"] = False
    return arguments


def _formatted(asked: Conversation, question: str, fact: str) -> str:
    """Return the fact as the prompts of a client ask for it."""
    names = NAME.findall(asked.system)
    text = f"{names[-1]}: {fact}" if names else fact
    everything = asked.system + "\n".join(turn.text for turn in asked.turns)
    if "[[ ## answer ## ]]" in everything:
        return f"[[ ## answer ## ]]\n{text}\n\n[[ ## completed ## ]]"
    if question == "Describe Ada." and "JSON" in everything:
        return json.dumps(PERSON)
    if "Final Answer:" in everything:
        return f"Thought: I now can give a great answer\nFinal Answer: {text}"
    file = FILE.match(question)
    if file and not asked.tools and "*file listing*" in everything:
        return f"{file[1]}.txt\n```\n{file[1]}\n```\n"
    return text


def example(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """Return a value that fits a JSON schema."""
    root = schema if root is None else root
    if "$ref" in schema:
        target: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return example(target, root)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return example(schema[several][0], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "const" in schema:
        return schema["const"]
    match schema.get("type", "object" if "properties" in schema else "string"):
        case "object":
            properties = schema.get("properties", {})
            return {
                name: PERSON[name] if name in PERSON else example(inner, root)
                for name, inner in properties.items()
            }
        case "array":
            return [example(schema.get("items", {}), root)]
        case "integer":
            return 1
        case "number":
            return 1.5
        case "boolean":
            return True
    return "text"


def plan(prompt: str, workers: Sequence[str] = ("alpha", "beta", "alpha")) -> str:
    """Return a plan of two steps at once and a last one that reads both.

    A planner that is shown a result accepts it: the answer is the same in every round.
    """
    subtasks = ("Give your own answer.", "Give your own answer.", "Give the final answer.")
    access: tuple[list[int], ...] = ([], [], [0, 1])
    is_asked_to_accept = "Decide whether the user should get this answer" in prompt
    if "model_id =" in prompt:
        if is_asked_to_accept:
            return "model_id = []\nsubtasks = []\naccess_list = []"
        numbers = [_number(prompt, worker) for worker in workers]
        texts = json.dumps(list(subtasks))
        return f"model_id = {numbers}\nsubtasks = {texts}\naccess_list = {list(access)}"
    if is_asked_to_accept:
        return json.dumps({"steps": []})
    steps = [
        {"worker": worker, "subtask": subtask, "access": reads}
        for worker, subtask, reads in zip(workers, subtasks, access, strict=True)
    ]
    return json.dumps({"reasoning": "Two views, then one answer.", "steps": steps})


def _number(prompt: str, worker: str) -> int:
    found = re.findall(rf"^(\d+): {worker}\b", prompt, re.MULTILINE)
    return int(found[-1]) if found else 0
