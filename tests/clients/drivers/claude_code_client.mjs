// Claude Code, over Messages.
import { codingAgent } from "./coding_agent.mjs";
import { main } from "./scenario.mjs";

codingAgent("messages", "claude", (endpoint, prompt) => ({
  args: ["-p", prompt, "--allowedTools", "Bash"],
  env: {
    ANTHROPIC_BASE_URL: endpoint.url,
    ANTHROPIC_AUTH_TOKEN: endpoint.key,
    ANTHROPIC_MODEL: endpoint.model,
    ANTHROPIC_DEFAULT_HAIKU_MODEL: endpoint.model,
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    CLAUDE_CODE_MAX_RETRIES: "0",
    DISABLE_AUTOUPDATER: "1",
  },
}));
main();
