// Qwen Code, over Chat Completions.
import { codingAgent } from "./coding_agent.mjs";
import { main } from "./scenario.mjs";

codingAgent("chat", "qwen", (endpoint, prompt) => ({
  args: ["--auth-type", "openai", "--approval-mode", "yolo", "-p", prompt],
  env: {
    OPENAI_BASE_URL: endpoint.openai,
    OPENAI_API_KEY: endpoint.key,
    OPENAI_MODEL: endpoint.model,
  },
  files: {
    ".qwen/settings.json": JSON.stringify({
      privacy: { usageStatisticsEnabled: false },
      telemetry: { enabled: false },
      general: { disableAutoUpdate: true, disableUpdateNag: true },
    }),
  },
}));
main();
