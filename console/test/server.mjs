// The built binary, started in a folder of its own, and waiting for what it does.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** Longest wait for what must become so, on a machine that is busy. */
export const PATIENCE = 60_000;

/** Waits until it holds; `what` says what, or is asked when it never did. */
export async function until(what, holds) {
  const deadline = Date.now() + PATIENCE;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, typeof what === "function" ? what() : what);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** A running `tidegate serve` in a folder of its own. */
export class Server {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "tidegate-console-"));
    this.http = "127.0.0.1:0";
    this.admin = undefined;
  }

  /** Writes the configuration file, which is in force from the next start or SIGHUP on. */
  configure(text) {
    this.file = join(this.folder, "tidegate.toml");
    writeFileSync(this.file, text);
    return this;
  }

  /** Starts it, at the port that it had before if it had one. */
  async start(environment = {}) {
    const listen = Object.fromEntries(
      ["GRPC", "RESP", "INTAKE", "EDGE_API"].map((it) => [`TIDEGATE_${it}_LISTEN`, "127.0.0.1:0"]),
    );
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("TIDEGATE_"));
    const env = {
      ...Object.fromEntries(inherited),
      ...listen,
      TIDEGATE_HTTP_LISTEN: this.http,
      ...environment,
    };
    const arguments_ = this.file ? ["serve", "--config", this.file] : ["serve"];
    const stdio = ["ignore", "pipe", "pipe"];
    this.process = spawn(process.env.TIDEGATE_BIN, arguments_, { cwd: this.folder, env, stdio });
    this.ended = new Promise((resolve) => this.process.once("exit", resolve));
    let said = "";
    this.process.stderr.on("data", (data) => {
      said += data;
    });
    await new Promise((resolve, reject) => {
      this.process.stdout.on("data", (data) => {
        said += data;
        if (said.includes("try it:")) resolve();
      });
      this.ended.then(() => reject(new Error(`tidegate did not start: ${said}`)));
    });
    const address = (label) => new RegExp(`^  ${label} +\\w+://(\\S+)`, "m").exec(said)?.[1];
    this.http = address("decision API");
    this.intake = address("intake");
    this.edge = address("edge");
    this.grpc = address("gRPC");
    this.resp = address("RESP");
    this.gateway = address("gateway");
    this.url = `http://${this.http}`;
    this.said = () => said;
    return this;
  }

  /** Waits until the log says this; the match. */
  async logged(pattern) {
    await until(`the log says ${pattern}`, () => pattern.test(this.said()));
    return pattern.exec(this.said());
  }

  async stop(signal = "SIGKILL") {
    this.process?.kill(signal);
    await this.ended;
  }

  async remove() {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** A request; its status and body. */
  async ask(method, path, body, headers = {}) {
    const type = body === undefined ? {} : { "content-type": "application/json" };
    const sent = { method, headers: { ...type, ...headers }, body: body && JSON.stringify(body) };
    const reply = await fetch(new URL(path, this.url), sent);
    const text = await reply.text();
    const isJson = /json/.test(reply.headers.get("content-type") ?? "");
    return { status: reply.status, body: isJson ? JSON.parse(text) : text, etag: reply.headers.get("etag") };
  }

  /** Runs a command in its folder, as who copies it from the page does; what was answered. */
  async shell(command, environment = {}) {
    const failing = `${command} --silent --show-error --fail-with-body`;
    const env = { ...process.env, ...environment };
    const ran = await promisify(execFile)("sh", ["-c", failing], { cwd: this.folder, env });
    return ran.stdout === "" ? undefined : JSON.parse(ran.stdout);
  }

  /** A value of the metrics page. */
  async metric(series) {
    const { body } = await this.ask("GET", "/metrics");
    return Number(
      body
        .split("\n")
        .find((line) => line.startsWith(`${series} `))
        ?.slice(series.length),
    );
  }

  /** Lets a client ask so many times; how many of them were denied. */
  async spend(client, times, more = {}) {
    let denied = 0;
    for (let n = 0; n < times; n += 1) {
      const { body } = await this.ask("POST", "/api/v1/ratelimit", {
        client_id: client,
        resource: "api",
        ...more,
      });
      denied += body.allowed ? 0 : 1;
    }
    return denied;
  }
}
