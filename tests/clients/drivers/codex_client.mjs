// Codex, over Responses.
import { codingAgent } from "./coding_agent.mjs";
import { main } from "./scenario.mjs";

codingAgent("responses", "codex", (endpoint, prompt) => ({
  args: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt],
  env: { PODIUM_API_KEY: endpoint.key },
  files: {
    ".codex/config.toml": `
model = "${endpoint.model}"
model_provider = "podium"
model_context_window = 200000
web_search = "disabled"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.podium]
name = "Podium"
base_url = "${endpoint.openai}"
wire_api = "responses"
env_key = "PODIUM_API_KEY"
request_max_retries = 0
stream_max_retries = 0
`,
  },
}));
main();
