// The OpenAI SDK for Node.js.
import {
  CAPITAL,
  CITIES,
  CITY_SCHEMA,
  Transcript,
  WEATHER,
  load,
  main,
  scenario,
  weatherOf,
} from "./scenario.mjs";

const { OpenAI } = load("openai");
const { zodResponseFormat } = load("openai/helpers/zod");
const { z } = load("zod");

const PARAMETERS = { name: "get_weather", description: "The weather", parameters: CITY_SCHEMA };
const TOOL = { type: "function", function: PARAMETERS };
const FLAT_TOOL = { type: "function", strict: false, ...PARAMETERS };
const Person = z.object({ name: z.string(), age: z.number().int() });

const clientOf = (endpoint) =>
  new OpenAI({ baseURL: endpoint.openai, apiKey: endpoint.key, maxRetries: 0, timeout: 20_000 });

const shown = (message) => [
  message.role,
  message.content ?? "",
  (message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]),
];

scenario("chat/answer", async (endpoint) => {
  const found = await clientOf(endpoint).chat.completions.create({
    model: endpoint.model,
    messages: [
      { role: "system", content: "Your name is Berta." },
      { role: "user", content: CAPITAL },
    ],
  });
  return shown(found.choices[0].message);
});

scenario("chat/stream", async (endpoint) => {
  const stream = clientOf(endpoint).chat.completions.stream({
    model: endpoint.model,
    messages: [{ role: "user", content: CAPITAL }],
  });
  let pieces = 0;
  for await (const chunk of stream) pieces += Boolean(chunk.choices[0]?.delta?.content);
  return [shown((await stream.finalChatCompletion()).choices[0].message), pieces > 1];
});

scenario("chat/run-tools", async (endpoint) => {
  const runner = clientOf(endpoint).chat.completions.runTools({
    model: endpoint.model,
    messages: [{ role: "user", content: WEATHER }],
    tools: [
      {
        type: "function",
        function: {
          ...PARAMETERS,
          parse: JSON.parse,
          function: ({ city }) => weatherOf(city),
        },
      },
    ],
  });
  const text = await runner.finalContent();
  return [text, runner.messages.map((message) => message.role)];
});

scenario("chat/structured", async (endpoint) => {
  const found = await clientOf(endpoint).chat.completions.parse({
    model: endpoint.model,
    messages: [{ role: "user", content: "Describe Ada." }],
    response_format: zodResponseFormat(Person, "person"),
  });
  return found.choices[0].message.parsed;
});

scenario("chat/five-turns", async (endpoint) => {
  const client = clientOf(endpoint);
  const messages = [];
  const ids = [];
  for (const city of CITIES) {
    messages.push({ role: "user", content: `What is the weather in ${city}?` });
    for (let turn = 0; turn < 4; turn += 1) {
      const found = await client.chat.completions.create({
        model: endpoint.model,
        messages,
        tools: [TOOL],
      });
      const message = found.choices[0].message;
      ids.push(found.id);
      messages.push(message);
      for (const call of message.tool_calls ?? [])
        messages.push({ role: "tool", tool_call_id: call.id, content: weatherOf(city) });
      if (!message.tool_calls?.length) break;
    }
  }
  return new Transcript(messages.map(shown), ids);
});

const outputOf = (found) =>
  found.output
    .filter((item) => item.type !== "reasoning")
    .map((item) =>
      item.type === "function_call" ? [item.name, item.arguments] : item.content[0].text,
    );

scenario("responses/answer", async (endpoint) => {
  const found = await clientOf(endpoint).responses.create({
    model: endpoint.model,
    instructions: "Your name is Berta.",
    input: CAPITAL,
  });
  return [outputOf(found), found.output_text];
});

scenario("responses/stream", async (endpoint) => {
  const stream = clientOf(endpoint).responses.stream({ model: endpoint.model, input: CAPITAL });
  let pieces = 0;
  for await (const event of stream) pieces += event.type === "response.output_text.delta";
  return [outputOf(await stream.finalResponse()), pieces > 1];
});

scenario("responses/tools", async (endpoint) => {
  const client = clientOf(endpoint);
  const question = { role: "user", content: WEATHER };
  const first = await client.responses.create({
    model: endpoint.model,
    input: [question],
    tools: [FLAT_TOOL],
  });
  const results = first.output
    .filter((item) => item.type === "function_call")
    .map((item) => ({
      type: "function_call_output",
      call_id: item.call_id,
      output: weatherOf("Paris"),
    }));
  const second = await client.responses.create({
    model: endpoint.model,
    input: [question, ...first.output, ...results],
    tools: [FLAT_TOOL],
  });
  return new Transcript([outputOf(first), outputOf(second)], [first.id, second.id]);
});

main();
