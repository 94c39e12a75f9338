// Somebody who has read nothing finds out why the client user123 is denied, and raises its limit: four clicks.

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  assert.equal(await service.spend("user123", 103), 3);
  const page = await tab();
  const began = Date.now();
  // 1. The address that the service before this one had.
  await page.open(service, "/dashboard");
  await page.shows("Most denied clients");
  assert.equal(new URL(page.page.url()).pathname, "/");
  // 2. Who is denied, and why.
  await page.click("link", "user123");
  await page.shows("user123 is denied by the policy default: it has used 100 of 100 per 60 s.");
  await page.shows("The same request is allowed in");
  // 3. Its limit.
  await page.click("button", "Give it its own limit");
  await page.fill("Limit", "250");
  await page.click("button", "Save");
  // 4. It is allowed again, at once.
  await page.shows("A request of user123 would be allowed now.");
  await page.shows("250 per 60 s the client's own");
  const took = Date.now() - began;
  console.log(`from the first address to the raised limit: ${took} ms`);
  assert.ok(took < 60_000, `it took ${took} ms`);

  // The form closes when the change is answered.
  await page.hides("What is as everyone's follows everyone's.");
  const { body } = await service.ask("GET", "/v1/clients/user123/limits");
  assert.deepEqual(body, { default: { limit: 250 } });
  assert.equal(await service.spend("user123", 1), 0);

  // What it has used is taken from it only when somebody says so twice.
  await page.click("button", "Reset its usage");
  await page.shows("It starts anew under default.");
  await page.click("button", "Reset");
  await page.shows("Its usage is reset.");
  await page.shows("0 of 250");

  // And it has everyone's limit again.
  await page.click("button", "Change its own limit");
  await page.fill("Limit", "100");
  await page.click("button", "Save");
  await page.shows("100 per 60 s everyone's");
  await page.hides("What is as everyone's follows everyone's.");
  assert.equal((await service.ask("GET", "/v1/clients/user123/limits")).status, 404);

  // The same by Tab and Enter alone.
  assert.equal(await service.spend("user456", 103), 3);
  const keys = await tab();
  await keys.open(service, "/dashboard");
  await keys.shows("user456");
  await keys.tabTo("user456");
  await keys.page.keyboard.press("Enter");
  await keys.shows("user456 is denied by the policy default: it has used 100 of 100 per 60 s.");
  await keys.tabTo("Give it its own limit");
  await keys.page.keyboard.press("Enter");
  await keys.shows("What is as everyone's follows everyone's.");
  await keys.tabTo("Limit");
  await keys.page.keyboard.type("250");
  await keys.tabTo("Save");
  await keys.page.keyboard.press("Enter");
  await keys.hides("What is as everyone's follows everyone's.");
  await keys.shows("A request of user456 would be allowed now.");
  const given = (await service.ask("GET", "/v1/clients/user456/limits")).body;
  assert.deepEqual(given, { default: { limit: 250 } });
  await page.page.bringToFront();

  // All of it is in the audit log, which the page shows.
  await page.click("link", "Audit");
  await page.shows("deleted limits of client user123");
  await page.shows("reset usage of client user123");
  await page.shows("created limits of client user123");
});
