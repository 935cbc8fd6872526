"""Workers: hosted vendors, local models, test doubles, MCP tools and the program sandbox."""

from podium.workers.endpoints import KNOWN_ENDPOINTS, Endpoint, connect
from podium.workers.function import FunctionWorker, worker
from podium.workers.http import Http
from podium.workers.scripted import ScriptedWorker

__all__ = [
    "KNOWN_ENDPOINTS",
    "Endpoint",
    "FunctionWorker",
    "Http",
    "ScriptedWorker",
    "connect",
    "worker",
]
