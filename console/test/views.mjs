// Every view with what a running server has: on a desk, on telephones and on a wide screen, on each by day and by night; no
// rule of axe is broken, nothing is wider than the window, and nothing is asked of another server.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer as createHttp } from "node:http";
import { connect, createServer } from "node:net";
import { scenario } from "./support.mjs";

/** Somebody who answers, for the gateway and the edge; its address. */
async function listening(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `127.0.0.1:${server.address().port}`;
}

const fileOf = ([one, two], [rio, dublin]) => `
gateway.listener = [{ listen = "127.0.0.1:0" }]
edge.listener = [{ listen = "127.0.0.1:0" }]
edge.place = [
  { networks = ["127.0.0.0/16"], country = "BR", region = "sa" },
  { networks = ["127.1.0.0/16"], country = "IE", region = "eu" },
]
edge.backend = [
  { name = "rio", address = "${rio}", country = "BR", region = "sa" },
  { name = "dublin", address = "${dublin}", country = "IE", region = "eu" },
]
policy = [
  { name = "per-client", limit = 100, window_seconds = 3600 },
  { name = "writes", algorithm = "token_bucket", limit = 60, window_seconds = 60, burst = 20, match = { resource = "orders" } },
  { name = "trial", limit = 10, window_seconds = 3600, mode = "shadow" },
]

[[upstream]]
name = "app"
servers = ["http://${one}", "http://${two}"]
breaker = { seconds = 5, open_seconds = 2 }

[[route]]
name = "api"
path = "/api/*"
upstream = "app"
policies = ["per-client"]
`;

const BREAKER =
  "Breaker: judges the calls of the last 5 s, once there are 20; opens for 1 s, and for up to 2 s while trials fail, when 50 % failed, or 50 % took over 3 s.";

/** Each view, and what it shows of what the server has. */
const VIEWS = [
  [
    "overview",
    "#/",
    [
      "Requests per second",
      "servers 2 of 2 in use",
      "Gateway, requests",
      "Most denied clients",
      "user123 under per-client",
      "under trial shadow",
      "revision 4 in force",
    ],
  ],
  [
    "client",
    "#/clients?id=user123",
    ["user123 is denied by the policy per-client", "would deny", "2 policies do not apply"],
  ],
  [
    "clients",
    "#/clients",
    ["With limits of their own", "shop-7", "Nearest to a limit", "user123 under per-client"],
  ],
  [
    "policies",
    "#/policies",
    ["4 policies", "60 per 60 s, burst 20", "shadow", "the file", "stored by the API"],
  ],
  ["policy", "#/policies/writes", ["token bucket", "resource = orders", "Verdicts per second", "History"]],
  ["playground", "#/playground?limit=10&window=10&pattern=edge", ["fixed window", "20 of 20", "10 of 20"]],
  [
    "gateway",
    "#/gateway?path=%2Fapi%2Fx",
    [
      "1 route",
      "none of its own",
      "upstream app",
      "The route api takes it",
      "next server is",
      BREAKER,
      "in its window",
    ],
  ],
  ["keys", "#/keys", ["There is none.", "No policy has tiers."]],
  [
    "edge",
    "#/edge?client_ip=127.0.0.1",
    [
      "Connections per second",
      "Bytes per second",
      "2 backends",
      "rio",
      "dublin",
      "2 regions",
      "1 of 1 serve",
      "tier country, score 0",
    ],
  ],
  ["intake", "#/intake", ["Metrics per second", "JSON", "The log"]],
  [
    "configuration",
    "#/configuration?find=listen",
    ["settings, as the process started with them", "TIDEGATE_HTTP_LISTEN"],
  ],
  ["saturation", "#/saturation", ["No report is open."]],
  ["logs", "#/logs", ["since the process began"]],
  ["audit", "#/audit", ["created limits of client shop-7", "changed policy nightly"]],
];

