// What came of a metric, asked in the page: drawn, by an address that can be sent to somebody; and the oldest line.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createSocket } from "node:dgram";
import { scenario, until } from "./support.mjs";

const TOKEN = "the-secret-of-the-reader";
const DIGEST = createHash("sha256").update(TOKEN).digest("hex");

await scenario(async ({ server, tab }) => {
  const service = await server()
    .configure(
      `intake.statsd_listen = "127.0.0.1:0"\n[[token]]\nname = "anna"\nscopes = ["read", "ingest"]\nsha256 = "${DIGEST}"\n`,
    )
    .start();
  const page = await tab();
  await page.open(service, "#/intake");
  await page.fill("Token", TOKEN);
  await page.click("button", "Sign in");
  await page.shows("Name a metric");
  const metrics = Array.from({ length: 40 }, (_, n) => ({
    name: "cpu.usage",
    value: 20 + n,
    tags: { host: n % 2 === 0 ? "a" : "b" },
    timestamp: new Date(Date.now() - 7_000 * (n + 1)).toISOString(),
  }));
  const send = async (metrics) => {
    const sent = await fetch(`http://${service.intake}/metrics`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${TOKEN}` },
      body: JSON.stringify({ metrics }),
    });
    assert.equal(sent.status, 200, await sent.text());
  };
  await send(metrics);
  await page.fill("Metric", "cpu.usage");
  await page.fill("Tags", "host=a");
  await page.choose("The last", "1h");
  await page.choose("As", "max");
  await page.click("button", "Ask");
  await page.shows("of 60 s; 40 lines");
  assert.equal(new URL(page.page.url()).hash, "#/intake?name=cpu.usage&last=1h&agg=max&tags=host%3Da");
  const told = () => page.page.$$eval("[role=img]", (drawn) => drawn.map(({ ariaLabel }) => ariaLabel));
  await until("the maxima are drawn", async () =>
    (await told()).some((label) => /^max of cpu.usage: \d+ points, from \d+ to 58;/.test(label)),
  );
  await page.isAccessible("a query");

  // By StatsD, whose rate stands in its row.
  const socket = createSocket("udp4");
  const [, host, port] = await service.logged(/StatsD over UDP and TCP.*?address="?([\d.]+):(\d+)/);
  const row = () =>
    page.page.$$eval("tbody tr", (rows) =>
      rows.map((row) => row.innerText).find((text) => /^StatsD/.test(text)),
    );
  await until("metrics by StatsD are counted in their row", async () => {
    socket.send("jobs.done:1|c", Number(port), host);
    return /^StatsD\s+[\d.,]+\s+[1-9]/.test((await row()) ?? "");
  });
  socket.close();
  // For a picture with something in it.
  const end = Date.now() + (process.env.TIDEGATE_SCREENSHOTS ? 40_000 : 0);
  while (Date.now() < end) await send([{ name: "memory.used", value: 1 }]);
  await page.pictures("intake", true);

  // Another tab, another screen: the address says it all, and the session is the browser's.
  const phone = await tab({ width: 320, height: 640, scheme: "dark" });
  await phone.open(service, new URL(page.page.url()).hash);
  await phone.shows("of 60 s; 40 lines");
  await phone.fits("a query on a telephone");
  await phone.isAccessible("a query, dark");
  await phone.picture("intake-phone", true);
  const oldest = await service.ask("GET", "/v1/intake/oldest", undefined, {
    authorization: `Bearer ${TOKEN}`,
  });
  const { line } = oldest.body.oldest[0];
  assert.equal(line.name, "cpu.usage");
  const shown = await page.page.evaluate(
    (iso) => new Date(iso).toLocaleString("sv", { dateStyle: "short", timeStyle: "medium" }),
    line.timestamp,
  );
  await page.page.bringToFront();
  await page.shows("Oldest line");
  await page.shows(shown);
  await page.open(service, "#/intake?name=no.such.metric");
  await page.shows("No line of no.such.metric has come in that time.");
  await page.open(service, "#/intake?name=cpu.usage&tags=host");
  await page.shows("the parameter tags must be name=value");
});
