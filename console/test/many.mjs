// 10,000 policies: only the rows in sight are drawn, finding one is at once, and the page stays usable.

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

const COUNT = 10_000;

await scenario(async ({ server, tab }) => {
  const policies = Array.from(
    { length: COUNT },
    (_, n) =>
      `[[policy]]\nname = "p${n}"\nlimit = ${(n % 4000) + 1}\nwindow_seconds = 60\nmatch = { path = "/p${n}" }\n`,
  );
  const service = await server().configure(policies.join("")).start();
  const page = await tab();
  await page.page.evaluateOnNewDocument(() => {
    globalThis.longest = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries())
        globalThis.longest = Math.max(globalThis.longest, entry.duration);
    }).observe({ type: "longtask", buffered: true });
  });
  await page.open(service, "#/policies");
  await page.shows("10,000 policies");
  const drawn = () =>
    page.page.$$eval("[role=rowgroup] [role=row]", (rows) => rows.map((row) => row.innerText.split(/\s/)[0]));
  assert.ok((await drawn()).length < 100, "only what is in sight");
  assert.equal((await drawn())[0], "p0");
  // By keyboard: the list scrolls, and what was far away is drawn.
  await page.page.focus("[role=table]");
  await page.page.keyboard.press("End");
  await page.page.waitForFunction(() => document.body.innerText.includes("p9999"), { polling: 50 });
  assert.ok((await drawn()).length < 100);
  await page.isAccessible("10,000 policies");
  await page.fill("Find", "p4711");
  await page.shows("1 of 10,000 policies");
  assert.deepEqual(await drawn(), ["p4711"]);
  await page.click("link", "p4711");
  await page.shows("712 per 60 s");
  await page.open(service, "#/clients?id=a&with=path%3D%2Fp4711");
  await page.shows("A request of a would be allowed now.");
  await page.shows("9,999 policies do not apply");
  const [longest, painted] = await page.page.evaluate(() => [
    globalThis.longest,
    performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
  ]);
  console.log(
    `10,000 policies: longest task ${longest.toFixed(0)} ms, first paint ${painted?.toFixed(0)} ms`,
  );
});
