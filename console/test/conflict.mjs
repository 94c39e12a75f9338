// Two tabs change one policy: the second is shown what the first did, and decides (fault 74).

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  const [first, second] = [await tab(), await tab()];
  for (const page of [first, second]) {
    await page.page.bringToFront();
    await page.open(service, "#/policies/default");
    await page.click("button", "Edit");
    await page.shows("Window, in seconds");
  }
  const change = async (page, label, number) => {
    await page.page.bringToFront();
    await page.fill(label, number);
    await page.click("button", "Review");
    await page.click("button", "Save");
  };
  await change(first, "Limit", "40");
  await first.shows("saved and in force");
  await change(second, "Window, in seconds", "10");
  await second.shows("Somebody else changed it meanwhile.");
  const theirs = ["Field When you began Now in force", "limit 100 40"];
  await second.lists(".problem > .difference:nth-child(2) tr", theirs);
  const mine = ["Field Now in force Yours", "limit 40 100", "window_seconds 60 10"];
  await second.lists(".problem > .difference:nth-child(4) tr", mine);
  await second.isAccessible("conflict");
  assert.equal((await service.ask("GET", "/v1/policies/default")).body.limit, 40);
  await second.click("button", "Put mine over theirs");
  await second.click("button", "Save");
  await second.shows("saved and in force");
  const { body } = await service.ask("GET", "/v1/policies/default");
  assert.deepEqual([body.limit, body.window_seconds], [100, 10]);
  // The first hears of it by the event stream.
  await first.page.bringToFront();
  await first.shows("100 per 10 s");

  // The same for a client's own limits.
  for (const page of [first, second]) {
    await page.page.bringToFront();
    await page.open(service, "#/clients?id=user123");
    await page.click("button", "Give it its own limit");
    await page.shows("everyone's: 100");
  }
  const raise = async (page, number) => {
    await page.page.bringToFront();
    await page.fill("Limit", number);
    await page.click("button", "Save");
  };
  await raise(first, "500");
  await first.shows("500 per 10 s the client's own");
  await raise(second, "600");
  await second.shows("Somebody else changed this client's limits meanwhile.");
  await second.shows('{"limit":500}');
  await second.click("button", "Keep mine for this policy, on top of theirs");
  await second.click("button", "Save");
  await second.shows("600 per 10 s the client's own");
  await second.hides("What is as everyone's follows everyone's.");
  assert.deepEqual((await service.ask("GET", "/v1/clients/user123/limits")).body, {
    default: { limit: 600 },
  });

  // What a form has no field for is no casualty: a client with an algorithm of its own keeps it.
  const own = { algorithm: "calendar", limit: 50, period: "day", time_zone: "Asia/Tokyo" };
  await service.ask("PUT", "/v1/clients/night/limits", { default: own });
  await second.open(service, "#/clients?id=night");
  await second.click("button", "Change its own limit");
  await second.shows("Kept as it is: algorithm calendar, period day, time_zone Asia/Tokyo.");
  await raise(second, "70");
  await second.shows("70 per day the client's own");
  // The page hears of the change before it hears that its own request is answered, and closes the form then.
  await second.hides("Kept as it is: algorithm calendar");
  assert.deepEqual((await service.ask("GET", "/v1/clients/night/limits")).body, {
    default: { ...own, limit: 70 },
  });
});