/** Each as it is opened. Those that are the only one of their size are then switched from day to night, or back. */
const SCREENS = [
  ["light", { width: 1280, scheme: "light" }],
  ["dark", { width: 1280, scheme: "dark" }],
  ["desk", { width: 1440, scheme: "dark" }],
  ["phone", { width: 320, height: 640, scheme: "light" }],
  ["large phone", { width: 390, height: 844, scheme: "dark" }],
  ["wide", { width: 3840, height: 2160, scheme: "dark" }],
];

/** The size that is opened by day and by night, where axe looks at the colours of both. */
const BY_BOTH = ["light", "dark"];

/** The views of which pictures are kept: what is in the others is made by scenarios of their own, the overview by picture.mjs. */
const PICTURES = [
  "client",
  "clients",
  "policies",
  "policy",
  "playground",
  "gateway",
  "edge",
  "audit",
  "configuration",
];
const KEPT = ["light", "dark", "phone"];
/** How long there are requests before the first picture, in milliseconds: the charts show five minutes at most. */
const BEFORE = 75_000;

const isPictured = process.env.TIDEGATE_SCREENSHOTS !== undefined;

/** Requests of every kind until it is over, some of them denied, so that there is something to see. */
async function busy(service, isOver) {
  const began = Date.now();
  for (let n = 0, seconds = 0; !isOver(); n += 1) {
    // By day more than by night, in a few minutes.
    const much = 1.5 + Math.sin((Date.now() - began) / 20_000);
    await service.spend(`visitor-${n % 900}`, Math.ceil(much * (1 + (n % 3))));
    await service.spend("user123", 1);
    await service.spend(`workshop-${n % 5}`, 1, { resource: "orders" });
    await send(service, [{ name: "cpu.usage", value: 60 + 30 * Math.sin(n / 50) }]);
    await new Promise((resolve) => setTimeout(resolve, 10));
    if (Date.now() < began + 1000 * seconds) continue;
    seconds += 1;
    for (const path of ["/api/orders", "/api/users", seconds % 9 === 0 ? "/old" : "/api/carts"])
      await (await fetch(`http://${service.gateway}${path}/${n}`)).text();
    await visit(service.edge, `127.${seconds % 3 === 0 ? 0 : 1}.0.${1 + (seconds % 200)}`);
  }
}

const send = (service, metrics) =>
  fetch(`http://${service.intake}/metrics`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ metrics }),
  });

/** A connection to the edge, from that address, and what its backend said. */
function visit(edge, localAddress = "127.0.0.1") {
  const { hostname: host, port } = new URL(`tcp://${edge}`);
  return new Promise((resolve, reject) => {
    let said = "";
    connect({ port: Number(port), host, localAddress })
      .on("data", (data) => {
        said += data;
      })
      .on("end", () => resolve(said))
      .on("error", reject);
  });
}

await scenario(async ({ server, tab }) => {
  const [one, two] = ["one", "two"].map(() => createHttp((_, reply) => reply.end("ok")));
  const [rio, dublin] = ["rio", "dublin"].map((name) =>
    createServer((socket) => {
      // A check of its health only connects.
      socket.on("error", () => {});
      socket.end(name);
    }),
  );
  try {
    const upstreams = [await listening(one), await listening(two)];
    const backends = [await listening(rio), await listening(dublin)];
    await looked(await server().configure(fileOf(upstreams, backends)).start(), tab);
  } finally {
    for (const server of [one, two, rio, dublin]) {
      server.closeAllConnections?.();
      server.close();
    }
  }
});

