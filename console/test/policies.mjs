// A policy is made, changed with the checker's words beside the field, switched to shadow, and put back.

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const service = await server()
    .configure('[[policy]]\nname = "api"\nlimit = 5\nwindow_seconds = 60\n')
    .start();
  const page = await tab();
  await page.open(service, "#/policies");
  await page.shows("1 policy");
  await page.shows("the file");
  await page.click("link", "api");
  await page.click("button", "Edit");
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
  await page.shows("window_seconds");
  const rows = await page.page.$$eval(".difference tbody tr", (rows) =>
    rows.map((row) => row.innerText.replace(/\s+/g, " ")),
  );
  assert.deepEqual(rows.sort(), ["limit 5 7", 'match absent {"resource":"api"}', "window_seconds 60 30"]);
  const command = await page.page.$eval(".review .curl pre", (element) => element.textContent);
  assert.match(command, /^curl -X PUT http:\/\/\S+\/v1\/policies\/api -H 'if-match: "0"' .*"limit":7/);
  await page.isAccessible("review");
  await page.click("button", "Save");
  await page.shows("saved and in force");
  await page.shows("stored by the API");
  const { body } = await service.ask("GET", "/v1/policies/api");
  assert.deepEqual([body.limit, body.window_seconds, body.match], [7, 30, { resource: "api" }]);
  await page.click("link", "Policies");
  await page.shows("hides the file's");

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
  assert.equal((await service.ask("GET", "/v1/policies/api")).body.mode, "enforce");

  // The stored one is deleted, and the file's is in force.
  await page.click("button", "Delete the stored one");
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
});
