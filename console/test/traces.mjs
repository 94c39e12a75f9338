// The gateway's last requests: kept while the page is looked at, each with an address and what was done for it.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const upstream = createServer((_, reply) => reply.end("ok"));
  await new Promise((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  try {
    const service = await server()
      .configure(`
gateway.listener = [{ listen = "127.0.0.1:0" }]
gateway.analytics = false
policy = [{ name = "per-client", limit = 2, window_seconds = 3600 }]

[[upstream]]
name = "app"
servers = ["http://127.0.0.1:${upstream.address().port}"]

[[route]]
name = "api"
path = "/api/*"
upstream = "app"
policies = ["per-client"]
`)
      .start();
    const get = async (path) => (await fetch(`http://${service.gateway}${path}`)).status;
    // Nobody looks: nothing is kept.
    assert.equal(await get("/elsewhere"), 404);
    const page = await tab();
    await page.open(service, "#/gateway");
    await page.shows("Requests are kept from now on");
    assert.equal(await get("/api/orders?api_key=do-not-show-this"), 200);
    assert.equal(await get("/api/%3Cimg%20src=x%3E"), 200);
    assert.equal(await get("/api/orders"), 429);
    assert.equal(await get("/no-such"), 404);
    await page.shows("GET /api/%3Cimg%20src=x%3E");
    await page.shows("429 quota");
    await page.shows("GET /no-such");
    const list = await service.ask("GET", "/v1/gateway/traces");
    assert.equal(list.body.traces.length, 4, "what nobody looked at is not there");
    assert.ok(!JSON.stringify(list.body).includes("do-not-show-this"), "no query is kept");
    await page.isAccessible("the last requests");

    // Those that fit a text, and those that were there when somebody paused.
    await page.fill("Find", "429");
    await page.hides("GET /no-such");
    await page.shows("429 quota");
    await page.click("button", "Pause");
    await page.shows("Paused: what came since is not shown.");
    assert.equal(await get("/no-such-either"), 404);
    await page.fill("Find", "no-such");
    await page.shows("GET /no-such");
    const later = "GET /no-such-either";
    assert.ok(!(await page.text()).includes(later), "it came later");
    await page.click("button", "Go on");
    await page.shows(later);
    await page.fill("Find", "nothing has this");
    await page.shows("has “nothing has this” in it.");
    await page.fill("Find", "api");

    // One of them, by its own address.
    const denied = list.body.traces.find(({ status }) => status === 429);
    await page.click("link", "GET /api/orders", `a[href="#/gateway/traces/${denied.id}"]`);
    await page.shows("What was done");
    await page.shows("policy per-client, says denied");
    const address = new URL(page.page.url()).hash;
    assert.equal(address, `#/gateway/traces/${denied.id}`);
    const phone = await tab({ width: 320, height: 640, scheme: "dark" });
    await phone.open(service, address);
    await phone.shows("policy per-client, says denied");
    await phone.fits("a trace on a telephone");
    await phone.isAccessible("a trace, dark");
    const good = list.body.traces.find(({ status }) => status === 200);
    await page.open(service, `#/gateway/traces/${good.id}`);
    await page.shows(`${good.server} of app, attempt 1`);
    await phone.picture("trace-phone");
    await page.pictures("trace");
    await phone.open(service, "#/gateway");
    await phone.shows("429 quota");
    await phone.fits("the last requests on a telephone");
    await phone.picture("requests-phone", true);
    await page.open(service, "#/gateway/traces/0-1");
    await page.shows("This request is not kept any more");

    // What came by a route in the last seconds, and what a limit denied of it, is counted without analytics, too.
    let isOver = false;
    const asking = (async () => {
      while (!isOver) {
        await get("/api/orders");
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    })();
    // A page behind another one reads nothing.
    await page.page.bringToFront();
    await page.open(service, "#/gateway");
    await page.says(
      "tbody tr:first-child",
      /^apipath \/api\/\*appper-client\d[\d.]*0 %100 %[^–]+none of its own/,
    );
    await page.shows("Numbers of this process in the last 10 s.");
    isOver = true;
    await asking;
  } finally {
    upstream.closeAllConnections();
    upstream.close();
  }
});
