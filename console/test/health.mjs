// What is wrong, with its reason: a server that is down, a store of the counters that does not answer, and a process that is not ready, in words, with
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
  // Nobody listens at the server of an upstream and at the edge's backend either; an alert fires.
  const down = await server()
    .configure(`
gateway.listener = [{ listen = "127.0.0.1:0" }]
edge.listener = [{ listen = "127.0.0.1:0" }]
edge.backend = [{ name = "rio", address = "127.0.0.1:1", country = "BR", region = "sa", check = { interval_seconds = 1, fall = 1 } }]
intake.alert = [{ name = "hot", metric = "cpu.usage", above = 80, for_seconds = 0 }]
upstream = [{ name = "app", servers = ["http://127.0.0.1:1"], check = { path = "/", interval_seconds = 1, fall = 1 } }]
route = [{ name = "api", upstream = "app" }]
`)
    .start();
  await fetch(`http://${down.intake}/metrics`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ metrics: [{ name: "cpu.usage", value: 90 }] }),
  });
  const overview = await tab();
  await overview.open(down, "#/");
  await overview.shows("servers 0 of 1 in use; 127.0.0.1:1 of app is down: its checks fail");
  await overview.shows("backends 0 of 1 in use; rio is down: its checks fail");
  await overview.shows("alert hot fires for 1 series");
  await overview.isAccessible("servers that are down");
  await overview.open(down, "#/intake");
  await overview.shows("1 alert");
  await overview.says("tbody tr:has(.badge)", /^hot ?✕ ?fires ?1 series ?0$/);
  // A process drains for a second, which no page is sure to see: it is answered as by one that does.
  const page = await tab();
  const reason = "the process is draining";
  await page.answers("/readyz", 503, { ready: false, stage: "draining", reasons: [reason] });
  await page.open(service, "#/");
  await page.says(".health > li:nth-child(1)", "✕not ready");
  await page.says(".health > li:nth-child(2)", `!${reason}`);
  await page.isAccessible("a process that is not ready");
});
