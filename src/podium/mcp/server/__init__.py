"""Podium as tools of other programs: ask and plan, for MCP clients."""