async function looked(service, tab) {
  await service.spend("user123", 208);
  await service.spend("shop-7", 60, { resource: "orders" });
  await service.ask("PUT", "/v1/clients/shop-7/limits", { "per-client": { limit: 500 } });
  // The gateway's client is none of those that are denied.
  const many = { "per-client": { limit: 4_000 } };
  assert.equal((await service.ask("PUT", "/v1/clients/127.0.0.1/limits", many)).status, 200);
  for (const limit of [5_000, 8_000]) {
    const nightly = {
      algorithm: "fixed_window",
      limit,
      window_seconds: 86_400,
      match: { resource: "reports" },
    };
    assert.equal((await service.ask("PUT", "/v1/policies/nightly", nightly)).status, 200);
  }
  assert.equal((await send(service, [{ name: "cpu.usage", value: 81.5 }])).status, 200);
  assert.equal(await visit(service.edge), "rio");
  let isOver = false;
  const traffic = isPictured ? busy(service, () => isOver) : undefined;
  for (const [screen, size] of SCREENS) {
    const page = await tab(size);
    if (isPictured && KEPT.includes(screen)) {
      await page.open(service, "#/");
      await new Promise((resolve) => setTimeout(resolve, BEFORE));
    }
    for (const [name, address, texts] of VIEWS) {
      await page.open(service, address);
      for (const text of texts) await page.shows(text);
      await page.fits(`${name}, ${screen}`);
      await page.names(name);
      await page.isAccessible(`${name}, ${screen}`);
      await isPlain(page, `${name}, ${screen}`);
      if (isPictured && PICTURES.includes(name) && KEPT.includes(screen)) {
        if (name === "gateway") await page.shows("GET /api/");
        await page.picture(`${name}-${screen}`);
      }
      if (isPictured && name === "overview" && screen === "light") await direction(page);
      if (screen === "light") await isReached(page, name);
      if (!BY_BOTH.includes(screen)) await isSwitched(page, name, size.scheme, `${name}, ${screen}`);
    }
    await page.page.close();
  }
  isOver = true;
  await traffic;

  // By keyboard alone: past the head to the content, and to another view.
  const page = await tab();
  await page.open(service, "#/policies");
  await page.shows("4 policies");
  await page.page.keyboard.press("Tab");
  const focused = () => page.page.evaluate(() => document.activeElement.textContent);
  assert.equal(await focused(), "To the content");
  await page.page.keyboard.press("Enter");
  assert.equal(await page.page.evaluate(() => document.activeElement.id), "main");
  await page.page.keyboard.press("Tab");
  await page.page.keyboard.type("writes");
  await page.shows("1 of 4 policies");
  assert.equal(new URL(page.page.url()).hash, "#/policies?find=writes");

  await chosen(page, service);
  await played(page, service);
}

/** The page as it is stays whole when the day ends, or the night: it has other colours, charts are drawn anew, nothing is
 * wider than the window, and all is told as before. */
async function isSwitched(page, view, scheme, what) {
  const [other, there] = [scheme === "dark" ? "light" : "dark", `${what}, switched`];
  const set = (value) => page.page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]);
  const colours = () =>
    page.page.evaluate(() => {
      const { color, backgroundColor } = getComputedStyle(document.body);
      return [color, backgroundColor];
    });
  const [before, drawn] = [await colours(), await chartColours(page)];
  // The page hears of it when it is drawn the next time, and charts do so before this.
  await page.page.evaluate(() => {
    globalThis.night = matchMedia("(prefers-color-scheme: dark)");
    globalThis.switched = new Promise((resolve) =>
      globalThis.night.addEventListener("change", () => resolve(), { once: true }),
    );
  });
  await set(other);
  await page.page.evaluate(() => globalThis.switched);
  const after = await colours();
  assert.ok(before[0] !== after[0] && before[1] !== after[1], `${there}: ${before}, ${after}`);
  const anew = await chartColours(page);
  const stale = drawn.filter((color, index) => color !== "" && color === anew[index]);
  assert.deepEqual(stale, [], `${there}: charts in the colours of before`);
  await page.fits(there);
  await page.names(view);
  await isPlain(page, there);
  await set(scheme);
}

/** The commonest colour of each chart, as pixels have it: no colour is that of the day and of the night. A chart on which
 * nothing is drawn has none. */
