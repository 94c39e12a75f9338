// What is wrong, with its reason: a store of the counters that does not answer, and a process that is not ready, in words, with
// a sign, by day and by night.

import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  // Nobody listens there.
  const service = await server().configure('store = "redis://127.0.0.1:1/"\n').start();
  await service.spend("user123", 30);
  for (const size of [{}, { width: 320, height: 640, scheme: "dark" }]) {
    const page = await tab(size);
    await page.open(service, "#/");
    await page.shows("ready, degraded");
    await page.shows("the counters' store does not answer: decisions are made without it");
    await page.shows("Connection refused");
    await page.shows("store counters breaker open");
    await page.shows("revision 0 in force");
    await page.fits("a store that does not answer");
    await page.isAccessible("a store that does not answer");
    await page.open(service, "#/clients?id=user123");
    await page.shows("Answered without the counters' store");
  }
  // A process drains for a second, which no page is sure to see: it is answered as by one that does.
  const page = await tab();
  const reason = "the process is draining";
  await page.answers("/readyz", 503, { ready: false, stage: "draining", reasons: [reason] });
  await page.open(service, "#/");
  await page.says(".health > li:nth-child(1)", "✕not ready");
  await page.says(".health > li:nth-child(2)", `!${reason}`);
  await page.isAccessible("a process that is not ready");
});
