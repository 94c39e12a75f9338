// API keys in the page: issued, with a text that is shown once; used; moved to another tier, given a new secret, revoked; and the
// tiers that policies have. Mistakes stand beside their field, and who may only read has no buttons.

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
policy = [{ name = "per-key", key = ["api_key"], limit = 2, window_seconds = 3600, tiers = { free = {}, pro = { limit = 1000 } } }]
upstream = [{ name = "app", servers = ["http://${address}"] }]
route = [
  { name = "shop", upstream = "app", auth = "key", policies = ["per-key"] },
  { name = "other", path = "/other/*", upstream = "app", auth = "key" },
]
`;

await scenario(async ({ server, tab }) => {
  const upstream = createServer((_, reply) => reply.end("ok"));
  await new Promise((resolve) => upstream.listen(0, "127.0.0.1", resolve));
  try {
    const service = await server()
      .configure(fileOf(`127.0.0.1:${upstream.address().port}`))
      .start();
    const get = async (key) =>
      (await fetch(`http://${service.gateway}/`, { headers: { "x-api-key": key } })).status;
    const page = await tab();
    await page.open(service, "#/keys");
    await page.fill("Token", ANNA);
    await page.click("button", "Sign in");
    await page.shows("There is none.");
    await page.lists("section:has(table) tbody tr", [
      "free per-key 2 per 1 h 0",
      "pro per-key 1,000 per 1 h 0",
    ]);

    // A mistake beside its field, then a key, whose text is there once.
    await page.fill("Consumer", "acme");
    await page.fill("Good for, in days", "soon");
    await page.click("button", "Issue");
    await page.shows("accepted: ");
    await page.fill("Good for, in days", "30");
    await page.choose("Tier", "free");
    await page.isAccessible("a form for a key");
    await page.click("button", "Issue");
    await page.shows("It is shown now and never again.");
    const text = () => page.line("section[role=status] pre");
    const key = await text();
    assert.match(key, /^tgk_/);
    await page.isAccessible("a key that was issued");
    assert.deepEqual([await get(key), await get(key), await get(key)], [200, 200, 429]);
    const [{ id }] = (await service.ask("GET", "/v1/keys", undefined, { authorization: `Bearer ${ANNA}` }))
      .body;
    await page.click("link", id);
    await page.shows(`Key ${id}`);
    assert.equal(await text(), key, "it stays until somebody has kept it");
    await page.click("button", "It is kept elsewhere");
    await page.hides(key);

    // More for it, by another tier.
    await page.click("button", "Move to a tier …");
    const field = await page.page.$("form.review select");
    await field.select("pro");
    await page.click("button", "Move");
    await page.lists("section:has(table) tbody tr", [
      "free per-key 2 per 1 h 0",
      "pro per-key 1,000 per 1 h 1",
    ]);
    assert.equal(await get(key), 200);
    await page.pictures("keys", true);

    // Other routes than the one that is asked, then none of its own, and a scope.
    await page.says("dl.facts", /Routes\s*all that ask for keys\s*Scopes\s*none/);
    await page.click("button", "Set its routes …");
    await page.fill("Routes", "nowhere");
    await page.click("button", "Set the routes");
    await page.shows("accepted: ");
    await page.fill("Routes", "other");
    await page.isAccessible("a form for the routes of a key");
    await page.click("button", "Set the routes");
    await page.says("dl.facts", /Routes\s*other\s*Scopes/);
    assert.equal(await get(key), 403);
    await page.click("button", "Set its routes …");
    await page.fill("Routes", "");
    await page.click("button", "Set the routes");
    await page.says("dl.facts", /Routes\s*all that ask for keys/);
    await page.click("button", "Set its scopes …");
    await page.fill("Scopes", "orders:read, orders:write");
    await page.click("button", "Set the scopes");
    await page.says("dl.facts", /Scopes\s*orders:read, orders:write/);
    assert.equal(await get(key), 200);

    // Another secret, with the old one at an end.
    await page.click("button", "New secret …");
    await page.fill("Old secret is good for, in hours", "0");
    await page.click("button", "Give it a new secret");
    await page.shows("It is shown now and never again.");
    assert.deepEqual([await get(key), await get(await text())], [401, 200]);
    await page.click("button", "It is kept elsewhere");

    const phone = await tab({ width: 320, height: 640, scheme: "dark" });
    await phone.open(service, `#/keys?id=${id}`);
    await phone.shows(`Key ${id}`);
    await phone.shows("1 of 1 key");
    await phone.fits("keys on a telephone");
    await phone.isAccessible("keys, dark");
    await phone.picture("keys-phone", true);
    await page.page.bringToFront();

    await page.click("button", "Revoke …");
    await page.shows("nothing brings it back");
    await page.click("button", "Revoke");
    await page.shows("There is none.");
    assert.equal(new URL(page.page.url()).hash, "#/keys");
    await page.open(service, `#/keys?id=${id}`);
    await page.shows(`There is no key ${id}.`);
    await page.click("button", "Sign out");
    await page.fill("Token", BOB);
    await page.click("button", "Sign in");
    await page.shows("There is none.");
    assert.ok(!(await page.text()).includes("Issue a key"), "who may read issues nothing");
  } finally {
    upstream.closeAllConnections();
    upstream.close();
  }
});
