// A candidate in the gateway's view: what would become of the requests that come, what its policies would say, and what it changes; promoted
// and dropped after a question, as the version that was shown when the question came up; without buttons for who may only read.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { scenario } from "./support.mjs";

const digest = (token) => createHash("sha256").update(token).digest("hex");
const [ANNA, BOB] = ["the-secret-of-anna", "the-secret-of-bob"];

const fileOf = (address) => `
gateway.listener = [{ listen = "127.0.0.1:0" }]
token = [
  { name = "anna", scopes = ["read", "configure"], sha256 = "${digest(ANNA)}" },
  { name = "bob", scopes = ["read"], sha256 = "${digest(BOB)}" },
]
upstream = [{ name = "app", servers = ["http://${address}"] }, { name = "app-v2", servers = ["http://${address}"] }]
route = [{ name = "shop", path = "/shop/*", upstream = "app" }, { name = "old", path = "/old", upstream = "app" }]
`;

await scenario(async ({ server, tab }) => {
  const upstream = createServer((_, reply) => reply.end("ok"));
  await new Promise((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  try {
    const service = await server()
      .configure(fileOf(`127.0.0.1:${upstream.address().port}`))
      .start();
    const headers = { authorization: `Bearer ${ANNA}` };
    const put = async (document) => {
      const { status, body } = await service.ask("PUT", "/v1/candidate", document, headers);
      assert.equal(status, 200, JSON.stringify(body));
    };
    const get = async (path) => (await fetch(`http://${service.gateway}${path}`)).status;
    const page = await tab();
    await page.open(service, "#/gateway");
    await page.fill("Token", BOB);
    await page.click("button", "Sign in");
    await page.shows("There is none. Routes and upstreams can be judged");

    await put({
      route: [
        { name: "shop", path: "/shop/*", upstream: "app-v2" },
        { name: "old", path: "/older", upstream: "app" },
      ],
    });
    await page.shows("No request has come since");
    for (const path of ["/shop/1", "/shop/2", "/old", "/none"]) await get(path);
    await page.shows("3 of 4 requests that this node has had since");
    await page.lists("section:has(h3) ul.plain > li", [
      "✕ 1 would be refused",
      "2 would go to another upstream",
    ]);
    await page.shows("to app-v2 by shop");
    await page.shows("refused with 404, no route");
    await page.page.locator("::-p-text(What it changes)").click();
    await page.shows("route shop");
    await page.shows('"app-v2"');
    await page.shows('"/older"');
    await page.isAccessible("a candidate");
    assert.ok(!(await page.text()).includes("Promote"), "who may read promotes nothing");
    await page.click("button", "Sign out");

    await page.fill("Token", ANNA);
    await page.click("button", "Sign in");
    await page.click("button", "Promote …");
    await page.shows("This node has judged 4 requests by it, which is little to go by.");
    await page.isAccessible("a promotion");
    await page.pictures("candidate", true);
    const phone = await tab({ width: 320, height: 640, scheme: "dark" });
    await phone.open(service, "#/gateway");
    await phone.shows("3 of 4 requests");
    await phone.fits("a candidate on a telephone");
    await phone.isAccessible("a candidate, dark");
    await phone.picture("candidate-phone", true);

    // Another candidate has come: it is not the one that was asked about.
    await page.page.bringToFront();
    await put({ route: [{ name: "shop", path: "/shop/*", upstream: "app-v2" }] });
    await page.click("button", "Promote");
    await page.shows("It is not in force.");
    await page.click("button", "Back");
    await page.click("button", "Promote …");
    await page.click("button", "Promote");
    await page.shows("There is none. Routes and upstreams can be judged");
    const shop = await service.ask("GET", "/v1/routes/shop", undefined, headers);
    assert.equal(shop.body.upstream, "app-v2");

    // Its policies are judged, too, by counters that begin empty.
    await put({
      policy: [{ name: "few", limit: 1, window_seconds: 3600, key: ["ip"] }],
      route: [{ name: "shop", path: "/shop/*", upstream: "app-v2", policies: ["few"] }],
    });
    await page.shows("0 of 0 decisions");
    for (const path of ["/shop/1", "/shop/2"]) assert.equal(await get(path), 200);
    await page.shows("1 of 2 decisions");
    await page.shows("would be limited");
    await page.isAccessible("a candidate with policies");

    await put({ upstream: [{ name: "app-v3", servers: ["http://127.0.0.1:1"] }] });
    await page.shows("No request has come since");
    await page.page.locator("::-p-text(What it changes)").click();
    await page.shows("upstream app-v3: new");
    await page.click("button", "Drop …");
    await page.shows("What is in force stays, and what was counted is gone.");
    await page.click("button", "Drop");
    await page.shows("There is none. Routes and upstreams can be judged");
    assert.equal((await service.ask("GET", "/v1/candidate", undefined, headers)).status, 404);
    assert.equal((await service.ask("GET", "/v1/upstreams/app-v3", undefined, headers)).status, 404);
  } finally {
    upstream.closeAllConnections();
    upstream.close();
  }
});
