// What the scenarios share: a browser whose tabs wait for what is asserted, and the built binary (server.mjs).

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import puppeteer from "puppeteer-core";
import { PATIENCE, Server, until } from "./server.mjs";

export { until };

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** In the page: has `drawn` wait for the view of another address, where that differs only behind its `#`. The browser
 * says that it is there before the page has drawn it, and shows the one before for so long. */
function expectAnother(address) {
  const another = new Promise((resolve) =>
    addEventListener("hashchange", () => setTimeout(resolve), { once: true }),
  );
  globalThis.drawn = address === location.href ? undefined : another;
}

/** In the page: `hit` is what the next click is on. */
function hear() {
  globalThis.hit = undefined;
  const listen = ({ target }) => {
    globalThis.hit = target.closest("a, button")?.textContent.replace(/\s+/g, " ").trim();
  };
  addEventListener("click", listen, { capture: true, once: true });
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

  /** Opens an address, and waits until its view is drawn and no other is. */
  async open(server, address = "#/") {
    this.origin = new URL(server.url).origin;
    const { href } = new URL(address, server.url);
    await this.page.evaluate(expectAnother, href);
    await this.page.goto(href);
    await this.page.evaluate(() => globalThis.drawn);
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

  /** Clicks what has this role and name, of several the one that fits the selector, and waits for where a link leads.
   * What is drawn anew just then can move away from under the pointer: it is clicked again, as a reader does. */
  async click(role, name, selector = `::-p-aria([name="${name}"][role="${role}"])`) {
    let hit;
    await until(`${name} is under the pointer`, async () => {
      await this.page.evaluate(expectAnother, "");
      await this.page.evaluate(hear);
      await this.page.locator(selector).click();
      hit = await this.page.evaluate(() => globalThis.hit);
      return hit !== undefined;
    });
    assert.equal(hit, name, "what was clicked");
    if (role === "link") await this.page.evaluate(() => globalThis.drawn);
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

  /** Goes by the Tab key to what has this name, as a reader without a mouse does. */
  async tabTo(name) {
    const isThere = () =>
      this.page.evaluate((wanted) => {
        const { activeElement } = document;
        const label = activeElement.labels?.[0] ?? activeElement;
        return label.innerText.trim() === wanted;
      }, name);
    for (let presses = 0; !(await isThere()); presses += 1) {
      assert.ok(presses < 100, `${name} is not reached by the Tab key`);
      await this.page.keyboard.press("Tab");
    }
  }

  /** The text of what fits a selector, in one line, as soon as there is any. */
  async line(selector) {
    const found = await this.page.waitForFunction(
      (selector) => document.querySelector(selector)?.textContent.replace(/\s+/g, " ").trim(),
      { polling: 50 },
      selector,
    );
    return found.jsonValue();
  }

  /** Waits until that line is this text, or fits this pattern. */
  async says(selector, wanted) {
    let line;
    await until(
      () => `${selector} does not say ${wanted}, but ${line}`,
      async () => {
        line = await this.line(selector);
        return wanted instanceof RegExp ? wanted.test(line) : line === wanted;
      },
    );
  }

  /** Waits until what fits a selector has these texts, in any order. */
  async lists(selector, wanted) {
    let seen;
    const read = (parts) => parts.map((part) => part.innerText.replace(/\s+/g, " ").trim()).sort();
    await until(
      () => `${selector} does not list ${JSON.stringify(wanted)}, but ${JSON.stringify(seen)}`,
      async () => {
        seen = await this.page.$$eval(selector, read);
        return isDeepStrictEqual(seen, [...wanted].sort());
      },
    );
  }

  /** What the page's main thread computed in its longest task meanwhile, in milliseconds. What other processes take from
   * the machine is not counted. */
  async longestTask(run) {
    const categories = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"];
    await this.page.tracing.start({ categories });
    await run();
    const { traceEvents } = JSON.parse(new TextDecoder().decode(await this.page.tracing.stop()));
    const thread = ({ pid, tid }) => `${pid} ${tid}`;
    const isMain = ({ name, args }) => name === "thread_name" && args.name === "CrRendererMain";
    const main = new Set(traceEvents.filter(isMain).map(thread));
    const tasks = traceEvents.filter((it) => it.name === "RunTask" && it.tdur && main.has(thread(it)));
    assert.ok(tasks.length > 100, `${tasks.length} tasks`);
    return tasks.reduce((most, { tdur }) => Math.max(most, tdur / 1000), 0);
  }

  /** Keeps a picture, where pictures are kept. */
  async picture(name, fullPage = false) {
    const folder = process.env.TIDEGATE_SCREENSHOTS;
    if (!folder) return;
    mkdirSync(folder, { recursive: true });
    // One that is hidden is not drawn.
    await this.page.bringToFront();
    await this.page.evaluate(() => scrollTo(0, 0));
    await this.page.screenshot({ path: join(folder, `${name}.png`), fullPage });
  }

  /** The same by day and by night. */
  async pictures(name, fullPage = false) {
    for (const value of process.env.TIDEGATE_SCREENSHOTS ? ["dark", "light"] : []) {
      await this.page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
      await this.picture(`${name}-${value}`, fullPage);
    }
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

  /** Has this path answered so, and not by the server. */
  async answers(path, status, body) {
    await this.page.setRequestInterception(true);
    this.page.on("request", (request) => {
      if (new URL(request.url()).pathname !== path) return request.continue({}, 0);
      return request.respond({ status, contentType: "application/json", body: JSON.stringify(body) }, 1);
    });
  }

  /** Waits until nothing is wider than the window: charts are drawn anew after it. */
  async fits(what) {
    let seen;
    await until(
      () => `${what} is ${seen.wide} wide in a window of ${seen.width}: ${seen.beyond.join(" | ")}`,
      async () => {
        seen = await this.page.evaluate(() => {
          const isBeyond = (part) =>
            part.getBoundingClientRect().right > innerWidth && !part.closest(".scroll *, nav *");
          const beyond = [...document.querySelectorAll("body *")].filter(isBeyond).slice(0, 9);
          return {
            wide: document.documentElement.scrollWidth,
            width: innerWidth,
            beyond: beyond.map((part) => part.outerHTML.slice(0, 80)),
          };
        });
        return seen.wide <= seen.width;
      },
    );
  }

  /** Waits until the name of the view that is shown is in sight, and marked. */
  async names(view) {
    let seen;
    await until(
      () => `${view}: its name is not in sight: ${JSON.stringify(seen)}`,
      async () => {
        seen = await this.page.$$eval("nav [aria-current=page]", (links) =>
          links.map((link) => {
            const { left, right } = link.getBoundingClientRect();
            return { text: link.innerText, left, right, width: innerWidth };
          }),
        );
        return seen.length === 1 && seen[0].left >= 0 && seen[0].right <= seen[0].width;
      },
    );
  }

  isClean() {
    assert.deepEqual(this.wrong, [], "errors in the browser");
  }
}

/** Has the page's own files come from this folder and not from the binary, while somebody works at them. */
async function fromFolder(page, folder) {
  await page.setRequestInterception(true);
  page.on("request", async (request) => {
    const { pathname } = new URL(request.url());
    // A proxy may have them under a path of its own.
    const last = pathname.split("/").at(-1);
    const name = { "": "index.html", "console.js": "console.js", "console.css": "console.css" }[last];
    // Another answer to it goes before these.
    if (!name) return request.continue({}, 0);
    const contentType = { html: "text/html", js: "text/javascript", css: "text/css" }[name.split(".").at(-1)];
    await request.respond({ status: 200, contentType, body: readFileSync(join(folder, name), "utf8") }, 0);
  });
}

/** Runs a scenario in a browser of its own, and takes everything down at its end. */
export async function scenario(run) {
  const servers = [];
  const browser = await puppeteer.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    // It ends with this process, however that ends.
    pipe: true,
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
    timeout: 2 * PATIENCE,
    protocolTimeout: 2 * PATIENCE,
  });
  const tabs = [];
  const tools = {
    pid: browser.process().pid,
    server: () => {
      const server = new Server();
      servers.push(server);
      return server;
    },
    tab: async ({ width = 1280, height = 900, scheme = "light" } = {}) => {
      const page = await browser.newPage();
      await page.setViewport({ width, height });
      if (process.env.TIDEGATE_CONSOLE) await fromFolder(page, process.env.TIDEGATE_CONSOLE);
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
