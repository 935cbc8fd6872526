// The Vercel AI SDK with its OpenAI, OpenAI-compatible and Anthropic providers.
import { CAPITAL, CITIES, WEATHER, load, main, scenario, weatherOf } from "./scenario.mjs";

const { Output, generateObject, generateText, stepCountIs, streamObject, streamText, tool } =
  load("ai");
const { createOpenAI } = load("@ai-sdk/openai");
const { createOpenAICompatible } = load("@ai-sdk/openai-compatible");
const { createAnthropic } = load("@ai-sdk/anthropic");
const { z } = load("zod");

const person = z.object({ name: z.string(), age: z.number().int() });
const tools = {
  get_weather: tool({
    description: "The weather",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => weatherOf(city),
  }),
};

const PROVIDERS = {
  "chat/compatible": (endpoint) =>
    createOpenAICompatible({
      name: "podium",
      baseURL: endpoint.openai,
      apiKey: endpoint.key,
      supportsStructuredOutputs: true,
    })(endpoint.model),
  "chat/openai": (endpoint) =>
    createOpenAI({ baseURL: endpoint.openai, apiKey: endpoint.key }).chat(endpoint.model),
  "responses/openai": (endpoint) =>
    createOpenAI({ baseURL: endpoint.openai, apiKey: endpoint.key })(endpoint.model),
  "messages/anthropic": (endpoint) =>
    createAnthropic({ baseURL: endpoint.openai, apiKey: endpoint.key })(endpoint.model),
};

const shown = (result) =>
  result.steps.map((step) => [
    step.text,
    step.toolCalls.map((call) => [call.toolName, call.input]),
    step.toolResults.map((each) => each.output),
  ]);

for (const [prefix, modelOf] of Object.entries(PROVIDERS)) {
  const common = { maxRetries: 0 };

  scenario(`${prefix}-answer`, async (endpoint) => {
    const result = await generateText({
      ...common,
      model: modelOf(endpoint),
      system: "Your name is Berta.",
      prompt: CAPITAL,
    });
    return [result.text, result.finishReason];
  });

  scenario(`${prefix}-stream`, async (endpoint) => {
    const result = streamText({ ...common, model: modelOf(endpoint), prompt: CAPITAL });
    const pieces = [];
    for await (const piece of result.textStream) pieces.push(piece);
    return [pieces.join(""), pieces.length > 1];
  });

  scenario(`${prefix}-tools`, async (endpoint) =>
    shown(
      await generateText({
        ...common,
        model: modelOf(endpoint),
        tools,
        stopWhen: stepCountIs(5),
        prompt: WEATHER,
      }),
    ),
  );

  scenario(`${prefix}-stream-tools`, async (endpoint) => {
    const result = streamText({
      ...common,
      model: modelOf(endpoint),
      tools,
      stopWhen: stepCountIs(5),
      prompt: WEATHER,
    });
    await result.consumeStream();
    return shown({ steps: await result.steps });
  });

  scenario(`${prefix}-stream-object`, async (endpoint) => {
    const result = streamObject({
      ...common,
      model: modelOf(endpoint),
      schema: person,
      prompt: "Describe Ada.",
    });
    let last;
    for await (const partial of result.partialObjectStream) last = partial;
    return [last, await result.object];
  });

  scenario(`${prefix}-object`, async (endpoint) => {
    const model = modelOf(endpoint);
    const result = await generateObject({
      ...common,
      model,
      schema: person,
      prompt: "Describe Ada.",
    });
    return result.object;
  });

  scenario(`${prefix}-output-with-tools`, async (endpoint) => {
    const result = await generateText({
      ...common,
      model: modelOf(endpoint),
      tools,
      stopWhen: stepCountIs(5),
      output: Output.object({ schema: person }),
      prompt: WEATHER,
    });
    return [result.output, result.steps.length];
  });

  scenario(`${prefix}-five-turns`, async (endpoint) => {
    const messages = [];
    const said = [];
    for (const city of CITIES) {
      messages.push({ role: "user", content: `What is the weather in ${city}?` });
      const result = await generateText({
        ...common,
        model: modelOf(endpoint),
        system: "Your name is Berta.",
        tools,
        stopWhen: stepCountIs(5),
        messages,
      });
      messages.push(...result.response.messages);
      said.push(shown(result));
    }
    return said;
  });
}

main();
