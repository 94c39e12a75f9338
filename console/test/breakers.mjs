// Breakers with the calls that they judge: closed, open with the time until it is tried again, and closed once more; one that
// went with its upstream while nobody listened is shown no longer.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { scenario } from "./support.mjs";

const APP = (address) => `
[[upstream]]
name = "app"
servers = ["http://${address}"]
eject_after = 0
retries = { attempts = 1 }
breaker = { seconds = 60, minimum_calls = 4, failure_percent = 50, first_open_seconds = 600, open_seconds = 1200 }

[[route]]
name = "api"
path = "/api/*"
upstream = "app"
`;

const fileOf = (address, app) => `
gateway.listener = [{ listen = "127.0.0.1:0" }]
${app}
[[upstream]]
name = "jobs"
servers = ["http://${address}"]
eject_after = 0
retries = { attempts = 1 }
breaker = { enabled = false }

[[route]]
name = "queue"
path = "/jobs/*"
upstream = "jobs"
breaker = { calls = 10, minimum_calls = 2, failure_percent = 100, open_seconds = 0.5, trials = 1 }
`;

await scenario(async ({ server, tab }) => {
  let status = 200;
  const upstream = createServer((_, reply) => {
    reply.statusCode = status;
    reply.end();
  });
  await new Promise((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  try {
    const address = `127.0.0.1:${upstream.address().port}`;
    const service = await server()
      .configure(fileOf(address, APP(address)))
      .start();
    const get = async (path, answer) => {
      status = answer;
      return (await fetch(`http://${service.gateway}${path}`)).status;
    };
    const page = await tab();
    await page.open(service, "#/gateway?upstream=app");
    const app = "section[aria-current=true]";
    await page.shows(
      "judges the calls of the last 60 s, once there are 4; opens for 600 s, and for up to 1200 s while trials fail, when 50 % failed",
    );
    await page.shows("0 calls in its window, 0 failed.");
    await page.says(`${app} > header .badge`, "✓breaker closed");
    assert.deepEqual(
      [await get("/api/1", 200), await get("/api/2", 200), await get("/api/3", 500)],
      [200, 200, 500],
    );
    // In its window, as far as it is from opening.
    await page.says(app, /3 calls in its window, 1 failed\./);
    await page.page.waitForSelector(`${app} [role=meter][aria-valuenow="1"][aria-valuemax="2"]`);
    assert.equal(await get("/api/4", 500), 500);
    await page.shows("Of 4 calls 2 failed. It is tried again in");
    await page.says(
      app,
      /It is tried again in (10 min|9 min \d+ s)\. Its pause is 10 min; trials that fail double it\./,
    );
    await page.says(`${app} > header .badge`, "✕breaker open");
    assert.equal(await get("/api/5", 200), 503, "nothing is let through");
    await page.isAccessible("an open breaker");

    // One of a route, in its row: it opens, and closes after a trial that went well.
    const row = "tr:has([href='#/gateway?route=queue'])";
    await page.shows("No breaker: it is asked whatever fails.");
    await page.says(row, /breaker closed 0 calls in its window, 0 failed\./);
    assert.deepEqual([await get("/jobs/1", 500), await get("/jobs/2", 500)], [500, 500]);
    await page.says(row, /✕breaker open Of 2 calls 2 failed\. The next request tries it\./);
    assert.equal(await get("/jobs/3", 200), 200);
    const closed = await page.page.waitForFunction(
      (row) => /breaker closed.*/.exec(document.querySelector(row)?.textContent)?.[0],
      { polling: 50 },
      row,
    );
    // The event comes before the list: the calls that opened it are none of its window now.
    assert.doesNotMatch(await closed.jsonValue(), /2 failed/);
    await page.says(row, /breaker closed 0 calls in its window, 0 failed\./);
    const phone = await tab({ width: 320, height: 640, scheme: "dark" });
    await phone.open(service, "#/gateway?upstream=app");
    await phone.shows("Of 4 calls 2 failed. It is tried again in");
    await phone.fits("an open breaker on a telephone");
    await phone.isAccessible("an open breaker, dark");
    await phone.picture("breaker-phone");
    await page.page.bringToFront();
    await page.pictures("breaker");

    await page.open(service, "#/");
    await page.shows("upstream app breaker open");
    await page.shows("route queue breaker closed");
    // The server is back without it: what went while nobody listened is gone here, too.
    await service.stop();
    await page.shows("The connection to the server is lost.");
    await page.shows("upstream app");
    await service.configure(fileOf(address, "")).start();
    await page.hides("The connection to the server is lost.");
    await page.hides("upstream app");
    await page.shows("route queue breaker closed");
  } finally {
    upstream.closeAllConnections();
    upstream.close();
  }
});
