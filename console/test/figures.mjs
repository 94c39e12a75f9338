// How long the page holds up who looks at it: 10,000 policies, 1,000 decisions per second over all of them, and changes of
// clients' own limits one after the other, as fast as they are stored, of which the page is told each.
// Not a test: regression/console prints it.

import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { scenario } from "./support.mjs";

const COUNT = 10_000;
const RATE = 1_000;
/** Who change limits at once. */
const WRITERS = 32;
/** How long each view is looked at, in milliseconds: several readings of the numbers. */
const LOOK = 12_000;

const policies = Array.from(
  { length: COUNT },
  (_, n) =>
    `[[policy]]\nname = "p${n}"\nlimit = ${(n % 400) + 1}\nwindow_seconds = 60\nmatch = { path = "/p${n}" }\n`,
);

const load = `name = "policies"
[[request]]
method = "POST"
path = "/v1/decisions"
headers = { "content-type" = "application/json" }
body = '{"attributes":{"client_id":"c{{counter % 50}}","path":"/p{{counter % ${COUNT}}}"}}'
[[step]]
connections = 8
rate = ${RATE}
duration_s = 600
warmup_s = 0
`;

const VIEWS = [
  ["overview", "#/", "Requests per second"],
  ["policies", "#/policies", "10,000 policies"],
  ["overview, after a while", "#/", "Requests per second"],
  ["one policy", "#/policies/p4711", "Applies to"],
  ["one client", "#/clients?id=c7&with=path%3D%2Fp7", "9,999 policies do not apply"],
  ["logs", "#/logs", "Logs"],
];

await scenario(async ({ server, tab }) => {
  const service = await server().configure(policies.join("")).start();
  const file = join(service.folder, "load.toml");
  writeFileSync(file, load);
  const command = ["load", service.url, "--scenario", file, "--threads", "1", "--force"];
  const generator = spawn(process.env.TIDEGATE_BIN, command, { stdio: "ignore" });
  let isOver = false;
  let changes = 0;
  const change = async (writer) => {
    for (let n = 0; !isOver; n += 1) {
      const client = `c${writer}-${n % 50}`;
      const { status } = await service.ask("PUT", `/v1/clients/${client}/limits`, {
        p7: { limit: (n % 900) + 1 },
      });
      if (status !== 200) throw new Error(`a change was answered ${status}`);
      changes += 1;
    }
  };
  const writers = Promise.all(Array.from({ length: WRITERS }, (_, writer) => change(writer)));
  const began = Date.now();
  try {
    const page = await tab();
    await page.page.evaluateOnNewDocument(() => {
      globalThis.tasks = [];
      new PerformanceObserver((list) => {
        for (const { duration } of list.getEntries()) globalThis.tasks.push(duration);
      }).observe({ type: "longtask", buffered: true });
    });
    const show = async ([name, address, text]) => {
      await page.open(service, address);
      await page.shows(text);
      await new Promise((resolve) => setTimeout(resolve, LOOK));
      const tasks = await page.page.evaluate(() => globalThis.tasks.splice(0));
      const longest = tasks.length > 0 ? `${Math.max(...tasks).toFixed(0)} ms` : "less than 50 ms";
      console.log(`${name}: ${tasks.length} tasks of 50 ms or more, the longest task ${longest}`);
    };
    for (const view of VIEWS) await show(view);
    const painted = await page.page.evaluate(
      () => performance.getEntriesByName("first-contentful-paint")[0]?.startTime,
    );
    console.log(`first paint after ${painted?.toFixed(0)} ms`);
    console.log(`beside ${((1000 * changes) / (Date.now() - began)).toFixed(0)} changes per second`);
  } finally {
    isOver = true;
    await writers;
    generator.kill();
  }
});
