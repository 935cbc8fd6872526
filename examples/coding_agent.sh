#!/bin/sh
# Codex and Claude Code on Podium: writes Codex's configuration into the directory CODEX_HOME and
# prints what Claude Code needs. `podium serve` must run; PODIUM_KEY is a key made by `podium keys
# create`, if the server asks for one.
set -eu
address=${PODIUM_URL:-http://127.0.0.1:7755}
home=${CODEX_HOME:-$HOME/.codex}
curl --silent --show-error --fail "$address/v1/models" \
    --header "Authorization: Bearer ${PODIUM_KEY:-none}" >/dev/null
mkdir -p "$home"
[ ! -e "$home/config.toml" ] || { echo "$home/config.toml exists and is not overwritten" >&2; exit 1; }
cat >"$home/config.toml" <<TOML
model = "podium"
model_provider = "podium"

[model_providers.podium]
name = "Podium"
base_url = "$address/v1"
env_key = "PODIUM_KEY"
wire_api = "responses"
TOML
echo "wrote $home/config.toml: start codex"
echo "ANTHROPIC_BASE_URL=$address ANTHROPIC_AUTH_TOKEN=${PODIUM_KEY:-none} ANTHROPIC_MODEL=podium claude"
