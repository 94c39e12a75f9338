// A report of the tester, opened in the page; and a file that is none.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
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
  const service = server();
  const data = join(service.folder, "data");
  await service.start({ TIDEGATE_DATA_DIR: data });
  const [good, bad, old] = ["report.json", "bad.json", "old.json"].map((name) => join(service.folder, name));
  writeFileSync(good, JSON.stringify(REPORT));
  writeFileSync(bad, "no report");
  writeFileSync(old, JSON.stringify({ ...REPORT, schema: "tidegate-report/1" }));
  const page = await tab();
  await page.page.emulateTimezone("Asia/Tokyo");
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
  // In the reader's zone, with UTC where the pointer rests.
  const time = ".stat time[datetime='2026-11-23T08:00:00.000Z'][title='2026-11-23 08:00:00 UTC']";
  await page.says(time, "2026-11-23 17:00:00");
  await page.isAccessible("one report");
  // A second one stands beside it, and the page is no wider for that on a telephone.
  await open(good);
  await page.page.waitForFunction(
    () => document.querySelectorAll("[aria-label='Levels of report.json']").length === 2,
  );
  await page.page.setViewport({ width: 320, height: 640 });
  await page.fits("two reports");
  assert.equal((await page.page.$$("[aria-label='Levels of report.json'] tbody tr")).length, 8);
  await page.click("button", "Close both");
  await page.shows("No report is open.");

  // Dropped onto the page, wherever on it.
  const drop = (name, content) =>
    page.page.evaluate(
      (name, content) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([content], name, { type: "application/json" }));
        const dropped = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
        document.querySelector("h1").dispatchEvent(dropped);
        return dropped.defaultPrevented;
      },
      name,
      content,
    );
  assert.equal(await drop("dropped.json", readFileSync(good, "utf8")), true, "the browser would open it");
  await page.shows("It keeps up 1,234 requests per second.");
  assert.equal((await page.page.$$("[aria-label='Levels of dropped.json'] tbody tr")).length, 4);
  await page.click("button", "Close it");

  // Two of the server, by an address that can be sent to somebody, and what differs.
  const faster = {
    ...REPORT,
    capacity: { ...REPORT.capacity, throughput: 2468, interval: { low: 2400, high: 2520 } },
    levels: REPORT.levels.map((level) => ({ ...level, throughput: 2 * level.throughput })),
  };
  const folder = join(data, "saturation");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "a.json"), JSON.stringify(REPORT));
  writeFileSync(join(folder, "b.json"), JSON.stringify(faster));
  await page.page.setViewport({ width: 1280, height: 900 });
  await page.shows("b.json");
  await page.click("link", "a.json");
  await page.shows("It keeps up 1,234 requests per second.");
  await page.click("link", "compare with a.json");
  await page.shows("Compared");
  assert.equal(new URL(page.page.url()).hash, "#/saturation?report=a.json&with=b.json");
  const other = await tab({ width: 320, height: 640, scheme: "dark" });
  await other.open(service, "#/saturation?report=a.json&with=b.json");
  await other.shows("Compared");
  const compared = await other.page.$$eval("[aria-label=Compared] tbody tr", (rows) =>
    rows.map((row) => [...row.cells].map((cell) => cell.innerText)),
  );
  assert.deepEqual(compared.slice(0, 4), [
    ["Capacity", "1,234 /s (1,200 to 1,260)", "2,468 /s (2,400 to 2,520)", "+100 %"],
    ["Knee", "4", "4", "0 %"],
    ["Cause", "server-cpu", "server-cpu", "none"],
    ["Good /s at load 1", "400", "800", "+100 %"],
  ]);
  await other.fits("two compared on a telephone");
  await other.isAccessible("two compared, dark");
  // The same twice: no difference is made up.
  writeFileSync(join(folder, "c.json"), JSON.stringify(REPORT));
  await other.open(service, "#/saturation?report=a.json&with=c.json");
  await other.shows("none: their intervals overlap");
});
