// A histogram says of its first bucket only that what is in it was faster: the page says no more than that. The code of
// the page itself, in a browser, on text as the metrics page has it.

import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { scenario } from "./support.mjs";

const { outputFiles } = await build({
  stdin: {
    contents: 'export { parse, quantile } from "./metrics"; export { speed } from "./format";',
    resolveDir: join(dirname(fileURLToPath(import.meta.url)), "../src"),
    loader: "ts",
  },
  bundle: true,
  format: "iife",
  globalName: "tested",
  write: false,
});

const histogram = (counts) =>
  ["0.0001", "0.00025", "0.0005", "+Inf"].map((le, n) => `d_bucket{le="${le}"} ${counts[n]}\n`).join("");

/** What is shown of p50 and p99 where so many came to be in each bucket. */
async function shown(page, counts) {
  return await page.page.evaluate(
    async (before, after) => {
      const { parse, quantile, speed } = globalThis.tested;
      const [old, now] = [await parse(before, 0), await parse(after, 2_000)];
      return [0.5, 0.99].map((share) => speed(quantile(old, now, ["d"], () => true, share)));
    },
    histogram([5, 5, 5, 5]),
    histogram(counts.map((count) => count + 5)),
  );
}

await scenario(async ({ server, tab }) => {
  const service = await server().start();
  const page = await tab();
  await page.open(service);
  await page.shows("Time to decide");
  // The page's own policy keeps scripts out; this one comes by the debugger.
  await page.page.evaluate(`${outputFiles[0].text};globalThis.tested = tested;`);
  assert.deepEqual(await shown(page, [100, 100, 100, 100]), ["< 100 µs", "< 100 µs"]);
  assert.deepEqual(await shown(page, [60, 100, 100, 100]), ["< 100 µs", "246 µs"]);
  assert.deepEqual(await shown(page, [0, 100, 100, 100]), ["175 µs", "249 µs"]);
  assert.deepEqual(await shown(page, [0, 0, 0, 100]), ["500 µs", "500 µs"]);
  assert.deepEqual(await shown(page, [0, 0, 0, 0]), ["–", "–"]);
});