async function chartColours(page) {
  return page.page.$$eval(".chart canvas", (charts) =>
    charts.map((chart) => {
      const { width, height } = chart;
      if (width === 0 || height === 0) return "";
      // A copy, because a canvas whose pixels are read is drawn in another way from then on.
      const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
      copy.drawImage(chart, 0, 0);
      const { data } = copy.getImageData(0, 0, width, height);
      const counts = new Map();
      for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] < 255) continue;
        const color = `${data[at]} ${data[at + 1]} ${data[at + 2]}`;
        counts.set(color, (counts.get(color) ?? 0) + 1);
      }
      return [...counts].sort(([, one], [, other]) => other - one)[0]?.[0] ?? "";
    }),
  );
}

/** No colour is the only sign: what is good or bad has a sign and a word, and the lines of a chart are drawn in different
 * ways. Figures stand below one another, and only what shows a state moves. */
async function isPlain(page, what) {
  const [colours, figures, moving] = await page.page.evaluate(() => {
    const badges = [...document.querySelectorAll(".badge:not(.plain)")];
    const charts = [...document.querySelectorAll(".chart figcaption")];
    const isSigned = ({ innerText }) => /^[✓✕!]\s*\w/.test(innerText);
    const looks = (chart) => [...chart.querySelectorAll("i")].map((line) => line.style.borderTopStyle);
    const isTold = (chart) => new Set(looks(chart)).size === looks(chart).length;
    const colours = [...badges.filter((it) => !isSigned(it)), ...charts.filter((it) => !isTold(it))];
    const rules = ({ cssRules = [] }) => [...cssRules].flatMap((rule) => [rule, ...rules(rule)]);
    const isMoving = ({ style }) => style?.transition || style?.animation;
    const moving = [...document.styleSheets].flatMap(rules).filter(isMoving);
    return [
      colours.map((it) => it.outerHTML),
      getComputedStyle(document.body).fontVariantNumeric,
      moving.map(({ selectorText }) => selectorText),
    ];
  });
  assert.deepEqual([colours, figures, moving], [[], "tabular-nums", [".meter > span"]], what);
}

/** All that can be used is reached by the Tab key, and is seen to be. */
async function isReached(page, what) {
  const { length } = await page.page.evaluate(() => {
    const used = "a[href], button:enabled, input:enabled, select, textarea, summary, [tabindex='0']";
    const isThere = (it) => it.checkVisibility();
    globalThis.unreached = new Set([...document.querySelectorAll(used)].filter(isThere));
    globalThis.unseen = [];
    addEventListener("focusin", ({ target }) => {
      globalThis.unreached.delete(target);
      if (target.id !== "main" && getComputedStyle(target).outlineStyle === "none")
        globalThis.unseen.push(target.outerHTML);
    });
    return [...globalThis.unreached];
  });
  assert.ok(length > 10, `${what}: ${length} can be used`);
  const left = () =>
    page.page.evaluate(() =>
      [...globalThis.unreached].filter((it) => it.isConnected).map((it) => it.outerHTML),
    );
  // Those that a reading has brought meanwhile are not waited for.
  for (let rounds = 0; rounds < 3 && (await left()).length > 0; rounds += 1) {
    // Together: an answer for each would take longer than the key.
    const presses = Array.from({ length: length + 1 }, () => page.page.keyboard.press("Tab"));
    await Promise.all(presses);
  }
  assert.deepEqual(await left(), [], `${what}: not reached by the Tab key`);
  assert.deepEqual(await page.page.evaluate(() => globalThis.unseen), [], `${what}: no sign of the focus`);
}

/** The look that was not kept, and how much of the overview is in sight with either. */
async function direction(page) {
  const inSight = () =>
    page.page.$$eval("main h2, main tbody tr, main ol > li, main .stat, main .health > li", (parts) => {
      const bottoms = parts.map((part) => part.getBoundingClientRect().bottom);
      return bottoms.filter((bottom) => bottom <= innerHeight).length;
    });
  const kept = await inSight();
  const rail = readFileSync(new URL("rail.css", import.meta.url), "utf8");
  const set = (css) =>
    page.page.evaluate((css) => {
      const sheet = new CSSStyleSheet();
      sheet.replaceSync(css);
      document.adoptedStyleSheets = [sheet];
    }, css);
  await set(rail);
  // The charts take the width that they have now.
  await page.page.evaluate(() => new Promise((done) => setTimeout(done, 500)));
  console.log(`in sight of the overview: ${kept} facts, with a rail ${await inSight()}`);
  await page.picture("overview-rail");
  await set("");
}

