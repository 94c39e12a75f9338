// The server is killed and started again: the page says that it lost it, and goes on by itself (fault 74).

import assert from "node:assert/strict";
import { scenario, until } from "./support.mjs";

const fileOf = (limit) => `
[[policy]]
name = "web"
limit = ${limit}
window_seconds = 60
match = { resource = "web" }
`;

await scenario(async ({ server, tab }) => {
  const service = await server()
    .configure(`${fileOf(20)}[[policy]]\nname = "default"\nlimit = 100\nwindow_seconds = 60\n`)
    .start();
  const page = await tab();
  const streams = [];
  page.page.on("request", (request) => {
    if (request.url().includes("/v1/events")) streams.push(request.url());
  });
  await page.open(service, "#/policies/default");
  await page.shows("100 per 60 s");
  await service.ask("PUT", "/v1/policies/default", { limit: 30, window_seconds: 60 });
  // By the event stream: nobody touched the page.
  await page.shows("30 per 60 s");
  await service.stop();
  await page.shows("The connection to the server is lost.");
  await page.shows("30 per 60 s");
  await service.start();
  await page.hides("The connection to the server is lost.");
  // It says which event was the last that it had.
  assert.match(streams[0], /\/v1\/events$/);
  assert.match(streams.at(-1), /\/v1\/events\?after=1-[0-9a-f]{16}$/);
  await service.ask("PUT", "/v1/policies/default", { limit: 31, window_seconds: 60 });
  await page.shows("31 per 60 s");
  await page.open(service, "#/");
  await page.page.reload();
  await page.shows("revision 2 in force");
  // What is counted begins anew in between: there is a gap and no negative rate, in any row and any chart.
  const told = async () => {
    const labels = await page.page.$$eval("[role=img]", (drawn) => drawn.map((it) => it.ariaLabel));
    return `${await page.text()} ${labels.join(" ")}`;
  };
  await service.spend("b", 60);
  await page.shows("HTTP\t");
  await until("all requests are shown", async () => /^HTTP\s.*\s60$/m.test(await page.text()));
  await service.stop();
  await page.shows("The connection to the server is lost.");
  await service.start();
  await service.spend("b", 7);
  const seen = [];
  await until("the requests since the restart are shown", async () => {
    seen.push(await told());
    return /^HTTP\s.*\s7$/m.test(seen.at(-1));
  });
  // Two readings later there are rates again, of what the new process counts.
  await until("rates are shown again", async () => {
    await service.spend("b", 1);
    seen.push(await told());
    return /now [1-9][\d.,]* allowed/.test(seen.at(-1));
  });
  for (const text of seen) assert.doesNotMatch(text, /[-−]\d/, text);

  // Another file is shown as it is in force.
  await page.open(service, "#/policies/web");
  await page.shows("20 per 60 s");
  service.configure(fileOf(21));
  service.process.kill("SIGHUP");
  await page.shows("21 per 60 s");
  // It stands among the changes, with what differs.
  await page.open(service, "#/");
  await page.shows(`file changed the file ${service.file}`);
  await page.click("link", "All changes");
  const detail = await page.page.waitForSelector("li:has([href='#/configuration']) details");
  await detail.evaluate((details) => {
    details.open = true;
  });
  await page.shows("policy web");
  await page.shows('"limit":21');
  await page.isAccessible("a change of the file");
});
