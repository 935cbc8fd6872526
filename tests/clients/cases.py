"""The clients, and their cases: client × dialect × tier × scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Tier = Literal["control", "worker", "podium", "podium-ultra"]
Dialect = Literal["chat", "responses", "messages"]

CONTROL: Final = "control"
ALL: Final[tuple[Tier, ...]] = ("worker", "podium", "podium-ultra")
WORKER: Final[tuple[Tier, ...]] = ("worker",)
TIERS: Final[tuple[Tier, ...]] = ("podium", "podium-ultra")

WORKERS: Final[Mapping[str, str]] = {"chat": "alpha", "responses": "gpt", "messages": "claude"}
"""The worker of a dialect that is asked by its own name: the one that speaks it itself."""


def model_for(scenario: str, tier: str) -> str:
    """Return the model that a client asks for."""
    if tier in (CONTROL, "worker"):
        return WORKERS[scenario.partition("/")[0]]
    return tier


@dataclass(frozen=True, slots=True, eq=False)
class Client:
    """A client, its scenarios with the tiers they run at, and its row in the clients page."""

    name: str
    title: str
    base_url: str
    settings: str
    scenarios: Mapping[str, tuple[Tier, ...]]
    caveats: str = ""
    environment: str = "frameworks"
    is_repeatable: bool = True
    """False where each run has other prompts: coding agents tell of directories and dates."""

    @property
    def dialects(self) -> tuple[str, ...]:
        """The dialects it speaks, in the order of its scenarios."""
        return tuple(dict.fromkeys(name.partition("/")[0] for name in self.scenarios))


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the table."""

    client: Client
    scenario: str
    tier: Tier

    @property
    def id(self) -> str:
        """Its name."""
        return f"{self.client.name} {self.scenario} {self.tier}"

    @property
    def dialect(self) -> str:
        """The dialect that it is in."""
        return self.scenario.partition("/")[0]


def _all(*names: str) -> dict[str, tuple[Tier, ...]]:
    return dict.fromkeys(names, ALL)


OPENAI: Final = Client(
    name="openai",
    title="OpenAI SDK (Python)",
    base_url="http://127.0.0.1:7755/v1",
    settings="`OpenAI(base_url=…, api_key=…)`, or `OPENAI_BASE_URL` and `OPENAI_API_KEY`",
    scenarios={
        **_all(
            *("chat/answer", "chat/stream", "chat/stream-tool", "chat/tools", "chat/five-turns"),
            *("chat/one-tool-at-a-time", "chat/structured", "chat/json-object"),
            *("chat/forced-tool", "chat/forced-other-tool", "chat/changed-system"),
            *("chat/regenerate", "chat/foreign-results"),
            *("responses/answer", "responses/stream", "responses/tools", "responses/five-turns"),
            *("responses/previous-response", "responses/structured", "responses/forced-tool"),
            "responses/item-reference",
            "chat/request-id",
        ),
        "chat/pruned-results": ("worker", "podium"),
        "chat/pass-through": WORKER,
        "chat/embeddings": WORKER,
    },
)


def _in(dialects: str, names: str) -> dict[str, tuple[Tier, ...]]:
    """Return scenarios of these names in each of the dialects, at every tier."""
    return _all(*(f"{dialect}/{name}" for dialect in dialects.split() for name in names.split()))


OPENAI_URL: Final = "http://127.0.0.1:7755/v1"
ANTHROPIC_URL: Final = "http://127.0.0.1:7755"
BOTH_URLS: Final = f"{OPENAI_URL}, for Messages {ANTHROPIC_URL}"

ANTHROPIC: Final = Client(
    name="anthropic",
    title="Anthropic SDK (Python)",
    base_url=ANTHROPIC_URL,
    settings="`Anthropic(base_url=…, api_key=…)`, or `ANTHROPIC_BASE_URL`, `ANTHROPIC_API_KEY`",
    caveats="the base URL is without `/v1`",
    scenarios=_in(
        "messages",
        "answer stream stream-tool tools five-turns one-tool-at-a-time forced-tool changed-system"
        " structured document prefill cache-control request-id count-tokens",
    ),
)

LANGGRAPH: Final = Client(
    name="langgraph",
    title="LangChain and LangGraph",
    base_url=BOTH_URLS,
    settings="`ChatOpenAI(base_url=…, use_responses_api=…)`, `ChatAnthropic(base_url=…)`",
    scenarios=_in(
        "chat responses messages",
        "answer stream structured agent agent-stream agent-person agent-provider-person"
        " agent-five-turns",
    ),
)

