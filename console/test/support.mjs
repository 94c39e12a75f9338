// What the scenarios share: the built binary, a browser, and waiting for what is asserted.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import puppeteer from "puppeteer-core";

/** Longest wait for what must become so, on a machine that is busy. */
const PATIENCE = 60_000;

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

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
      ["GRPC", "RESP", "INTAKE"].map((it) => [`TIDEGATE_${it}_LISTEN`, "127.0.0.1:0"]),
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
    this.gateway = address("gateway");
    this.url = `http://${this.http}`;
    return this;
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

/** A tab that remembers what went wrong in it. */
export class Tab {
  constructor(page) {
    this.page = page;
    this.wrong = [];
    page.setDefaultTimeout(PATIENCE);
    page.on("pageerror", (error) => this.wrong.push(`error: ${error.message}`));
    page.on("console", (message) => {
      // Requests that fail are the server's to explain, and the page shows it.
      const isNoise = /Failed to load resource|net::ERR_/.test(message.text());
      if (["error", "warn"].includes(message.type()) && !isNoise) this.wrong.push(message.text());
    });
    page.on("request", (request) => {
      const { origin } = new URL(request.url());
      if (this.origin && origin !== this.origin && origin !== "null")
        this.wrong.push(`asks ${request.url()}`);
    });
  }

  async open(server, address = "#/") {
    this.origin = server.url;
    await this.page.goto(new URL(address, server.url).href);
  }

  /** Waits until the page shows this. */
  async shows(text) {
    try {
      await this.page.waitForFunction(
        (wanted) => document.body.innerText.includes(wanted),
        { polling: 50 },
        text,
      );
    } catch (error) {
      throw new Error(`the page does not show ${JSON.stringify(text)}, but:\n${await this.text()}`, {
        cause: error,
      });
    }
  }

  /** Waits until the page shows this no longer. */
  async hides(text) {
    await this.page.waitForFunction(
      (wanted) => !document.body.innerText.includes(wanted),
      { polling: 50 },
      text,
    );
  }

  text() {
    return this.page.evaluate(() => document.body.innerText);
  }

  /** Clicks what has this role and name. */
  async click(role, name) {
    await this.page.locator(`::-p-aria([name="${name}"][role="${role}"])`).click();
  }

  /** The field of this label. */
  async field(label) {
    const found = await this.page.waitForFunction(
      (wanted) =>
        [...document.querySelectorAll("label")].find((it) => it.innerText.trim() === wanted)?.control,
      { polling: 50 },
      label,
    );
    return found.asElement();
  }

  /** Types into the field of this label, in the place of what is there. */
  async fill(label, text) {
    const field = await this.field(label);
    await field.evaluate((element) => {
      element.focus();
      element.select();
    });
    await this.page.keyboard.press("Backspace");
    await this.page.keyboard.type(text);
  }

  async choose(label, value) {
    const field = await this.field(label);
    await field.select(value);
  }

  /** Every rule of axe holds. */
  async isAccessible(what) {
    // The page's own policy keeps scripts out; this one comes by the debugger.
    await this.page.evaluate(AXE);
    const found = await this.page.evaluate(async () => {
      const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
      return violations.map(
        ({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join(" | ")}`,
      );
    });
    assert.deepEqual(found, [], `axe, ${what}`);
  }

  /** Nothing is wider than the window. */
  async fits(what) {
    const [wide, width] = await this.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= width, `${what} is ${wide} wide in a window of ${width}`);
  }

  isClean() {
    assert.deepEqual(this.wrong, [], "errors in the browser");
  }
}

/** Runs a scenario in a browser of its own, and takes everything down at its end. */
export async function scenario(run) {
  const servers = [];
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
    protocolTimeout: 2 * PATIENCE,
  });
  const tabs = [];
  const tools = {
    server: () => {
      const server = new Server();
      servers.push(server);
      return server;
    },
    tab: async ({ width = 1280, height = 900, scheme = "light" } = {}) => {
      const page = await browser.newPage();
      await page.setViewport({ width, height });
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      const tab = new Tab(page);
      tabs.push(tab);
      return tab;
    },
  };
  try {
    await run(tools);
    for (const tab of tabs) tab.isClean();
  } finally {
    await browser.close();
    for (const server of servers) await server.remove();
  }
}
