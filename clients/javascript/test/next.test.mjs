// A real Next application: built, started, and asked. A file of its own, since the build takes its time beside the others.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { promisify } from "node:util";
import { CONFORMANCE, TOKEN, takeRequests, withServer } from "./support.mjs";

const CASES = CONFORMANCE.middleware;
const NEXT = createRequire(import.meta.url).resolve("next/dist/bin/next");
const ROOT = join(import.meta.dirname, "../next");
const FILES = {
  "next.config.mjs": "export default {};",
  "options.js": `
    import { Tidegate } from "tidegate";

    const query = (request) => new URL(request.url).searchParams;
    export const options = {
      client: new Tidegate({ deadlineMs: 2_000 }),
      key: (request) => request.headers.get("x-client"),
      attributes: (request) => ({
        resource: query(request).get("resource") ?? "${CASES.attributes.resource}",
        client_id: query(request).get("tenant"),
      }),
      cost: (request) => Number(query(request).get("cost") ?? 1),
      skip: (request) => new URL(request.url).pathname === "/health",
    };`,
  "app/route.js": `
    import { withTidegate } from "tidegate/next";
    import { options } from "../options";

    export const GET = withTidegate(async () => new Response("ok"), options);`,
  "app/health/route.js": `
    import { withTidegate } from "tidegate/next";
    import { options } from "../../options";

    export const GET = withTidegate(async () => new Response("ok"), options);`,
  "app/stream/route.js": `
    import { settlementOf, withTidegate } from "tidegate/next";
    import { options } from "../../options";

    export const GET = withTidegate(async (request) => {
      let sent = 0;
      const pull = (controller) => {
        sent += 1;
        if (sent <= 10) return controller.enqueue(new TextEncoder().encode("piece\\n"));
        settlementOf(request).settle(1);
        controller.close();
      };
      return new Response(new ReadableStream({ pull }));
    }, options);`,
  "app/page/page.js": "export default () => <p>a page</p>;",
  "app/layout.js": "export default ({ children }) => <html lang='en'><body>{children}</body></html>;",
  "proxy.js": `
    import { tidegate } from "tidegate/next";
    import { options } from "./options";

    export const proxy = tidegate(options);
    export const config = { matcher: "/page" };`,
};

test("next", async () => {
  for (const [name, text] of Object.entries(FILES)) {
    mkdirSync(dirname(join(ROOT, name)), { recursive: true });
    writeFileSync(join(ROOT, name), text);
  }
  await withServer(async (own) => {
    const env = {
      ...process.env,
      TIDEGATE_URL: own.url,
      TIDEGATE_TOKEN: TOKEN,
      NEXT_TELEMETRY_DISABLED: "1",
    };
    await promisify(execFile)(process.execPath, [NEXT, "build", "--webpack"], { cwd: ROOT, env });
    const options = ["start", "--port", "0", "--hostname", "127.0.0.1"];
    const app = spawn(process.execPath, [NEXT, ...options], {
      cwd: ROOT,
      env,
      stdio: ["ignore", "pipe", "inherit"],
    });
    try {
      let port = 0;
      for await (const line of createInterface({ input: app.stdout })) {
        port = Number(/http:\/\/(?:localhost|127\.0\.0\.1):(\d+)/.exec(line)?.[1] ?? port);
        if (line.includes("Ready")) break;
      }
      assert(port > 0);
      await takeRequests(own, port, CASES.steps);
      const page = async () => {
        const response = await fetch(`http://127.0.0.1:${port}/page`, { headers: { "x-client": "page" } });
        return [
          response.status,
          response.headers.get("ratelimit"),
          (await response.text()).includes("a page"),
        ];
      };
      assert.deepEqual(await page(), [200, '"three";r=2;t=1200', true]);
      await page();
      await page();
      const [status, , shown] = await page();
      assert.deepEqual([status, shown], [429, false]);
    } finally {
      const exit = once(app, "exit");
      app.kill("SIGKILL");
      await exit;
    }
  });
});
