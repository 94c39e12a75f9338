// The overview after ten minutes of traffic in which one client of thirty asks too much: the picture of the README, by day,
// by night and on a telephone. All figures in it are what the server has counted: `cargo xtask console --pictures` sends for ten
// minutes. As a test it sends for some seconds, sees that nobody else is denied, and keeps no picture.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { scenario, until } from "./support.mjs";

/** How long there is traffic before the page is opened, in seconds. */
const SECONDS = Number(process.argv[2] ?? 6);
assert.ok(SECONDS >= 1 && SECONDS <= 3_600, "seconds of traffic, from 1 to 3600");

/** From so many seconds on, pictures are kept. */
const PICTURED = 600;
/** Requests per minute that each client may send. */
const LIMIT = 120;
const VISITORS = 29;
/** Who asks too much, from a third of the time on. */
const GREEDY = "crawler-7";
/** What it asks per second: twice its limit, and in a short time as much as denies it. */
const GREEDY_RATE = Math.max((2 * LIMIT) / 60, (4 * LIMIT) / SECONDS);
/** What the gateway is asked per second. */
const ROUTED_RATE = 4;
/** Between two rounds, in milliseconds. */
const ROUND = 100;
/** How long a swell of the traffic is, in seconds. */
const SWELL = 240;

const fileOf = (backend) => `
gateway.listener = [{ listen = "127.0.0.1:0" }]
policy = [
  { name = "per-client", limit = ${LIMIT}, window_seconds = 60 },
  { name = "orders", algorithm = "token_bucket", limit = 6000, window_seconds = 60, burst = 500, match = { resource = "orders" } },
]

[[upstream]]
name = "shop"
servers = ["http://${backend}"]

[[route]]
name = "shop"
path = "/*"
upstream = "shop"
policies = ["per-client"]
`;

/** Those who ask: how often per second, at most LIMIT a minute even on a swell. */
const clients = Array.from({ length: VISITORS }, (_, n) => ({
  id: `visitor-${n + 1}`,
  resource: n % 4 === 0 ? "orders" : "api",
  rate: 0.3 + (0.9 * ((n * 7) % VISITORS)) / VISITORS,
  due: 0,
}));

/** Sends what is due until it is over: decisions of all clients, and requests of the gateway's one. Resolves to the number of
 * decisions that were asked for. */
async function traffic(service, isOver) {
  const began = Date.now();
  const greedy = { id: GREEDY, resource: "api", rate: GREEDY_RATE, due: 0 };
  let [last, asked, routed] = [began, 0, 0];
  while (!isOver()) {
    const now = Date.now();
    // What was not sent while the machine stood still is not made up for at once.
    const [past, passed] = [(now - began) / 1000, Math.min((now - last) / 1000, 1)];
    last = now;
    const swell = 1 + 0.3 * Math.sin((2 * Math.PI * past) / SWELL);
    const there = past > SECONDS / 3 ? [...clients, greedy] : clients;
    const sent = there.flatMap((client) => {
      client.due += client.rate * passed * (client === greedy ? 1 : swell);
      const whole = Math.floor(client.due);
      client.due -= whole;
      asked += whole;
      return Array.from({ length: whole }, () => service.spend(client.id, 1, { resource: client.resource }));
    });
    for (; routed < ROUTED_RATE * past; routed += 1)
      sent.push(fetch(`http://${service.gateway}/items/${routed % 50}`).then((reply) => reply.text()));
    await Promise.all(sent);
    await new Promise((resolve) => setTimeout(resolve, Math.max(ROUND - (Date.now() - now), 1)));
  }
  return asked;
}

/** Clients that were denied. */
async function denied(service) {
  const { body } = await service.ask("GET", "/v1/denied-clients");
  return body.map(({ client_id }) => client_id);
}

await scenario(async ({ server, tab }) => {
  const shop = createServer((_, reply) => reply.end("ok"));
  await new Promise((resolve) => shop.listen(0, "127.0.0.1", resolve));
  let isOver = false;
  try {
    const backend = `127.0.0.1:${shop.address().port}`;
    const service = await server().configure(fileOf(backend)).start();
    // The gateway's one client, which is this machine, stands for many.
    const own = { "per-client": { limit: 4_000 } };
    assert.equal((await service.ask("PUT", "/v1/clients/127.0.0.1/limits", own)).status, 200);
    const sending = traffic(service, () => isOver);
    // A failure is told by the one who waits for it below.
    sending.catch(() => {});
    await Promise.race([sending, new Promise((resolve) => setTimeout(resolve, 1000 * SECONDS))]);
    await until(`${GREEDY} is denied`, async () => (await denied(service)).includes(GREEDY));
    const address = SECONDS >= PICTURED ? "#/?last=ten" : "#/";
    for (const [screen, size] of [
      ["light", { width: 1280, scheme: "light" }],
      ["dark", { width: 1280, scheme: "dark" }],
      ["phone", { width: 320, height: 640, scheme: "light" }],
    ]) {
      const page = await tab(size);
      await page.open(service, address);
      await page.shows("in the last 10 s");
      await page.shows(`${GREEDY} under per-client`);
      await page.says(".now .stat:nth-child(2) b", /^[1-9][\d.]* %$/);
      await page.fits(`the overview, ${screen}`);
      if (SECONDS >= PICTURED) await page.picture(`overview-${screen}`);
      await page.page.close();
    }
    assert.deepEqual(await denied(service), [GREEDY], "nobody else is denied");
    isOver = true;
    const asked = await sending;
    console.log(
      `${asked} decisions in ${SECONDS} s and while the pictures were taken, ${GREEDY} alone was denied`,
    );
  } finally {
    isOver = true;
    shop.closeAllConnections();
    shop.close();
  }
});
