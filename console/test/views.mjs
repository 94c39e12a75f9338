// Every view with what a running server has: by day, by night, on a telephone, on a wide screen; no rule of axe is
// broken, nothing is wider than the window, and nothing is asked of another server.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { scenario } from "./support.mjs";

const FILE = `
gateway.listener = [{ listen = "127.0.0.1:0" }]
edge.listener = [{ listen = "127.0.0.1:0" }]
edge.place = [{ networks = ["127.0.0.0/16"], country = "BR", region = "sa" }]
edge.backend = [
  { name = "rio", address = "127.0.0.1:9", country = "BR", region = "sa" },
  { name = "dublin", address = "127.0.0.1:10", country = "IE", region = "eu" },
]
policy = [
  { name = "per-client", limit = 100, window_seconds = 60 },
  { name = "writes", algorithm = "token_bucket", limit = 60, window_seconds = 60, burst = 20, match = { resource = "orders" } },
  { name = "trial", limit = 10, window_seconds = 60, mode = "shadow" },
]

[[upstream]]
name = "app"
servers = ["http://127.0.0.1:9", "http://127.0.0.1:10"]
breaker = { seconds = 5, open_seconds = 2 }

[[route]]
name = "api"
path = "/api/*"
upstream = "app"
policies = ["per-client"]
`;

/** Each view, and what it shows of what the server has. */
const VIEWS = [
  [
    "overview",
    "#/",
    ["Verdicts per second", "Most denied clients", "user123", "per-client", "revision 1 in force"],
  ],
  [
    "client",
    "#/clients?id=user123",
    ["user123 is denied by the policy per-client", "would deny", "1 policy does not apply"],
  ],
  ["clients", "#/clients", ["With limits of their own", "shop-7"]],
  ["policies", "#/policies", ["3 policies", "60 per 60 s, burst 20", "shadow", "the file"]],
  ["policy", "#/policies/writes", ["token bucket", "resource = orders", "History"]],
  ["playground", "#/playground?limit=10&window=10&pattern=edge", ["fixed window", "20 of 20", "10 of 20"]],
  ["gateway", "#/gateway?path=%2Fapi%2Fx", ["1 route", "upstream app", "127.0.0.1:9", "considered"]],
  ["edge", "#/edge?client_ip=127.0.0.1", ["2 backends", "rio", "dublin"]],
  ["intake", "#/intake", ["Metrics per second", "JSON", "The log"]],
  [
    "configuration",
    "#/configuration?find=http.listen",
    ["settings, as the process started with them", "TIDEGATE_HTTP_LISTEN"],
  ],
  ["saturation", "#/saturation", ["No report is open."]],
  ["logs", "#/logs", ["errors and", "warnings since the process began"]],
  ["audit", "#/audit", ["created limits of client shop-7"]],
];

const SCREENS = [
  ["light", { width: 1280, scheme: "light" }],
  ["dark", { width: 1280, scheme: "dark" }],
  ["phone", { width: 320, height: 640, scheme: "light" }],
  ["wide", { width: 3840, height: 2160, scheme: "dark" }],
];

/** The views of which pictures are kept, and on which screens. */
const PICTURES = { overview: ["light", "dark", "phone"], client: ["light"], playground: ["dark"] };

/** Takes a picture of the view after half a minute of requests, so that there is something to see. */
async function picture(service, page, path) {
  const end = Date.now() + 30_000;
  for (let n = 0; Date.now() < end; n += 1) {
    await service.spend(`client-${n % 400}`, 3 + (n % 7));
    await service.spend("user123", 2);
  }
  await page.page.screenshot({ path });
}

await scenario(async ({ server, tab }) => {
  const service = await server().configure(FILE).start();
  await service.spend("user123", 108);
  await service.spend("shop-7", 60, { resource: "orders" });
  await service.ask("PUT", "/v1/clients/shop-7/limits", { "per-client": { limit: 500 } });
  await fetch(`http://${service.intake}/metrics`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ metrics: [{ name: "cpu.usage", value: 81.5 }] }),
  });
  const folder = process.env.TIDEGATE_SCREENSHOTS;
  if (folder) mkdirSync(folder, { recursive: true });
  for (const [screen, size] of SCREENS) {
    const page = await tab(size);
    for (const [name, address, texts] of VIEWS) {
      await page.open(service, address);
      for (const text of texts) await page.shows(text);
      await page.fits(`${name}, ${screen}`);
      if (screen !== "wide") await page.isAccessible(`${name}, ${screen}`);
      if (folder && PICTURES[name]?.includes(screen))
        await picture(service, page, join(folder, `${name}-${screen}.png`));
    }
    await page.page.close();
  }

  // By keyboard alone: past the head to the content, and to another view.
  const page = await tab();
  await page.open(service, "#/policies");
  await page.shows("3 policies");
  await page.page.keyboard.press("Tab");
  const focused = () => page.page.evaluate(() => document.activeElement.textContent);
  assert.equal(await focused(), "To the content");
  await page.page.keyboard.press("Enter");
  assert.equal(await page.page.evaluate(() => document.activeElement.id), "main");
  await page.page.keyboard.press("Tab");
  await page.page.keyboard.type("writes");
  await page.shows("1 of 3 policies");
  assert.equal(new URL(page.page.url()).hash, "#/policies?find=writes");
});
