"""Tools of other programs: the MCP servers that podium.toml names, as tools inside steps."""
