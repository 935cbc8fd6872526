"""Configuration: from a file, else from the environment, to settings with no secret in them.

    settings = await discover_settings(os.environ)
    endpoint = settings["gpt-5"].endpoint(os.environ)

`schema` is the form of the file, `settings` fills in what it leaves out, `sources` finds it.
"""

from podium.config.guardrails import GuardrailSettings
from podium.config.schema import ServerSettings, StoreSettings
from podium.config.settings import (
    ConductorSettings,
    RouterSettings,
    Settings,
    WorkerSettings,
    choose_conductor,
)
from podium.config.sources import discover_ollama, discover_settings, load
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
