// The last warnings of the server, in the page: as text, whatever is in them.

import assert from "node:assert/strict";
import { join } from "node:path";
import { scenario } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const service = await server().configure('intake.policies = ["not-there"]\n').start();
  const page = await tab();
  await page.open(service, "#/logs");
  await page.shows("intake.policies lists a policy that is not in force");
  await page.shows("policy=not-there");
  const before = await service.ask("GET", "/v1/warnings");
  // A file with a mistake is refused, and the log says so.
  service.configure('[[policy]]\nname = "<img src=x onerror=alert(1)>"\nlimit = 1\nwindow_seconds = 1\n');
  service.process.kill("SIGHUP");
  await page.shows("<img src=x onerror=alert(1)>");
  const after = await service.ask("GET", "/v1/warnings");
  assert.ok(after.body.errors + after.body.warnings > before.body.errors + before.body.warnings);
  assert.ok(after.body.last[0].at_unix_ms >= after.body.last.at(-1).at_unix_ms, "the newest first");
  await page.isAccessible("logs");
  await page.fill("Find", "NOT-THERE");
  await page.hides("onerror");
  assert.equal(new URL(page.page.url()).hash, "#/logs?find=NOT-THERE");
  const folder = process.env.TIDEGATE_SCREENSHOTS;
  if (folder) await page.page.screenshot({ path: join(folder, "logs-light.png") });
  const phone = await tab({ width: 320, height: 640, scheme: "dark" });
  await phone.open(service, "#/logs");
  await phone.shows("policy=not-there");
  await phone.fits("logs on a telephone");
  await phone.isAccessible("logs, dark");
  if (folder) await phone.page.screenshot({ path: join(folder, "logs-phone.png"), fullPage: true });
});
