// The nodes that share a database are on the overview by name, one that ends as last seen, and two of one name are told
// apart. The database goes away while the page is open: the overview says so. The test gives its address and the number of
// its process.

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const { TIDEGATE_TEST_POSTGRES: url, TIDEGATE_TEST_POSTGRES_PID: pid } = process.env;
  const start = (name) => server().configure(`control = "${url}"\n`).start({ TIDEGATE_NODE_NAME: name });
  const service = await start("first");
  const page = await tab();
  await page.open(service, "#/");
  await page.shows("revision 0 in force");
  await page.shows("1 node: first (this one)");
  const second = await start("second");
  await page.shows("2 nodes: first (this one); second");
  await second.stop();
  await page.shows("1 node: first (this one); second is gone, last seen ");
  await page.isAccessible("a node that is gone");
  await start("first");
  await page.shows("2 nodes: first (number ");
  await page.shows("several nodes are called first: give each a node.name of its own");
  await page.fits("two nodes of one name");
  const away = "the configuration cannot be changed: its database is away or fails";
  assert.ok(!(await page.text()).includes(away));

  process.kill(Number(pid), "SIGQUIT");
  await page.shows("ready, degraded");
  await page.shows(away);
  await page.shows("as they were when the database last answered: ");
  // What was in force is in force.
  assert.equal(await service.spend("user123", 101), 1);
  await page.fits("a database that is away");
  await page.isAccessible("a database that is away");
});
