// The Anthropic SDK for Node.js.
import {
  CAPITAL,
  CITIES,
  CITY_SCHEMA,
  Transcript,
  load,
  main,
  scenario,
  weatherOf,
} from "./scenario.mjs";

const { Anthropic } = load("@anthropic-ai/sdk");
const TOOL = { name: "get_weather", description: "The weather", input_schema: CITY_SCHEMA };

const clientOf = (endpoint) =>
  new Anthropic({ baseURL: endpoint.url, apiKey: endpoint.key, maxRetries: 0, timeout: 20_000 });

const shown = (message) => [
  message.content
    .filter((block) => block.type !== "thinking")
    .map((block) => (block.type === "text" ? block.text : [block.name, block.input])),
  message.stop_reason,
];

scenario("messages/answer", async (endpoint) =>
  shown(
    await clientOf(endpoint).messages.create({
      model: endpoint.model,
      max_tokens: 500,
      system: "Your name is Berta.",
      messages: [{ role: "user", content: CAPITAL }],
    }),
  ),
);

scenario("messages/stream", async (endpoint) => {
  const stream = clientOf(endpoint).messages.stream({
    model: endpoint.model,
    max_tokens: 500,
    messages: [{ role: "user", content: CAPITAL }],
  });
  let pieces = 0;
  stream.on("text", () => (pieces += 1));
  return [shown(await stream.finalMessage()), pieces > 1];
});

scenario("messages/five-turns", async (endpoint) => {
  const client = clientOf(endpoint);
  const messages = [];
  const said = [];
  const ids = [];
  for (const city of CITIES) {
    messages.push({ role: "user", content: `What is the weather in ${city}?` });
    for (let turn = 0; turn < 4; turn += 1) {
      const found = await client.messages.create({
        model: endpoint.model,
        max_tokens: 500,
        messages,
        tools: [TOOL],
      });
      ids.push(found.id);
      said.push(shown(found));
      messages.push({ role: "assistant", content: found.content });
      const results = found.content
        .filter((block) => block.type === "tool_use")
        .map((block) => ({
          type: "tool_result",
          tool_use_id: block.id,
          content: weatherOf(city),
        }));
      if (!results.length) break;
      messages.push({ role: "user", content: results });
    }
  }
  return new Transcript(said, ids);
});

main();
