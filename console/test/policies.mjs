// A policy is made, changed with the checker's words beside the field, switched to shadow, and put back.

import assert from "node:assert/strict";
import { scenario, until } from "./support.mjs";

const FILE = `
[[policy]]
name = "api"
limit = 5
window_seconds = 60
tiers = { free = { limit = 2 }, pro = { limit = 9, window_seconds = 10 } }
`;

await scenario(async ({ server, tab }) => {
  const service = await server().configure(FILE).start();
  const { tiers } = (await service.ask("GET", "/v1/policies/api")).body;
  assert.equal(tiers.pro.limit, 9);
  const page = await tab();
  await page.open(service, "#/policies");
  await page.shows("1 policy");
  await page.shows("the file");
  await page.click("link", "api");
  await page.shows("since the process began. Is what it applies to what clients send?");
  await service.spend("b", 3);
  await page.shows("3 allowed");
  await page.hides("not asked yet");
  await page.click("button", "Edit");
  await page.shows("Kept as it is: tiers");
  await page.fill("Limit", "-1");
  await page.fill("Window, in seconds", "soon");
  await page.fill("Applies to", '{"path": "/v1/*"');
  await page.click("button", "Review");
  await page.shows("Before");
  await page.click("button", "Save");
  // Beside its field, and announced with it.
  await page.shows("What is wrong stands at its field.");
  const beside = async (label) => {
    const field = await page.field(label);
    return field.evaluate((field) => {
      const note = document.getElementById(field.getAttribute("aria-describedby"));
      return [field.getAttribute("aria-invalid"), note.innerText];
    });
  };
  assert.deepEqual(await beside("Limit"), ["true", "is -1; accepted: a whole number from 0 to 1000000000"]);
  assert.match((await beside("Window, in seconds"))[1], /^is "soon"; accepted: a whole number/);
  assert.equal((await beside("Applies to"))[0], "true");
  assert.equal((await service.ask("GET", "/v1/policies/api")).body.limit, 5);
  await page.isAccessible("mistakes");

  await page.fill("Limit", "7");
  await page.fill("Window, in seconds", "30");
  await page.fill("Applies to", '{"resource": "api"}');
  await page.click("button", "Review");
  // What differs, before it is saved, and the command that does the same.
  const changes = ["limit 5 7", 'match absent {"resource":"api"}', "window_seconds 60 30"];
  await page.lists(".review .difference tbody tr", changes);
  await page.says(
    ".review .curl pre",
    /^curl -X PUT http:\/\/\S+\/v1\/policies\/api -H 'if-match: "0"' .*"limit":7/,
  );
  await page.isAccessible("review");
  await page.click("button", "Save");
  await page.shows("saved and in force");
  await page.shows("stored by the API");
  const { body } = await service.ask("GET", "/v1/policies/api");
  assert.deepEqual([body.limit, body.window_seconds, body.match], [7, 30, { resource: "api" }]);
  assert.deepEqual(body.tiers, tiers, "what the form has no field for");
  // Nobody has met what it is now, whatever it was asked before.
  await page.shows("No request has met this policy since it was changed.");
  await service.spend("b", 1);
  await page.hides("not asked yet");
  await page.click("link", "Policies");
  await page.shows("hides the file's");
  assert.doesNotMatch(await page.text(), /not asked yet/);

  // Changed by somebody else while no page looks: a page that is opened later knows it, in the list as well.
  const changed = { ...body, match: { resource: "app" } };
  assert.equal((await service.ask("PUT", "/v1/policies/api", changed)).status, 200);
  assert.equal(await service.spend("b", 1), 0);
  const fresh = await tab();
  await fresh.open(service, "#/policies");
  await fresh.shows("not asked yet");
  await fresh.isAccessible("a policy that nobody has met since its change");
  await fresh.click("link", "api");
  await fresh.shows("4 allowed");
  await fresh.shows("No request has met this policy since it was changed.");
  await fresh.page.close();
  await page.page.bringToFront();
  assert.equal((await service.ask("PUT", "/v1/policies/api", body)).status, 200);

  // Shadow: one switch, reviewed as any change.
  await page.click("link", "api");
  await page.click("button", "Switch to shadow");
  await page.shows('"shadow"');
  await page.click("button", "Save");
  await page.shows("shadow: it denies nothing");
  assert.equal(await service.spend("a", 9), 0);
  await page.shows("2 would have been denied");

  // Back to what was before that change, from its history.
  await page.click("button", "Revert to before it");
  await page.shows("Puts back what was in force before this change.");
  await page.click("button", "Revert");
  await page.hides("shadow: it denies nothing");
  const back = (await service.ask("GET", "/v1/policies/api")).body;
  assert.deepEqual([back.mode, back.tiers], ["enforce", tiers]);

  // The stored one is deleted, unless somebody has changed it meanwhile; and the file's is in force.
  await page.click("button", "Delete the stored one");
  await page.shows("is then in force again");
  await page.says(".review .curl pre", /^curl -X DELETE http:\/\/\S+\/v1\/policies\/api -H 'if-match: "5"'$/);
  await page.isAccessible("a deletion");
  await service.ask("PUT", "/v1/policies/api", { ...back, limit: 8 });
  await page.shows("8 per 30 s");
  await page.click("button", "Delete");
  await page.shows("Somebody else changed it meanwhile.");
  await page.lists(".problem > .difference:nth-child(2) tbody tr", ["limit 7 8"]);
  assert.equal((await service.ask("GET", "/v1/policies/api")).body.limit, 8);
  await page.click("button", "Put mine over theirs");
  await page.click("button", "Delete");
  await page.shows("the file");
  await page.shows("5 per 60 s");

  // A new one, of another algorithm.
  await page.open(service, "#/policies/+");
  await page.fill("Name", "bursts");
  await page.choose("Algorithm", "token_bucket");
  await page.fill("Burst", "20");
  await page.click("button", "Review");
  await page.click("button", "Save");
  await page.shows("100 per 60 s, burst 20");
  const made = (await service.ask("GET", "/v1/policies/bursts")).body;
  assert.deepEqual([made.algorithm, made.burst], ["token_bucket", 20]);

  // What is denied is drawn beside the policy, for as long as it lasts.
  await page.open(service, "#/policies");
  await page.shows("2 policies");
  await until("denials are drawn", async () => {
    await service.spend("a", 6);
    return (await page.page.$(".spark polyline")) !== null;
  });
});
