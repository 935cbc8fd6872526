// opencode, over Chat Completions.
import { codingAgent } from "./coding_agent.mjs";
import { main } from "./scenario.mjs";

codingAgent("chat", "opencode", (endpoint, prompt) => ({
  args: ["run", prompt],
  env: {
    OPENCODE_DISABLE_MODELS_FETCH: "1",
    OPENCODE_DISABLE_AUTOUPDATE: "1",
    OPENCODE_DISABLE_LSP_DOWNLOAD: "1",
  },
  files: {
    "project/opencode.json": JSON.stringify({
      provider: {
        podium: {
          npm: "@ai-sdk/openai-compatible",
          name: "Podium",
          options: { baseURL: endpoint.openai, apiKey: endpoint.key },
          models: { [endpoint.model]: { limit: { context: 200000, output: 32000 } } },
        },
      },
      permission: { bash: "allow", edit: "allow" },
      model: `podium/${endpoint.model}`,
      small_model: `podium/${endpoint.model}`,
    }),
  },
}));
main();
