// A run of the tester from the page: looked at first, cancelled, run to its end, opened; and it ends with the server.

import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { scenario, until } from "./support.mjs";

/** The tester's processes that write into this folder. */
function testers(folder) {
  const cmdline = (pid) => {
    try {
      return readFileSync(`/proc/${pid}/cmdline`, "utf8");
    } catch {
      // It has ended since.
      return "";
    }
  };
  return readdirSync("/proc").filter((pid) => {
    const words = /^\d+$/.test(pid) ? cmdline(pid) : "";
    return words.includes("--attended") && words.includes(folder);
  });
}

await scenario(async ({ server, tab }) => {
  // A folder of its own name, by which its children are known.
  const service = server();
  await service.start({ TIDEGATE_DATA_DIR: join(service.folder, "data") });
  const page = await tab();
  const ask = async (target, seconds) => {
    await page.fill("Target", target);
    await page.fill("Most connections", "2");
    await page.fill("Seconds of a step", seconds);
    await page.fill("Most minutes", "5");
    const parameters = new URLSearchParams({
      target,
      max_connections: 2,
      step_seconds: seconds,
      max_minutes: 5,
    });
    await page.says(
      ".panel:has(form) .curl pre",
      `curl '${service.url}/v1/saturation/preflight?${parameters}'`,
    );
    await page.click("button", "Look first");
  };
  await page.open(service, "#/saturation");
  await page.shows("None. A run that is started here leaves one");
  await ask("http://192.0.2.1/", "60");
  await page.shows('is "http://192.0.2.1/"');
  await ask(`${service.url}/livez`, "60");
  await page.shows("This machine allows it.");
  await page.isAccessible("what the machine allows");
  await page.click("button", "Start");
  await page.shows(`Run against ${service.url}/livez`);
  await until("it runs", () => testers(service.folder).length > 0);
  const body = { target: `${service.url}/livez` };
  assert.equal((await service.ask("POST", "/v1/saturation/run", body)).status, 409);
  assert.match((await service.ask("GET", "/metrics")).body, /^tidegate_saturation_running 1$/m);
  await page.isAccessible("a run");
  await page.click("button", "Cancel");
  await page.shows("It ended early, or could not measure all of it.");
  assert.deepEqual(testers(service.folder), []);
  assert.equal((await service.ask("DELETE", "/v1/saturation/run")).status, 404);

  // To its end: its report is in the list, and opens by an address that can be sent to somebody.
  await ask(`${service.url}/livez`, "0.2");
  await page.shows("This machine allows it.");
  await page.click("button", "Start");
  await page.shows("It is done.");
  const { reports } = (await service.ask("GET", "/v1/saturation")).body;
  const whole = reports.filter(({ name }) => name.startsWith("run-"));
  assert.ok(whole.length >= 1);
  const [newest] = whole;
  await page.click("link", newest.name);
  const report = (await service.ask("GET", `/v1/saturation/reports/${newest.name}`)).body;
  assert.equal(report.schema, "tidegate-report/2");
  await page.shows(report.conclusion.sentence);
  assert.equal(new URL(page.page.url()).hash, `#/saturation?report=${newest.name}`);
  await page.pictures("saturation", true);
  const phone = await tab({ width: 320, height: 640, scheme: "dark" });
  await phone.open(service, `#/saturation?report=${newest.name}`);
  await phone.shows(report.conclusion.sentence);
  await phone.fits("a report of a run on a telephone");
  await phone.isAccessible("a report of a run, dark");
  await phone.picture("saturation-phone", true);

  await page.page.bringToFront();
  // What somebody puts into the folder is listed, and nothing beside the folder is reached.
  writeFileSync(join(service.folder, "data", "saturation", "mine.json"), JSON.stringify(report));
  writeFileSync(join(service.folder, "data", "secret.json"), "{}");
  await page.shows("mine.json");
  const outside = await service.ask("GET", "/v1/saturation/reports/..%2Fsecret.json");
  assert.equal(outside.status, 404);
  const log = (await service.ask("GET", "/v1/audit?after=0&limit=10")).body;
  assert.deepEqual(
    log.map(({ kind, name, before }) => [kind, name, before.wanted.target]),
    ["started", "cancelled", "started"].map((what) => ["saturation_run", what, `${service.url}/livez`]),
  );

  await page.open(service, "#/audit");
  await page.shows(`started a saturation run of ${service.url}/livez`);
  await page.shows(`cancelled a saturation run of ${service.url}/livez`);

  // A server that is killed takes the run with it.
  await service.ask("POST", "/v1/saturation/run", { ...body, step_seconds: 60, max_minutes: 5 });
  await until("it runs", () => testers(service.folder).length > 0);
  await service.stop("SIGKILL");
  await until("the run ends with the server", () => testers(service.folder).length === 0);
});