/** What is chosen in a view has an address, which marks it. */
async function chosen(page, service) {
  const marked = (selector) =>
    page.page.waitForFunction(
      (selector) => document.querySelector(`${selector}[aria-current=true]`)?.innerText,
      { polling: 50 },
      selector,
    );
  const text = async (selector) => (await marked(selector)).jsonValue();
  await page.open(service, "#/gateway");
  await page.click("link", "api");
  assert.match(await text("tr"), /^api/);
  assert.equal(new URL(page.page.url()).hash, "#/gateway?route=api");
  await page.isAccessible("a route that is chosen");
  await page.click("link", "upstream app");
  assert.match(await text("section"), /upstream app/);
  assert.equal(new URL(page.page.url()).hash, "#/gateway?upstream=app");
  await page.open(service, "#/edge");
  await page.click("link", "rio");
  assert.match(await text("tr"), /^rio/);
  assert.equal(new URL(page.page.url()).hash, "#/edge?backend=rio&app=default");
  await page.open(service, "#/audit");
  await page.click("link", "revision 1");
  assert.match(await text("li"), /created limits of client shop-7/);
  assert.equal(new URL(page.page.url()).hash, "#/audit?to=1&revision=1");
  await page.isAccessible("a change that is chosen");
}

/** The patterns of the playground, a click for a click, and one that is larger than anybody tries. */
async function played(page, service) {
  for (const [pattern, requests] of [
    ["steady", 45],
    ["burst", 40],
    ["cron", 36],
  ]) {
    await page.open(service, `#/playground?limit=10&window=10&pattern=${pattern}`);
    await page.shows(` of ${requests}`);
  }
  await page.open(service, "#/playground?limit=10&window=60&pattern=hand");
  await page.click("button", "Ask once");
  await page.shows("1 of 1");
  await page.click("button", "Ask once");
  await page.shows("2 of 2");
  const allowed = await page.page.$$eval(".panel p > b", (texts) => texts.map((text) => text.innerText));
  assert.deepEqual(allowed.slice(0, 4), Array(4).fill("2 of 2"));
  // The leaky bucket takes one in six seconds.
  assert.match(allowed[4], /^[12] of 2$/);
  // Permits, and a day, are there for both.
  assert.deepEqual(allowed.slice(5), ["2 of 2", "2 of 2"]);
  await page.open(service, "#/playground?limit=10&window=86400&lease=86400&pattern=edge");
  await page.shows("20 of 20");
  const tried = (algorithm) => page.line(`section:has([aria-label^="${algorithm}:"]) > p`);
  // The day begins between the two halves; a permit is held until the second half is over.
  assert.match(await tried("calendar"), /^20 of 20 allowed/);
  assert.match(await tried("concurrency"), /^10 of 20 allowed/);
  await page.open(service, "#/playground?limit=10&window=10&lease=1&pattern=edge");
  await page.shows("All of it is within one day.");
  assert.match(await tried("calendar"), /^10 of 20 allowed/);
  await page.open(service, "#/playground?limit=10&window=10&zone=nowhere");
  await page.says("[aria-invalid=true] + p", /accepted: /);
  await page.open(service, "#/playground?limit=1000000000&pattern=steady");
  await page.shows("The pattern has 4,500,000,000 requests; these are the first 2,000.");
  await page.shows("accepted: a whole number from 0 to 4096");
  await page.open(service, "#/playground?limit=1000&pattern=steady");
  await page.shows("The pattern has 4,500 requests; these are the first 2,000.");
  await page.shows(" of 2,000");
  await page.isAccessible("a pattern that is cut");
}
