// The last warnings of the server, in the page: as text, whatever is in them; of one level, and what is said again as one line.

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
  // The mistake is an error, and what follows from it a warning.
  const [mistake, follows] = ["mistake=/intake/policies", "batches are answered 503"];
  await page.choose("Level", "warn");
  await page.hides(mistake);
  await page.shows(follows);
  await page.choose("Level", "error");
  await page.shows(mistake);
  await page.fill("Find", follows);
  await page.shows(`No line of this level has “${follows}” in it.`);
  assert.match(new URL(page.page.url()).hash, /&level=error$/);
  await page.fill("Find", "onerror");
  const row = "[role=rowgroup] > [role=row]";
  const said = (times) => page.says(`${row} [data-label=Times]`, String(times));
  await said(1);
  service.process.kill("SIGHUP");
  await said(2);
  assert.equal((await page.page.$$(row)).length, 1, "it is one line");
  const phone = await tab({ width: 320, height: 640, scheme: "dark" });
  await phone.open(service, "#/logs");
  await phone.shows('lists "not-there"');
  await phone.fits("logs on a telephone");
  await phone.isAccessible("logs, dark");
  await phone.picture("logs-phone", true);
});
