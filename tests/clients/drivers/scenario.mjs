// What the drivers for Node.js share; as scenario.py.
import { createRequire } from "node:module";
import { readFileSync, writeSync } from "node:fs";

const require = createRequire(`${process.env.CLIENTS_NPM}/package.json`);
const scenarios = new Map();

export const CAPITAL = "What is the capital of France?";
export const CITIES = ["Paris", "Rome", "Oslo", "Lima", "Cairo"];
export const WEATHER = "What is the weather in Paris?";
export const CITY_SCHEMA = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
export const KEY = "pk_any_text";

/** Load a package of the clients' environment. */
export const load = (name) => require(name);

export const weatherOf = (city) => `sunny, 21 degrees in ${city}`;

/** Register a function that drives the client. It returns what the client ended with. */
export function scenario(name, run) {
  scenarios.set(name, run);
}

/** What a client ended with, and ids that must all differ. */
export class Transcript {
  constructor(said, ids = []) {
    this.said = said;
    this.ids = ids;
  }
}

async function recorded() {
  const response = await fetch(`${process.env.UPSTREAM_URL}/recorded`, { method: "POST" });
  return await response.json();
}

/** Carry out the runs that standard input lists. */
export async function main() {
  console.log = console.info = console.debug = console.error; // clients print there, too
  for (const run of JSON.parse(readFileSync(0, "utf8"))) {
    await recorded();
    const result = { scenario: run.scenario, tier: run.tier };
    const endpoint = { url: run.url, openai: `${run.url}/v1`, model: run.model, key: KEY };
    try {
      let found = await scenarios.get(run.scenario)(endpoint);
      if (!(found instanceof Transcript)) found = new Transcript(found);
      result.said = JSON.parse(JSON.stringify(found.said ?? null));
      result.ids = found.ids;
    } catch (error) {
      const detail = error?.responseBody ?? error?.cause?.message ?? "";
      result.error = `${error?.name}: ${error?.message} ${detail}`.slice(0, 2000);
    }
    result.sent = await recorded();
    const line = Buffer.from(`${JSON.stringify(result)}\n`);
    for (let at = 0; at < line.length; ) at += writeSync(1, line, at);
  }
  process.exit(0);
}