OPENAI_AGENTS: Final = Client(
    name="openai_agents",
    title="OpenAI Agents SDK",
    base_url=OPENAI_URL,
    settings="`OpenAIChatCompletionsModel` or `OpenAIResponsesModel` with an"
    " `AsyncOpenAI(base_url=…)`",
    caveats="`set_tracing_disabled(True)`: traces go to OpenAI",
    scenarios=_in(
        "chat responses",
        "answer tools stream handoff handoff-five-turns structured tool-required five-turns",
    ),
)

LITELLM: Final = Client(
    name="litellm",
    title="LiteLLM (library)",
    base_url=BOTH_URLS,
    settings='`completion(model="openai/podium", api_base=…)`, `"anthropic/podium"` for Messages',
    scenarios={
        **_in("chat messages", "answer stream tools five-turns"),
        **_all("chat/message-objects", "responses/answer"),
    },
)

PYDANTIC_AI: Final = Client(
    name="pydantic_ai",
    title="Pydantic AI",
    base_url=BOTH_URLS,
    settings="`OpenAIChatModel` or `OpenAIResponsesModel` with `OpenAIProvider(base_url=…)`,"
    " `AnthropicModel` with `AnthropicProvider`",
    scenarios=_in("chat responses messages", "answer stream tools structured five-turns"),
)

INSTRUCTOR: Final = Client(
    name="instructor",
    title="Instructor",
    base_url=BOTH_URLS,
    settings="`instructor.from_openai(OpenAI(base_url=…))`,"
    " `from_anthropic(Anthropic(base_url=…))`",
    scenarios={
        **_in("chat", "tools-mode json-schema-mode json-mode partial-stream"),
        **_in("responses messages", "tools-mode"),
    },
)

LLM: Final = Client(
    name="llm",
    title="llm",
    base_url=OPENAI_URL,
    settings="`api_base`, `supports_tools: true`, `supports_schema: true` in"
    " `extra-openai-models.yaml`",
    scenarios=_in("chat", "answer stream tools schema conversation"),
)

DSPY: Final = Client(
    name="dspy",
    title="DSPy",
    base_url=OPENAI_URL,
    settings='`dspy.LM("openai/podium", api_base=…, model_type=…)`, `"anthropic/podium"`',
    caveats="for Messages, too, the base URL ends in `/v1`",
    scenarios=_in("chat responses messages", "predict object call"),
)

SMOLAGENTS: Final = Client(
    name="smolagents",
    title="smolagents",
    base_url=OPENAI_URL,
    settings="`OpenAIModel(model_id=…, api_base=…, api_key=…)`",
    scenarios=_in("chat", "answer stream agent"),
)

LLAMA_INDEX: Final = Client(
    name="llama_index",
    title="LlamaIndex",
    base_url=OPENAI_URL,
    settings="`OpenAILike` or `OpenAILikeResponses` with `api_base=…`, `is_chat_model=True`,"
    " `is_function_calling_model=True`",
    scenarios=_in("chat responses", "answer stream structured agent"),
)

AUTOGEN: Final = Client(
    name="autogen",
    title="AutoGen",
    base_url=OPENAI_URL,
    settings="`OpenAIChatCompletionClient(base_url=…, model_info=…)`",
    scenarios=_in("chat", "answer stream agent structured team"),
)

CREWAI: Final = Client(
    name="crewai",
    title="CrewAI",
    base_url=OPENAI_URL,
    settings='`LLM(model="openai/podium", base_url=…, api_key=…)`',
    environment="crewai",
    scenarios=_in("chat", "call crew crew-tool"),
)

AIDER: Final = Client(
    name="aider",
    title="aider",
    base_url=BOTH_URLS,
    settings="`OPENAI_API_BASE` and `--model openai/podium`, or `ANTHROPIC_API_BASE` and"
    " `--model anthropic/podium`",
    environment="aider",
    scenarios=_in("chat", "edit edit-stream") | _in("messages", "edit"),
)

_STATUSES: Final = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 503)

