// What the drivers of coding agents share: each asks one question, and has one file written.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { CAPITAL, scenario } from "./scenario.mjs";

/**
 * Register the scenarios of an agent. `prepare` returns its arguments and environment, and the
 * files of its configuration by their paths in the project or in the home directory.
 */
export function codingAgent(dialect, program, prepare) {
  const run = (endpoint, prompt) => {
    const home = mkdtempSync(join(process.env.HOME, "agent-"));
    const project = join(home, "project");
    mkdirSync(project);
    const { args, env = {}, files = {} } = prepare(endpoint, prompt);
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(home, name)), { recursive: true });
      writeFileSync(join(home, name), text);
    }
    const done = spawnSync(join(process.env.CLIENTS_NPM, "node_modules", ".bin", program), args, {
      cwd: project,
      env: { PATH: process.env.PATH, HOME: home, NO_PROXY: "*", ...env },
      encoding: "utf8",
      input: "",
      timeout: 150_000,
    });
    if (done.error) throw done.error;
    process.stderr.write(`${done.stdout}\n${done.stderr}\n`);
    const written = readdirSync(project).filter(
      (name) => name.endsWith(".txt") && statSync(join(project, name)).isFile(),
    );
    return {
      status: done.status,
      text: done.stdout,
      files: Object.fromEntries(
        written.map((name) => [name, readFileSync(join(project, name), "utf8")]),
      ),
    };
  };

  scenario(`${dialect}/answer`, async (endpoint) => {
    const { status, text } = run(endpoint, CAPITAL);
    return [status, text.includes("Paris is the capital of France.")];
  });

  scenario(`${dialect}/write-file`, async (endpoint) => {
    const { status, files } = run(endpoint, "Create the file hello.txt");
    return [status, files];
  });
}
