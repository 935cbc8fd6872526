"""Configuration: from a file, or else from the environment, to settings with no secret in them.

    settings = await discover_settings(os.environ)
    endpoint = settings["gpt-5"].endpoint(os.environ)

The form of the file is `schema`, what it means is `resolve`, what comes of it is `settings`.
"""

from podium.config.current import discover_settings
from podium.config.environment import discover_ollama
from podium.config.files import load
from podium.config.guardrails import GuardrailSettings
from podium.config.resolve import choose_conductor
from podium.config.sections import RouterSettings
from podium.config.settings import (
    ConductorSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    WorkerSettings,
)
from podium.workers.mcp import McpSettings

__all__ = [
    "ConductorSettings",
    "GuardrailSettings",
    "McpSettings",
    "RouterSettings",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "WorkerSettings",
    "choose_conductor",
    "discover_ollama",
    "discover_settings",
    "load",
]
