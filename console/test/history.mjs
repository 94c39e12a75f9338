// What was before the page was opened is drawn at once: the server keeps an hour of it. Where it keeps nothing, charts begin with
// the page, and nothing is wrong.

import assert from "node:assert/strict";
import { connect, createServer } from "node:net";
import { isDeepStrictEqual } from "node:util";
import { scenario, until } from "./support.mjs";

const fileOf = (backend) => `
gateway.listener = [{ listen = "127.0.0.1:0" }]
edge.listener = [{ listen = "127.0.0.1:0" }]
edge.backend = [{ name = "rio", address = "${backend}", region = "sa" }]
policy = [{ name = "per-client", limit = 100, window_seconds = 60 }]
route = [{ name = "everything", respond = { body = "ok" } }]
`;

/** What a view draws first. */
const CHART = "[role=img][aria-label*=' per second over the last ']";

/** From when on a chart has something, as the page says it. */
async function beginning(page) {
  const found = await page.page.waitForFunction(
    (chart) => /from ([\d:]+) on; now/.exec(document.querySelector(chart)?.ariaLabel)?.[1],
    { polling: 50 },
    CHART,
  );
  return found.jsonValue();
}

/** A time of day as the page writes it. */
const clock = (page, ms) =>
  page.page.evaluate((ms) => new Date(ms).toLocaleTimeString("sv", { timeStyle: "medium" }), ms);

const clocks = (page, times) => Promise.all(times.map((ms) => clock(page, ms)));

/** Waits until the first chart begins at that time. */
async function begins(page, ms, what) {
  const wanted = await clock(page, ms);
  let seen;
  await until(
    () => `${what}: it begins at ${seen}, and not at ${wanted}`,
    async () => {
      seen = await beginning(page);
      return seen === wanted;
    },
  );
}

/** A connection to the edge, until its backend has ended it. */
function visit(edge) {
  const { hostname: host, port } = new URL(`tcp://${edge}`);
  return new Promise((resolve, reject) => {
    connect({ host, port: Number(port) })
      .on("error", reject)
      .on("close", resolve)
      .resume();
  });
}

await scenario(async ({ server, tab }) => {
  const backend = createServer((socket) => {
    // A check of its health only connects.
    socket.on("error", () => {});
    socket.end("hello");
  });
  await new Promise((resolve) => backend.listen(0, "127.0.0.1", resolve));
  try {
    const service = server().configure(fileOf(`127.0.0.1:${backend.address().port}`));
    await drawn(await service.start(), tab);
  } finally {
    backend.close();
  }
});

async function drawn(service, tab) {
  await service.spend("user123", 7);
  for (let n = 0; n < 3; n += 1) await (await fetch(`http://${service.gateway}/${n}`)).text();
  for (let n = 0; n < 2; n += 1) await visit(service.edge);
  const counted = {
    'tidegate_requests_decided_total{protocol="http",result="allowed"}': 7,
    'tidegate_http_requests_total{server="gateway",status="2xx"}': 3,
    tidegate_edge_placed_total: 2,
    'tidegate_edge_bytes_total{direction="to_client"}': 2 * "hello".length,
  };
  let kept;
  let seen;
  await until(
    () => `two readings are kept, with what was asked: ${JSON.stringify(seen)}`,
    async () => {
      kept = (await service.ask("GET", "/v1/history")).body;
      const last = (kept.series ?? []).map(({ series, numbers }) => [series, numbers.at(-1)]);
      seen = Object.fromEntries(last.filter(([series]) => series in counted));
      return kept.at_unix_ms?.length > 1 && isDeepStrictEqual(seen, counted);
    },
  );
  const page = await tab();
  for (const address of ["#/", "#/gateway", "#/edge"]) {
    await page.open(service, address);
    await begins(page, kept.at_unix_ms[0], `the server's own past, ${address}`);
    await page.isAccessible(`charts with a past, ${address}`);
  }

  // An hour of it, as one that has run for longer has.
  const now = Date.now();
  const at_unix_ms = Array.from({ length: 361 }, (_, n) => now - 10_000 * (360 - n) - 1_000);
  const numbers = at_unix_ms.map((_, n) => Math.round(500 * n + 3_000 * Math.sin(n / 20)));
  const bucket = (le, numbers) => ({
    series: `tidegate_http_request_duration_seconds_bucket{le="${le}",server="api",route="/v1/check"}`,
    numbers,
  });
  const long = await tab();
  await long.answers("/v1/history", 200, {
    at_unix_ms,
    series: [
      { series: 'tidegate_requests_decided_total{protocol="http",result="allowed"}', numbers },
      bucket(
        "0.0001",
        numbers.map((number) => Math.round(0.7 * number)),
      ),
      bucket("0.001", numbers),
      bucket("+Inf", numbers),
    ],
  });
  await long.open(service, "#/?last=hour");
  await begins(long, at_unix_ms[3], "an hour");
  await long.pictures("overview-hour");
  await long.click("link", "The last five minutes");
  assert.equal(new URL(long.page.url()).hash, "#/");
  const last = await clocks(long, at_unix_ms.slice(-30, -24));
  await until("five minutes are drawn", async () => last.includes(await beginning(long)));

  const without = await tab();
  await without.answers("/v1/history", 404, { detail: "there is no history in this process" });
  await without.open(service, "#/");
  await without.shows("The last hour");
  const seconds = Array.from({ length: 120 }, (_, n) => now + 1000 * n);
  assert.ok((await clocks(without, seconds)).includes(await beginning(without)), "it begins with the page");
}
