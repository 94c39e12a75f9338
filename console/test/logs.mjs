// The last warnings of the server, in the page: as text, whatever is in them.

import assert from "node:assert/strict";
import { scenario, until } from "./support.mjs";

await scenario(async ({ server, tab }) => {
  const service = await server().configure('intake.policies = ["not-there"]\n').start();
  const page = await tab();
  await page.open(service, "#/logs");
  await page.shows("a document or a setting refers to what is not there");
  await page.shows('mistake=/intake/policies lists "not-there"');
  const told = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  let before;
  // A busy machine can be warned of meanwhile.
  await until("as many are told as there are", async () => {
    before = await service.ask("GET", "/v1/warnings");
    const { errors, warnings } = before.body;
    const text = `${told(errors, "error")} and ${told(warnings, "warning")} since the process began`;
    return (await page.text()).includes(text);
  });
  // A file with a mistake is refused, and the log says so.
  service.configure('[[policy]]\nname = "<img src=x onerror=alert(1)>"\nlimit = 1\nwindow_seconds = 1\n');
  service.process.kill("SIGHUP");
  await page.shows("<img src=x onerror=alert(1)>");
  const after = await service.ask("GET", "/v1/warnings");
  assert.ok(after.body.errors + after.body.warnings > before.body.errors + before.body.warnings);
  assert.ok(after.body.last[0].at_unix_ms >= after.body.last.at(-1).at_unix_ms, "the newest first");
  await page.isAccessible("logs");
  await page.pictures("logs");
  await page.fill("Find", "NOT-THERE");
  await page.hides("onerror");
  assert.equal(new URL(page.page.url()).hash, "#/logs?find=NOT-THERE");
  const phone = await tab({ width: 320, height: 640, scheme: "dark" });
  await phone.open(service, "#/logs");
  await phone.shows('lists "not-there"');
  await phone.fits("logs on a telephone");
  await phone.isAccessible("logs, dark");
  await phone.picture("logs-phone", true);
});
