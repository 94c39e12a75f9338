// A page that nobody looks at costs the server nothing: hidden or closed, it asks for nothing and holds no stream. In sight
// again, it is told what has changed since.

import assert from "node:assert/strict";
import { scenario, until } from "./support.mjs";

/** Longer than the time after which any of these views asks again, in milliseconds. */
const LONGER = 5_000;

const VIEWS = ["#/", "#/clients?id=user123", "#/gateway", "#/intake", "#/logs", "#/saturation"];

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  const readers = () => service.metric("tidegate_event_readers");
  const opened = async (view) => {
    const page = await tab();
    const asked = [];
    page.page.on("request", (request) => asked.push(request.url()));
    await page.open(service, view);
    await until(`${view}: it asks again and again`, () => new Set(asked).size < asked.length);
    return { page, asked, view };
  };
  const pages = [];
  for (const view of VIEWS) pages.push(await opened(view));
  assert.ok((await readers()) > 0);
  const closed = await opened("#/");
  await closed.page.page.close();
  const nothing = await tab();
  await nothing.page.goto("about:blank");
  // The server notices at its next word to them.
  await until("nobody is told anything", async () => (await readers()) === 0);
  // Whoever says that it is hidden has told of all that it asked for before.
  const isHidden = ({ page }) => page.page.evaluate(() => document.visibilityState === "hidden");
  for (const it of pages) await until(`${it.view}: it is hidden`, () => isHidden(it));
  const before = pages.map(({ asked }) => asked.length);
  await nothing.page.evaluate((ms) => new Promise((done) => setTimeout(done, ms)), LONGER);
  for (const it of pages) assert.ok(await isHidden(it), it.view);
  assert.deepEqual(
    pages.map(({ asked }) => asked.length),
    before,
    "hidden pages ask",
  );
  const limits = { default: { limit: 3 } };
  assert.equal((await service.ask("PUT", "/v1/clients/missed/limits", limits)).status, 200);
  for (const [place, { page, asked, view }] of pages.entries()) {
    await page.page.bringToFront();
    await until(`${view}: in sight, it asks again`, () => asked.length > before[place]);
    if (view === "#/") await page.shows("limits of client missed");
  }
  assert.ok((await readers()) > 0);
});
