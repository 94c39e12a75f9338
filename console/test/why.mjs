// Whoever clicks the most denied client is told why it is denied, also where its policy goes by more than the client; what is only
// looked at in shadow is no denial.

import assert from "node:assert/strict";
import { scenario } from "./support.mjs";

const FILE = `
[[policy]]
name = "narrow"
key = ["client_id", "path"]
limit = 2
window_seconds = 3600
match = { resource = "api" }

[[policy]]
name = "trial"
limit = 1
window_seconds = 3600
mode = "shadow"
`;

await scenario(async ({ server, tab }) => {
  const service = await server().configure(FILE).start();
  const spend = async (path, times) => {
    let denied = 0;
    for (let n = 0; n < times; n += 1) {
      const attributes = { client_id: "ann", resource: "api", path };
      const { body } = await service.ask("POST", "/v1/decisions", { attributes });
      denied += body.allowed ? 0 : 1;
    }
    return denied;
  };
  assert.equal(await spend("/v1/pay", 5), 3);
  assert.equal(await spend("/v1/other", 1), 0);
  const page = await tab();
  await page.open(service, "#/");
  await page.shows("ann by narrow");
  await page.click("link", "ann");
  await page.shows("ann is denied by the policy narrow: it has used 2 of 2 per 1 h.");
  // Counted from its first denial on: 3 of 4.
  await page.shows("In the last minute 75 % of its 4 requests were denied.");
  await page.shows("3 denials since the process began");
  const { searchParams } = new URL(new URL(page.page.url()).hash.slice(1), service.url);
  assert.deepEqual([searchParams.get("id"), searchParams.get("with")], ["ann", "path=/v1/pay resource=api"]);
  await page.isAccessible("a client that is denied");

  // Who types the name alone is led there.
  await page.open(service, "#/clients?id=ann");
  await page.shows("A request of ann would be allowed now.");
  await page.click("link", "ask about that one");
  await page.shows("ann is denied by the policy narrow");

  // A value with a space in it is the value that was asked with.
  await page.open(
    service,
    `#/clients?${new URLSearchParams({ id: "ann", with: 'resource=api path="/a b"' })}`,
  );
  await page.shows("A request of ann would be allowed now.");
  const command = await page.line(".search .curl pre");
  assert.match(command, /resource=api&path=%2Fa\+b/);

  // What a policy in shadow would deny is told apart.
  await page.open(service, "#/");
  const row = (name) =>
    page.page.$$eval(
      "tbody tr",
      (rows, name) => rows.map((row) => row.innerText.split("\t")).find(([first]) => first.trim() === name),
      name,
    );
  await page.shows("Would deny /s");
  const [, , , , denied] = await row("trial");
  assert.equal(denied, "0", "nobody was denied by it");
  assert.equal((await row("narrow")).at(-1), "3");
});
