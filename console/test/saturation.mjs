// A report of the tester, opened in the page; and a file that is none.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { scenario } from "./support.mjs";

const level = (load, throughput, zone) => ({
  load,
  throughput,
  p50_us: 900,
  p99_us: 4_000 * load,
  error_ratio: 0,
  denied_ratio: 0.25,
  zone,
  cause: "server-cpu",
});

const REPORT = {
  schema: "tidegate-report/2",
  version: "0.1.0",
  target: "http://127.0.0.1:3000/",
  started: "2026-11-23T08:00:00Z",
  conclusion: { sentence: "It keeps up 1,234 requests per second.", advice: "<b>Give it another core.</b>" },
  capacity: { throughput: 1234, interval: { low: 1200, high: 1260 }, load: 4, repeats: 3, bound: "reached" },
  knee: { concurrency: 4 },
  cause: { name: "server-cpu", summary: "The server's cores are used up.", evidence: ["98 % of 2 cores"] },
  levels: [
    level(1, 400, "optimal"),
    level(2, 800, "optimal"),
    level(4, 1234, "optimal"),
    level(8, 1210, "stressed"),
  ],
};

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  const [good, bad, old] = ["report.json", "bad.json", "old.json"].map((name) => join(service.folder, name));
  writeFileSync(good, JSON.stringify(REPORT));
  writeFileSync(bad, "no report");
  writeFileSync(old, JSON.stringify({ ...REPORT, schema: "tidegate-report/1" }));
  const page = await tab();
  await page.open(service, "#/saturation");
  const open = async (...files) => {
    const field = await page.page.waitForSelector("#reports");
    await field.uploadFile(...files);
  };
  await open(bad);
  await page.shows("bad.json is not JSON.");
  await open(old);
  await page.shows("old.json has the schema tidegate-report/1; what is read here is tidegate-report/2.");
  await open(good);
  await page.shows("It keeps up 1,234 requests per second.");
  await page.shows("<b>Give it another core.</b>");
  await page.shows("1,200 to 1,260");
  await page.isAccessible("one report");
  // A second one stands beside it, and the page is no wider for that on a telephone.
  await open(good);
  await page.page.waitForFunction(() => document.querySelectorAll(".grid > .panel").length === 2);
  await page.page.setViewport({ width: 320, height: 640 });
  await page.fits("two reports");
  assert.equal((await page.page.$$("table tbody tr")).length, 8);
});
