// The real server, and servers that misbehave, for the tests.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { request } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setImmediate as turn } from "node:timers/promises";

/** The repository's folder `clients`: the tests run from a copy beside the installed package. */
export const CLIENTS = process.env.TIDEGATE_CLIENTS ?? join(import.meta.dirname, "../..");
const BINARY = process.env.TIDEGATE_BIN ?? join(CLIENTS, "../target/debug/tidegate");
export const CONFORMANCE = JSON.parse(readFileSync(join(CLIENTS, "conformance.json"), "utf8"));
export const TOKEN = CONFORMANCE.options.token;
/** How long what has to come may take on a machine that stops threads for a second. */
const PATIENCE_MS = 20_000;

/** Calls until the result is true. */
export async function until(condition) {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    const result = await condition();
    if (result) return result;
    assert(performance.now() < end, "it did not come true in time");
    await turn();
  }
}

/** The first line of a program's output that matches. */
async function said(child, pattern) {
  for await (const line of createInterface({ input: child.stdout })) {
    const found = pattern.exec(line);
    if (found) return found[1];
  }
  throw new Error(`a program ended without saying ${pattern}`);
}

async function end(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill("SIGKILL");
  await exit;
}

/** `tidegate serve` on free ports, which can be frozen, killed and started again. */
export class Server {
  #config;
  #arguments;
  #scratch = mkdtempSync(join(tmpdir(), "tidegate-"));
  #process;
  port = 0;
  /** What it says of each request, if it was started with `--log-level debug`. */
  log = join(this.#scratch, "log");

  constructor(config = join(CLIENTS, "conformance.toml"), extra = []) {
    this.#config = config ? ["--config", config] : [];
    this.#arguments = extra;
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  async start() {
    const free = "127.0.0.1:0";
    const log = openSync(this.log, "a");
    this.#process = spawn(
      BINARY,
      [
        ...["serve", ...this.#config, "--data-dir", join(this.#scratch, "data")],
        ...[
          "--http-listen",
          `127.0.0.1:${this.port}`,
          "--grpc-listen",
          free,
          "--resp-listen",
          free,
          "--intake-listen",
          "off",
        ],
        ...this.#arguments,
      ],
      { stdio: ["ignore", "pipe", log] },
    );
    closeSync(log);
    this.port = Number(await said(this.#process, /decision API +https?:\/\/127\.0\.0\.1:(\d+)/));
    return this;
  }

  async freeze() {
    const { pid } = this.#process;
    process.kill(pid, "SIGSTOP");
    // The signal is delivered when every thread has stopped.
    await until(() => readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1).startsWith("T"));
  }

  thaw() {
    this.#process.kill("SIGCONT");
  }

  kill() {
    return end(this.#process);
  }

  async close() {
    await this.kill();
    rmSync(this.#scratch, { recursive: true });
  }
}

/** A server for a block. */
export async function withServer(use, config, extra) {
  const server = new Server(config, extra);
  try {
    return await use(await server.start());
  } finally {
    await server.close();
  }
}

/** The URL of a server that misbehaves, and what heals it, for a block. */
export async function withFault(fault, use) {
  const child = spawn("python3", [join(CLIENTS, "faulty.py"), fault], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  try {
    return await use(`http://${await said(child, /listening (\S+)/)}`, { heal: () => child.kill("SIGUSR1") });
  } finally {
    await end(child);
  }
}

/** The URL of a port at which nobody listens any more, for a block. */
export async function withNothing(use) {
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const { port } = listener.address();
  listener.close();
  await once(listener, "close");
  return use(`http://127.0.0.1:${port}`);
}

/** A response: its fields, its status and its body. */
export async function get(port, path, client, { method = "GET", headers = {} } = {}) {
  const asked = request({
    port,
    host: "127.0.0.1",
    path,
    method,
    agent: false,
    headers: client === undefined ? headers : { ...headers, "x-client": client },
  });
  asked.end();
  const [response] = await once(asked, "response");
  response.setEncoding("utf8");
  let body = "";
  for await (const piece of response) body += piece;
  const isProblem = response.headers["content-type"] === "application/problem+json";
  return { ...response.headers, status: response.statusCode, body, problem: isProblem && JSON.parse(body) };
}

async function takeOne(own, port, step) {
  if (step.do) return own[step.do]();
  const ask = async () => differs(step.expect, await get(port, step.path, text(step.client), step));
  for (let time = 0; time < (step.times ?? 1); time += 1) {
    if (step.until) await until(async () => (await ask()) === "");
    else assert.equal(await ask(), "", JSON.stringify(step));
  }
}

/** Makes the requests of conformance.json's middleware steps, and expects what they say. */
export async function takeRequests(own, port, steps) {
  for (const step of steps) await takeOne(own, port, step);
}

/** A value of conformance.json with its repeated texts written out. */
export function text(value) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  if ("repeat" in value) return value.repeat.repeat(value.times) + (value.then ?? "");
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, text(item)]));
}

/** Where a result is not as expected; empty if it is. */
export function differs(expected, found, at = "") {
  const shown = JSON.stringify(found);
  if (Array.isArray(expected)) {
    if (!Array.isArray(found) || found.length !== expected.length) {
      return `${at}: ${shown} is no list of ${expected.length}`;
    }
    return expected.map((one, n) => differs(one, found[n], `${at}[${n}]`)).find(Boolean) ?? "";
  }
  if (typeof expected !== "object" || expected === null) {
    return expected === found ? "" : `${at}: ${shown}, not ${JSON.stringify(expected)}`;
  }
  const absent = found === undefined || found === null;
  if ("absent" in expected) return absent ? "" : `${at}: ${shown} is there`;
  if ("present" in expected) return absent ? `${at}: is absent` : "";
  if ("one_of" in expected) return expected.one_of.includes(found) ? "" : `${at}: ${shown} is none of them`;
  if ("from" in expected || "to" in expected) {
    const { from = -Infinity, to = Infinity } = expected;
    const inside = !absent && Number(found) >= from && Number(found) <= to;
    return inside ? "" : `${at}: ${shown} is not in ${JSON.stringify(expected)}`;
  }
  if (typeof found !== "object" || absent) return `${at}: ${shown} is no object`;
  const names = Object.keys(expected);
  return names.map((name) => differs(expected[name], found[name], `${at}.${name}`)).find(Boolean) ?? "";
}

/** snake_case to camelCase, in the names of objects. */
export function camel(value) {
  if (Array.isArray(value)) return value.map(camel);
  if (typeof value !== "object" || value === null) return value;
  const name = (given) => given.replace(/[_-]([a-z])/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(value).map(([given, item]) => [name(given), camel(item)]));
}

/** camelCase to snake_case, in the names of objects. */
export function snake(value) {
  if (Array.isArray(value)) return value.map(snake);
  if (typeof value !== "object" || value === null) return value;
  const name = (given) => given.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(Object.entries(value).map(([given, item]) => [name(given), snake(item)]));
}