HTTP: Final = Client(
    name="http",
    title="plain HTTP (curl)",
    base_url=BOTH_URLS,
    settings="`Authorization: Bearer …` or `x-api-key: …`",
    scenarios={
        **_in(
            "chat",
            "key-reasoning-details key-reasoning-content key-provider-fields key-id"
            " key-created-at key-cache-control image-url-text content-null assistant-content-null"
            " functions-empty tools-null unknown-top-level developer-role system-later"
            " name-of-user",
        ),
        **_all("responses/truncation-disabled", "responses/key-unknown", "messages/key-unknown"),
        **{f"chat/error-{status}": ("worker", "podium") for status in _STATUSES},
        **{
            f"{dialect}/error-{status}": WORKER
            for dialect in ("responses", "messages")
            for status in (400, 429)
        },
        **dict.fromkeys(
            (
                *("chat/http-head-models", "chat/http-head-root", "chat/http-health"),
                *("chat/http-models", "chat/http-cors-off"),
            ),
            WORKER,
        ),
        **dict.fromkeys(
            ("chat/http-no-embeddings", "chat/http-no-completions", "chat/http-no-moderations"),
            ("podium",),
        ),
        "chat/http-idempotency-key": TIERS,
        **_in(
            "responses",
            "http-fetch http-input-items http-delete http-previous-unknown http-item-unknown",
        ),
        "responses/http-background": TIERS,
    },
)

OPENAI_NODE: Final = Client(
    name="openai_node",
    title="OpenAI SDK (Node.js)",
    base_url=OPENAI_URL,
    settings="`new OpenAI({baseURL: …, apiKey: …})`",
    environment="npm",
    scenarios={
        **_in("chat", "answer stream run-tools structured five-turns"),
        **_in("responses", "answer stream tools"),
    },
)

ANTHROPIC_NODE: Final = Client(
    name="anthropic_node",
    title="Anthropic SDK (Node.js)",
    base_url=ANTHROPIC_URL,
    settings="`new Anthropic({baseURL: …, apiKey: …})`",
    caveats="the base URL is without `/v1`",
    environment="npm",
    scenarios=_in("messages", "answer stream five-turns"),
)

AI_SDK: Final = Client(
    name="ai_sdk",
    title="Vercel AI SDK",
    base_url=OPENAI_URL,
    settings="`createOpenAICompatible({baseURL: …, supportsStructuredOutputs: true})`,"
    " `createOpenAI({baseURL: …})` (Responses; `.chat(…)` for Chat Completions),"
    " `createAnthropic({baseURL: …})`",
    caveats="for Messages, too, the base URL ends in `/v1`",
    environment="npm",
    scenarios=_all(
        *(
            f"{provider}-{name}"
            for provider in (
                *("chat/compatible", "chat/openai", "responses/openai", "messages/anthropic"),
            )
            for name in (
                *("answer", "stream", "tools", "stream-tools", "object", "stream-object"),
                *("output-with-tools", "five-turns"),
            )
        )
    ),
)

CODEX: Final = Client(
    name="codex",
    title="Codex",
    base_url=OPENAI_URL,
    settings="a `[model_providers.podium]` in `~/.codex/config.toml`:"
    " see [coding agents](serving.md#coding-agents)",
    environment="npm",
    is_repeatable=False,
    scenarios=_in("responses", "answer write-file"),
)

CLAUDE_CODE: Final = Client(
    name="claude_code",
    title="Claude Code",
    base_url=ANTHROPIC_URL,
    settings="`ANTHROPIC_BASE_URL`, `ANTHROPIC_AUTH_TOKEN`, `ANTHROPIC_MODEL`:"
    " see [coding agents](serving.md#coding-agents)",
    caveats="the base URL is without `/v1`",
    environment="npm",
    is_repeatable=False,
    scenarios=_in("messages", "answer write-file"),
)

OPENCODE: Final = Client(
    name="opencode",
    title="opencode",
    base_url=OPENAI_URL,
    settings="a provider in `opencode.json`: see [coding agents](serving.md#coding-agents)",
    environment="npm",
    is_repeatable=False,
    scenarios=_in("chat", "answer write-file"),
)

QWEN_CODE: Final = Client(
    name="qwen_code",
    title="Qwen Code",
    base_url=OPENAI_URL,
    settings="`OPENAI_BASE_URL`, `OPENAI_API_KEY`, `OPENAI_MODEL` and `--auth-type openai`",
    environment="npm",
    is_repeatable=False,
    scenarios=_in("chat", "answer write-file"),
)

CLIENTS: Final[tuple[Client, ...]] = (
    *(OPENAI, ANTHROPIC, LANGGRAPH, OPENAI_AGENTS, LITELLM, PYDANTIC_AI, INSTRUCTOR, LLM, DSPY),
    *(SMOLAGENTS, LLAMA_INDEX, AUTOGEN, CREWAI, AIDER, HTTP),
    *(OPENAI_NODE, ANTHROPIC_NODE, AI_SDK, CODEX, CLAUDE_CODE, OPENCODE, QWEN_CODE),
)


def cases() -> Iterator[Case]:
    """Yield every case of every client."""
    for client in CLIENTS:
        for scenario, tiers in client.scenarios.items():
            for tier in tiers:
                yield Case(client, scenario, tier)
