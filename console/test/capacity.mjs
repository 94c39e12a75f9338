// A capacity report is accepted in the page: from then on the overview says how near the load is to it.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { scenario } from "./support.mjs";

const SHORT = ["--levels", "1,2", "--step-seconds", "0.3", "--warmup-seconds", "0.1", "--repeats", "1"];

/** A report of the tester itself, with figures that no machine's speed decides. */
function reportOf(service) {
  const file = join(service.folder, "report.json");
  const flags = [...SHORT, "--plain", "--force", "--no-pin", "--json", file];
  const ran = spawnSync(process.env.TIDEGATE_BIN, ["saturate", `${service.url}/livez`, ...flags], {
    timeout: 120_000,
    encoding: "utf8",
  });
  assert.ok(existsSync(file), `no report: ${ran.stdout}${ran.stderr}`);
  const report = JSON.parse(readFileSync(file, "utf8"));
  report.capacity = {
    throughput: 500,
    interval: { low: 490, high: 510 },
    bound: "reached",
    load: 2,
    repeats: 3,
  };
  report.knee = null;
  // All that is shown of it says the same.
  const most = Math.max(...report.levels.map(({ throughput }) => throughput));
  for (const level of report.levels) {
    const throughput = (500 * level.throughput) / most;
    Object.assign(level, { throughput, error_ratio: 0, denied_ratio: 0.5 });
  }
  report.conclusion = {
    sentence: `It does 500 good requests per second; why not more: ${report.cause.summary} (${report.cause.name}).`,
    advice: "Look again with more connections.",
  };
  writeFileSync(file, JSON.stringify(report));
  return { file, report };
}

const used = async (service) => {
  const { body } = await service.ask("GET", "/metrics");
  return Number(/^tidegate_capacity_used_ratio (\S+)/m.exec(body)?.[1] ?? Number.NaN);
};

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  const { file, report } = reportOf(service);
  const page = await tab();
  await page.open(service, "#/saturation");
  const field = await page.page.waitForSelector("#reports");
  await field.uploadFile(file);
  // The command that the form shows does the same, beside the file.
  const accepting = await page.line(".panel:has(.stats) .curl pre");
  assert.match(accepting, /-X POST .*\/v1\/capacity\?server=api' .*-d @report\.json$/);
  await service.shell(accepting);
  await page.shows("of 1,000 requests per second");
  await service.ask("DELETE", "/v1/capacity");
  await page.hides("of 1,000 requests per second");
  await page.click("button", "Accept as its capacity");
  await page.shows("Accepted.");
  // 500 good replies and as many denials.
  await page.shows("of 1,000 requests per second");
  await page.isAccessible("an accepted report");
  await page.pictures("capacity", true);
  const deadline = Date.now() + 60_000;
  while (!((await used(service)) > 0)) {
    assert.ok(Date.now() < deadline, "the load is never counted");
    await service.spend("somebody", 20);
  }
  await page.open(service, "#/");
  await page.shows(`of the capacity; cause then: ${report.cause.name}`);
  const phone = await tab({ width: 320, height: 640, scheme: "dark" });
  await phone.open(service, "#/saturation");
  await phone.shows("of 1,000 requests per second");
  await phone.fits("an accepted report on a telephone");
  await phone.isAccessible("an accepted report, dark");
  await phone.picture("capacity-phone", true);

  // What is no report is refused in plain words, and changes nothing.
  const refused = async (body, says, server = "api") => {
    const answer = await service.ask("POST", `/v1/capacity?server=${server}`, body);
    assert.equal(answer.status, 422, JSON.stringify(answer.body));
    assert.match(JSON.stringify(answer.body.errors), says);
  };
  await refused({}, /not a tidegate report: missing field `schema`/);
  await refused({ ...report, schema: "tidegate-report/1" }, /schema `tidegate-report\/1` is not/);
  await refused({ ...report, levels: 7 }, /not a tidegate report/);
  await refused({ ...report, capacity: null }, /found no capacity/);
  await refused(report, /"\/server"/, "nothing");

  // It is the configuration's: in the audit log, and there after the process was killed.
  const log = (await service.ask("GET", "/v1/audit?after=0&limit=10")).body;
  assert.deepEqual(
    log.map(({ actor, kind, action }) => [actor, kind, action]),
    ["put", "delete", "put"].map((action) => ["local", "capacity", action]),
  );
  await service.stop("SIGKILL");
  await service.start();
  assert.equal((await service.ask("GET", "/v1/capacity")).body.accepted.per_second, 1000);
  await page.page.bringToFront();
  await page.open(service, "#/saturation");
  // It is asked first, and forgets no other one than was shown.
  await page.click("button", "Forget it");
  await page.shows("The load is then compared with nothing.");
  const command = await page.line(".review .curl pre");
  assert.match(command, /^curl -X DELETE http:\/\/\S+\/v1\/capacity -H 'if-match: "3"'$/);
  await page.isAccessible("a report that is to be forgotten");
  // 400 good replies and as many denials, where the curve bends.
  const knee = { concurrency: 2, throughput: 400, p99_us: 1_000, between: { low: 1, high: 2 } };
  const other = { ...report, knee, started: "2026-01-02T03:04:05Z" };
  assert.equal((await service.ask("POST", "/v1/capacity", other)).status, 200);
  await page.says(
    ".panel:has(.review) p",
    /^Now at [\d.]+ % of the knee: [\d.,]+ of 800 requests per second\./,
  );
  await page.click("button", "Forget");
  await page.shows("Somebody else changed it meanwhile.");
  assert.equal((await service.ask("GET", "/v1/capacity")).body.accepted.started, other.started);
  await page.click("button", "Put mine over theirs");
  await page.click("button", "Forget");
  await page.hides("Capacity of api");
  const { body } = await service.ask("GET", "/v1/capacity");
  assert.deepEqual(body, { accepted: null, requests_per_second: null, used: null });
  assert.ok(Number.isNaN(await used(service)));
});
