// The configuration's database goes away while the page is open: the overview says so, and what a change is answered. The
// test gives its address and the number of its process.

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const { TIDEGATE_TEST_POSTGRES: url, TIDEGATE_TEST_POSTGRES_PID: pid } = process.env;
  const service = await server().configure(`control = "${url}"\n`).start();
  const page = await tab();
  await page.open(service, "#/");
  await page.shows("revision 0 in force");
  const away = "the configuration cannot be changed: its database is away or fails";
  assert.ok(!(await page.text()).includes(away));

  process.kill(Number(pid), "SIGQUIT");
  await page.shows("ready, degraded");
  await page.shows(away);
  // What was in force is in force.
  assert.equal(await service.spend("user123", 101), 1);
  await page.fits("a database that is away");
  await page.isAccessible("a database that is away");
});
