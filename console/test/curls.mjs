// Each form shows the curl that does the same: there is none without it, and each is run as the page shows it.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { scenario } from "./support.mjs";

const TOKEN = "the-secret-of-anna";
const DIGEST = createHash("sha256").update(TOKEN).digest("hex");

const FILE = `
token = [{ name = "anna", scopes = ["read", "configure"], sha256 = "${DIGEST}" }]
gateway.listener = [{ listen = "127.0.0.1:0" }]
edge.listener = [{ listen = "127.0.0.1:0" }]
edge.backend = [{ name = "rio", address = "127.0.0.1:9", region = "sa" }]
policy = [{ name = "api", limit = 5, window_seconds = 60 }]
upstream = [{ name = "app", servers = ["http://127.0.0.1:9"] }]
route = [{ name = "orders", path = "/orders/*", upstream = "app" }]
`;

/** Views with forms, and of which list each that only searches has the command. */
const VIEWS = [
  ["#/clients", "/v1/denied-clients"],
  ["#/clients?id=a", "/v1/explain?client_id=a"],
  ["#/policies", "/v1/policies"],
  ["#/policies/+", "/v1/policies/"],
  ["#/playground", "/v1/playground"],
  ["#/gateway", "/v1/explain/route"],
  ["#/edge", "/v1/explain/edge"],
  ["#/intake", "/v1/intake/query?"],
  ["#/logs", "/v1/warnings"],
  ["#/configuration", "/v1/settings"],
  ["#/saturation", "/v1/saturation/preflight?"],
];

await scenario(async ({ server, tab }) => {
  const service = await server().configure(FILE).start();
  const header = { authorization: `Bearer ${TOKEN}` };
  const page = await tab();
  /** Runs what the page shows there. */
  const run = async (place) => {
    const command = await page.line(`${place} .curl pre`);
    assert.match(command, /^curl .*-H "authorization: Bearer \$TOKEN"/);
    return service.shell(command, { TOKEN });
  };
  await page.open(service, "#/");
  await page.shows("Token");
  assert.deepEqual((await run("main")).scopes, ["read", "configure"]);
  await page.fill("Token", TOKEN);
  await page.click("button", "Sign in");
  await page.shows("Requests per second");

  for (const [view, address] of VIEWS) {
    await page.open(service, view);
    await page.page.waitForSelector("main form");
    const commands = await page.page.$$eval("main form", (forms) =>
      forms.map((form) => {
        const place = form.querySelector(".curl") ? form : form.parentElement;
        return place.querySelector(".curl pre")?.textContent ?? "none";
      }),
    );
    for (const command of commands) assert.match(command, /^curl /, view);
    assert.ok(
      commands.some((command) => command.includes(`${service.url}${address}`)),
      `${view}: ${commands}`,
    );
  }

  // What is asked is what is typed, before anybody asks it in the page.
  await page.open(service, "#/clients");
  await page.fill("Client", "it's ann");
  await page.fill("And", "resource=api");
  const explained = await run(".search");
  assert.deepEqual([explained.allowed, explained.policies[0].policy.name], [true, "api"]);
  await page.open(service, "#/gateway");
  await page.fill("Path", "/orders/7?a=b");
  assert.match(JSON.stringify(await run(".panel:has(form)")), /"orders"/);
  await page.open(service, "#/edge");
  await page.fill("Client's address", "192.0.2.1");
  assert.match(JSON.stringify(await run(".panel:has(form)")), /"rio"/);
  await page.open(service, "#/intake");
  await page.fill("Metric", "cpu.usage");
  await page.choose("As", "max");
  const queried = await run(".panel:has(form)");
  assert.deepEqual([queried.name, queried.agg], ["cpu.usage", "max"]);
  await page.open(service, "#/playground?limit=10&window=10&pattern=edge");
  await page.shows("20 of 20");
  const { curves } = await run("main");
  const allowed = curves.map(({ verdicts }) => verdicts.filter((verdict) => verdict.allowed).length);
  assert.deepEqual(allowed.slice(0, 2), [20, 10]);

  // A client's own limit, and a new start for it.
  const decision = { attributes: { client_id: "bob" } };
  for (let n = 0; n < 3; n += 1) await service.ask("POST", "/v1/decisions", decision, header);
  await page.open(service, "#/clients?id=bob");
  await page.shows("3 of 5");
  await page.click("button", "Give it its own limit");
  await page.fill("Limit", "9");
  await page.shows("everyone's: 5");
  await run("form.edit");
  await page.shows("9 per 60 s the client's own");
  await page.click("button", "Cancel");
  await page.click("button", "Reset its usage");
  assert.deepEqual((await run(".confirm")).reset, ["api"]);
  await page.shows("0 of 9");

  // A policy: made, changed, put back, and taken away.
  await page.open(service, "#/policies/+");
  await page.fill("Name", "extra");
  await page.fill("Limit", "70");
  await run("form.edit");
  await page.open(service, "#/policies/extra");
  await page.shows("70 per 60 s");
  await page.click("button", "Edit");
  await page.fill("Limit", "80");
  const typed = await page.line("form.edit .curl pre");
  await page.click("button", "Review");
  await page.says(".review .curl pre", typed);
  await run(".review");
  await page.shows("80 per 60 s");
  await page.open(service, "#/policies");
  await page.open(service, "#/policies/extra");
  await page.click("button", "Revert to before it");
  await run(".review");
  await page.shows("70 per 60 s");
  await page.click("button", "Delete the stored one");
  await run(".review");
  await page.shows("There is no policy extra in force.");

  // A run of the tester: begun and cancelled.
  await page.open(service, "#/saturation");
  await page.fill("Target", `${service.url}/livez`);
  assert.equal((await run(".panel:has(form)")).blocked, false);
  await page.click("button", "Look first");
  await page.shows("This machine allows it.");
  await run(".panel:has(form)");
  await page.shows(`Run against ${service.url}/livez`);
  await run(".panel:has(.said, [role=status])");
  await page.shows("It ended early");
  const log = (await service.ask("GET", "/v1/audit?after=0", undefined, header)).body;
  assert.ok(log.every(({ actor }) => actor === "anna"));
  assert.deepEqual(
    log.map(({ kind, name }) => `${kind} ${name}`),
    [
      "override bob",
      "usage bob",
      "policy extra",
      "policy extra",
      "policy extra",
      "policy extra",
      "saturation_run started",
      "saturation_run cancelled",
    ],
  );
});
