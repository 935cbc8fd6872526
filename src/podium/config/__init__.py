"""Configuration: from a file, or else from the environment, to settings with no secret in them.

    settings = await current_settings(os.environ)
    endpoint = settings["gpt-5"].endpoint(os.environ)

The form of the file is `schema`, what it means is `resolve`, what comes of it is `settings`.
"""

from podium.config.current import current_settings
from podium.config.environment import discover_ollama
from podium.config.files import load
from podium.config.guardrails import GuardrailSettings
from podium.config.sections import McpSettings, MiniSettings
from podium.config.settings import (
    ConductorSettings,
    ServerSettings,
    Settings,
    StoreSettings,
    WorkerSettings,
)

__all__ = [
    "ConductorSettings",
    "GuardrailSettings",
    "McpSettings",
    "MiniSettings",
    "ServerSettings",
    "Settings",
    "StoreSettings",
    "WorkerSettings",
    "current_settings",
    "discover_ollama",
    "load",
]
