// Requests that the gateway has answered, over time and told apart as one likes, by an address that can be sent to somebody; as
// CSV; and what is said where nothing is counted.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { scenario } from "./support.mjs";

const fileOf = (address, isCounted) => `
gateway.listener = [{ listen = "127.0.0.1:0" }]
gateway.analytics = ${isCounted}
policy = [{ name = "per-client", limit = 5, window_seconds = 3600 }]
upstream = [{ name = "app", servers = ["http://${address}"] }]
route = [{ name = "shop", path = "/shop/*", upstream = "app" }, { name = "orders", path = "/orders", upstream = "app", policies = ["per-client"] }]
`;

await scenario(async ({ server, tab }) => {
  const upstream = createServer((asked, reply) => {
    reply.statusCode = asked.url.endsWith("broken") ? 500 : 200;
    reply.end("ok");
  });
  await new Promise((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  try {
    const address = `127.0.0.1:${upstream.address().port}`;
    const service = await server().configure(fileOf(address, true)).start();
    for (let n = 0; n < 8; n += 1) await fetch(`http://${service.gateway}/orders`);
    for (let n = 0; n < 3; n += 1) await fetch(`http://${service.gateway}/shop/${n}`);
    await fetch(`http://${service.gateway}/shop/broken`);
    const page = await tab();
    await page.open(service, "#/gateway");
    await page.click("link", "Requests over time");
    await page.shows("By route");
    const rows = (pattern) => page.says("tbody", pattern);
    const first = "tbody tr:first-child";
    const starts = async (wanted) => {
      await page.says(`${first}`, wanted);
    };
    // Route, requests, errors, denied, client errors.
    await starts(/^orders80 %38 %0 %/);
    await page.says("tbody tr:last-child", /^shop425 %0 %0 %/);
    await page.says(".stats", /^Requests12.*Errors8\.3 %.*Denied25 %/);
    await page.page.waitForSelector('[role=img][aria-label^="Requests per minute"]');
    await page.isAccessible("analytics");

    await page.choose("Told apart by", "route,status");
    await starts(/^orders2005/);
    await rows(/orders42930 %100 %/);
    await page.choose("The last", "week");
    await page.shows("Requests per hour");
    await page.fill("Only of the route", "shop");
    await page.page.keyboard.press("Enter");
    await starts(/^shop2003/);
    const { hash } = new URL(page.page.url());
    assert.equal(hash, "#/gateway/analytics?by=route%2Cstatus&last=week&route=shop");
    const csv = await page.page.$eval("a[download]", (link) => link.href);
    const text = await (await fetch(csv)).text();
    assert.match(text, /^[^\n]*route[^\n]*\n/);
    assert.ok(text.includes("shop") && !text.includes("orders"), text);
    await page.pictures("analytics", true);
    const phone = await tab({ width: 320, height: 640, scheme: "dark" });
    await phone.open(service, hash);
    await phone.says("tbody tr", /^shop2003/);
    await phone.fits("analytics on a telephone");
    await phone.isAccessible("analytics, dark");
    await phone.picture("analytics-phone", true);
    await page.page.bringToFront();
    await page.fill("Only of the route", "no-such");
    await page.page.keyboard.press("Enter");
    await page.shows("The gateway has answered no such request in that time.");

    const uncounted = await server().configure(fileOf(address, false)).start();
    await page.open(uncounted, "#/gateway/analytics");
    await page.shows("Requests are not counted in this process");
  } finally {
    upstream.closeAllConnections();
    upstream.close();
  }
});
