// Behind a proxy that has the console under a path of its own: everything that the page asks for is below that path, and so is
// what it tells others to ask.

import assert from "node:assert/strict";
import { createServer, request } from "node:http";
import { scenario } from "./support.mjs";

const PREFIX = "/limits";

/** Passes on what is below the prefix, without it, and notes what is not. */
function proxyTo(server, strays) {
  return createServer((asked, reply) => {
    if (!asked.url.startsWith(`${PREFIX}/`)) {
      strays.push(asked.url);
      reply.writeHead(404).end();
      return;
    }
    const path = asked.url.slice(PREFIX.length);
    const { hostname, port } = new URL(server.url);
    const passed = request(
      { hostname, port, path, method: asked.method, headers: asked.headers },
      (answer) => {
        reply.writeHead(answer.statusCode, answer.headers);
        answer.pipe(reply);
      },
    );
    passed.on("error", () => reply.destroy());
    reply.on("close", () => passed.destroy());
    asked.pipe(passed);
  });
}

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  const strays = [];
  const proxy = proxyTo(service, strays);
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  try {
    const origin = `http://127.0.0.1:${proxy.address().port}`;
    const page = await tab();
    await page.open({ url: `${origin}${PREFIX}/` });
    // What it holds in the browser's own store is asked of that origin, too.
    page.origin = origin;
    await page.shows("Nobody has asked for a decision yet.");
    await page.shows(`${origin}${PREFIX}/api/v1/ratelimit`);
    assert.equal(await service.spend("user123", 103), 3);
    await page.click("link", "user123");
    await page.shows("user123 is denied by the policy default");
    assert.match(await page.line(".search .curl pre"), new RegExp(`^curl '?${origin}${PREFIX}/v1/explain`));
    // A change, and the stream that tells of it.
    await page.click("button", "Give it its own limit");
    await page.fill("Limit", "250");
    await page.click("button", "Save");
    await page.shows("A request of user123 would be allowed now.");
    await page.open({ url: `${origin}${PREFIX}/dashboard` });
    await page.shows("revision 1 in force");
    assert.equal(new URL(page.page.url()).pathname, `${PREFIX}/`);
    // A browser looks for an icon at the root by itself.
    assert.deepEqual(
      strays.filter((path) => path !== "/favicon.ico"),
      [],
      "asked beside the prefix",
    );
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});
