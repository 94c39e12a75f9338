// The server is killed and started again: the page says that it lost it, and goes on by itself (fault 74).

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  const page = await tab();
  await page.open(service, "#/policies/default");
  await page.shows("100 per 60 s");
  await service.ask("PUT", "/v1/policies/default", { limit: 30, window_seconds: 60 });
  // By the event stream: nobody touched the page.
  await page.shows("30 per 60 s");
  await service.stop();
  await page.shows("The connection to the server is lost.");
  await page.shows("30 per 60 s");
  await service.start();
  await page.hides("The connection to the server is lost.");
  await service.ask("PUT", "/v1/policies/default", { limit: 31, window_seconds: 60 });
  await page.shows("31 per 60 s");
  await page.open(service, "#/");
  await page.page.reload();
  await page.shows("revision 2 in force");
  // What is counted began anew in between: there is a gap and no negative rate.
  await service.stop();
  await page.shows("The connection to the server is lost.");
  await service.start();
  await page.hides("The connection to the server is lost.");
  assert.doesNotMatch(await page.text(), /-\d+(\.\d+)?\s*per second/);
});
