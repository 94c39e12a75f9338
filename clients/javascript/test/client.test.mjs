// What conformance.json cannot say: fault 75 by the clock, disposal, hooks, module systems, other runtimes.
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { Tidegate, VERSION } from "tidegate";
import { LocalLimiter } from "tidegate/fallback";
import { metrics } from "tidegate/otel";
import { items, Pacer, pacedFetch, waitAfter } from "tidegate/pacing";
import { DECISION, NotAsDocumented, read } from "tidegate/types";
import { protect } from "tidegate/web";
import {
  CLIENTS,
  CONFORMANCE,
  differs,
  TOKEN,
  until,
  withFault,
  withNothing,
  withServer,
} from "./support.mjs";

const run = promisify(execFile);
const WHO = { client_id: "u", resource: "ten" };
const DEADLINE_MS = 50;
// How much later than a timer of the same length the 99th percentile may be.
const LATE_MS = 5;
const ROUNDS = 20;

/** Milliseconds of each call. */
async function times(count, call) {
  const found = [];
  for (let time = 0; time < count; time += 1) {
    const began = performance.now();
    await call();
    found.push(performance.now() - began);
  }
  return found;
}

const p99 = (took) => [...took].sort((a, b) => a - b)[Math.floor(took.length * 0.99)];

/**
 * Beside the calls others only wait for a timer of the deadline's length: they say how late this machine is by itself.
 * One that pauses threads makes some rounds of the calls later; one good round is the proof.
 */
async function inTime(calls) {
  const said = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const [took, slept] = await Promise.all([calls(), times(20, () => sleep(DEADLINE_MS))]);
    // None is as late as the server's silence, which has no end.
    assert(Math.max(...took) < 10_000, took.join(" "));
    said.push(`p99 ${p99(took).toFixed(1)} ms; of timers of the same length ${p99(slept).toFixed(1)} ms`);
    if (p99(took) <= p99(slept) + LATE_MS) return;
  }
  assert.fail(said.join("\n"));
}

/** The calls of several at once, each measured. */
const atOnce = async (callers, each, call) =>
  (await Promise.all(Array.from({ length: callers }, () => times(each, call)))).flat();

for (const fault of ["drip", "slow", "full", "endless", "endless_header"]) {
  test(`fault_75_a server that is ${fault} costs no more than the deadline`, () =>
    withFault(fault, async (url) => {
      const client = new Tidegate({ url, deadlineMs: DEADLINE_MS, breakerFailures: 1_000_000 });
      assert.equal((await client.allow(WHO)).degraded, "open");
      await inTime(() => times(20, () => client.allow(WHO)));
    }));
}

test("fault_75_a frozen server costs no more than the deadline", () =>
  withServer(async (own) => {
    const client = new Tidegate({
      url: own.url,
      token: TOKEN,
      breakerFailures: 1_000_000,
      maxConnections: 4,
    });
    await until(async () => (await client.allow(WHO, { peek: true })).source === "server");
    await own.freeze();
    await inTime(() => times(40, () => client.allow(WHO)));
    // More calls than connections: those that wait for one have the same deadline.
    await inTime(() => atOnce(8, 5, () => client.allow(WHO)));
    const holding = Array.from({ length: 4 }, () => client.allow(WHO, { deadlineMs: 1_000 }));
    await client.allow(WHO);
    assert(client.stats().connectionsFull > 0);
    await Promise.all(holding);
    own.thaw();
    await until(async () => (await client.allow(WHO, { peek: true })).source === "server");
  }));

test("batching sends fewer requests", () =>
  withServer(async ({ url }) => {
    const client = new Tidegate({ url, token: TOKEN, deadlineMs: 10_000, batch: true });
    const found = await Promise.all(Array.from({ length: 200 }, () => client.allow(WHO, { peek: true })));
    assert(found.every(({ source }) => source === "server"));
    const page = await (await fetch(`${url}/metrics`)).text();
    const counts = page.split("\n").filter((line) => /http_requests_total.*"\/v1\/decisions"/.test(line));
    const sent = counts.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
    assert(sent >= 1 && sent <= 3, `${sent} requests`);
  }));

test("more than a thousand requests are asked in parts", () =>
  withServer(async ({ url }) => {
    const client = new Tidegate({ url, token: TOKEN, deadlineMs: 10_000 });
    const requests = Array.from({ length: 2_500 }, (_, n) => ({
      attributes: { client_id: `${n}`, resource: "ten" },
    }));
    const found = await client.batch(requests);
    assert.equal(found.length, 2_500);
    assert(found.every(({ remaining, source }) => remaining === 9 && source === "server"));
  }));

test("a field of another type is no decision", () => {
  for (const wrong of [
    '"limit":-1',
    '"limit":1.5',
    '"limit":true',
    '"policies":{}',
    '"policy":7',
    '"permit":[]',
  ]) {
    const document = JSON.parse(`{"allowed":true,"policies":[],${wrong}}`);
    assert.throws(() => read(DECISION, document), NotAsDocumented, wrong);
  }
});

test("stats say when a bound was reached", () =>
  withNothing(async (url) => {
    const fallback = { limit: 2, windowSeconds: 3_600, keys: 3 };
    const client = new Tidegate({ url, onFailure: "local", fallback, breakerFailures: 4, deadlineMs: 5_000 });
    for (let number = 0; number < 5; number += 1) await client.allow({ client_id: `${number}` });
    const wanted = { connectionsFull: 0, denialsEvicted: 0, fallbackEvicted: 2, breakerOpen: true };
    assert.deepEqual(client.stats(), wanted);
  }));

test("the local limiter gives nothing for negative costs", () => {
  const limiter = new LocalLimiter({
    limit: 2,
    windowSeconds: 3_600,
    share: 1,
    key: ["client_id"],
    keys: 10,
  });
  const ask = (cost) => limiter.decide({ attributes: WHO, cost, peek: false }, 0);
  assert.equal(ask(2).allowed, true);
  assert.equal(ask(-5).remaining, 0);
  assert.equal(ask(1).allowed, false);
});

test("a leaky bucket holds requests back", async () => {
  const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
  const config = join(folder, "tidegate.toml");
  const policy = { name: '"leaky"', algorithm: '"leaky_bucket"', limit: 100, window_seconds: 10, burst: 10 };
  writeFileSync(config, ["[[policy]]", ...Object.entries(policy).map((pair) => pair.join(" = "))].join("\n"));
  await withServer(async ({ url }) => {
    const client = new Tidegate({ url, deadlineMs: 10_000 });
    const handle = protect(() => new Response("ok"), { client, key: () => "held" });
    const began = performance.now();
    for (let time = 0; time < 4; time += 1)
      assert.equal((await handle(new Request("http://shop/"))).status, 200);
    // Ten a second leave the bucket: the fourth waits for three before it.
    assert(performance.now() - began >= 290);
  }, config);
  rmSync(folder, { recursive: true });
});

test("a permit is released at the end of its scope", () =>
  withServer(async ({ url }) => {
    const client = new Tidegate({ url, token: TOKEN, deadlineMs: 10_000 });
    const who = { client_id: "p", resource: "slots" };
    for (let time = 0; time < 5; time += 1) {
      const permit = await client.acquire(who);
      assert(permit.held);
      assert.equal(permit.decision.remaining, 1);
      // What `await using` calls; the syntax itself is newer than Node 20.
      await permit[Symbol.asyncDispose]();
      assert(!permit.held);
    }
  }));

test("a hook hears of each call, may throw, and sees no client", () =>
  withNothing(async (url) => {
    const seen = [];
    const onEvent = (event) => {
      seen.push(event);
      throw new Error("a broken hook");
    };
    const client = new Tidegate({ url, deadlineMs: 10_000, onEvent });
    assert.equal((await client.allow({ client_id: "secret" })).failure, "connection");
    await client.refund({ client_id: "secret" });
    const told = seen.map(({ operation, outcome, failure }) => `${operation} ${outcome} ${failure}`);
    assert.deepEqual(told, ["allow allowed connection", "refund failed connection"]);
    assert(!JSON.stringify(seen).includes("secret"));
  }));

test("OpenTelemetry counts calls", () =>
  withServer(async ({ url }) => {
    const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
    const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
    const meter = new MeterProvider({ readers: [reader] }).getMeter("tests");
    const client = new Tidegate({ url, token: TOKEN, deadlineMs: 10_000, onEvent: metrics(meter) });
    await client.allow(WHO);
    await reader.forceFlush();
    const [{ scopeMetrics }] = exporter.getMetrics();
    const found = scopeMetrics[0].metrics.map(({ descriptor, dataPoints }) => [
      descriptor.name,
      dataPoints[0].attributes,
    ]);
    const labels = { operation: "allow", outcome: "allowed", source: "server", policy: "ten" };
    assert.deepEqual(found, [
      ["tidegate.client.calls", labels],
      ["tidegate.client.duration", labels],
    ]);
    await reader.shutdown();
  }));

test("require finds the same package", () => {
  const require = createRequire(import.meta.url);
  assert.equal(typeof require("tidegate").Tidegate, "function");
  assert.equal(require("tidegate").VERSION, VERSION);
  for (const name of ["express", "fastify", "hono", "next", "otel", "pacing", "express-rate-limit", "web"]) {
    assert(Object.keys(require(`tidegate/${name}`)).length > 0, name);
  }
});

test("the version is the binary's", () => {
  const cargo = readFileSync(join(CLIENTS, "../Cargo.toml"), "utf8");
  const version = /\[workspace\.package\][^[]*?\nversion = "([^"]+)"/.exec(cargo)[1];
  assert.equal(VERSION, version);
  assert.equal(JSON.parse(readFileSync(join(CLIENTS, "javascript/package.json"), "utf8")).version, version);
});

test("Deno asks too", () =>
  withServer(async ({ url }) => {
    const deno = createRequire(import.meta.url).resolve("deno/package.json");
    const script = join(import.meta.dirname, "deno.mjs");
    writeFileSync(
      script,
      `import { Tidegate } from "tidegate";
       const client = new Tidegate({ url: "${url}", token: "${TOKEN}", deadlineMs: 10_000 });
       const decision = await client.allow({ client_id: "deno", resource: "ten" });
       { await using permit = await client.acquire({ client_id: "deno", resource: "slots" }); console.log(permit.held); }
       console.log(decision.source, decision.remaining);`,
    );
    const options = ["run", "--quiet", "--no-prompt", "--node-modules-dir=manual", "--allow-net=127.0.0.1"];
    const { stdout } = await run(join(deno, "../bin.cjs"), [...options, script], {
      env: { ...process.env, DENO_NO_UPDATE_CHECK: "1" },
    });
    assert.equal(stdout, "true\nserver 9\n");
  }));

test("a page in a browser asks too", async () => {
  const package_ = join(createRequire(import.meta.url).resolve("tidegate"), "../../esm");
  let said;
  const answer = new Promise((resolve) => {
    said = resolve;
  });
  let page = "";
  const site = createServer(async (request, response) => {
    if (request.url === "/said") {
      let body = "";
      for await (const piece of request) body += piece;
      said(body);
    }
    const isScript = request.url.endsWith(".js");
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(isScript ? readFileSync(join(package_, request.url)) : page);
  }).listen(0, "127.0.0.1");
  await once(site, "listening");
  const origin = `http://127.0.0.1:${site.address().port}`;
  const profile = mkdtempSync(join(tmpdir(), "chromium-"));
  await withServer(
    async ({ url }) => {
      page = `<script type="module">
        import { Tidegate } from "/index.js";
        const client = new Tidegate({ url: "${url}", token: "${TOKEN}", deadlineMs: 60_000 });
        const found = await client.allow({ client_id: "browser", resource: "ten" });
        await fetch("/said", { method: "POST", body: JSON.stringify(found) });
      </script>`;
      const options = ["--headless", "--no-sandbox", "--disable-gpu", `--user-data-dir=${profile}`, origin];
      const browser = spawn("chromium", options, { stdio: "ignore" });
      const exit = once(browser, "exit");
      try {
        const { source, remaining } = JSON.parse(await answer);
        assert.deepEqual([source, remaining], ["server", 9]);
      } finally {
        browser.kill("SIGKILL");
        await exit;
        site.close();
        site.closeAllConnections();
        rmSync(profile, { recursive: true, force: true, maxRetries: 10 });
      }
    },
    undefined,
    ["--http-cors-origins", origin],
  );
});

describe("pacing", () => {
  for (const { what, status, fields, wait_s, max_wait_s } of CONFORMANCE.waits) {
    test(`${what}: ${JSON.stringify(fields)}`, () => {
      const found = waitAfter(status, new Headers(fields), 0, max_wait_s ?? Number.MAX_VALUE);
      assert(Math.abs(found.seconds - wait_s) < 1e-9, `${found.seconds}`);
    });
  }

  test("a date to retry after", () => {
    const headers = new Headers({ "retry-after": new Date(1_000_007_000).toUTCString() });
    assert.equal(waitAfter(503, headers, 1_000_000_000, 60).seconds, 7);
    assert.equal(waitAfter(503, headers, 2_000_000_000, 60).seconds, 0);
  });

  test("no field makes the parser fail", () => {
    const pieces = [
      '"a"',
      ";",
      "r",
      "=",
      "0",
      "t",
      ",",
      " ",
      "\\",
      '"',
      "\0",
      "é",
      "?1",
      ":",
      "@",
      "-",
      "9".repeat(20),
    ];
    const seen = new Set();
    for (const first of pieces) {
      for (const second of pieces) {
        for (const third of pieces) seen.add(items(first + second + third) === undefined);
      }
    }
    assert.deepEqual(seen, new Set([false, true].reverse()));
  });

  const ask = async (url, method) => {
    const response = await pacedFetch()(url, { method });
    return [response.status, response.headers.get("x-number")];
  };

  test("a safe request is repeated after its wait", () =>
    withFault("denied_then_ok", async (url) => {
      const began = performance.now();
      assert.deepEqual(await ask(url, "GET"), [200, "2"]);
      assert(performance.now() - began >= 1_000);
    }));

  test("an unsafe request is never repeated", () =>
    withFault("denied_then_ok", async (url) => {
      assert.deepEqual(await ask(url, "POST"), [429, "1"]);
    }));

  test("a wait beyond the bound is not waited for", () =>
    withFault("denied_for_long", async (url) => {
      assert.deepEqual(await ask(url, "GET"), [429, "1"]);
    }));

  test("it slows down before the denial, and can be stopped", () =>
    withFault("spent", async (url) => {
      const paced = pacedFetch();
      await paced(url);
      const stop = new AbortController();
      const stopped = paced(url, { signal: stop.signal });
      stop.abort();
      await assert.rejects(stopped, { name: "AbortError" });
      const began = performance.now();
      await paced(url);
      assert(performance.now() - began >= 900);
    }));

  test("waiting requests are spread, origins are bounded, and a denial is not taken back", () => {
    const pacer = new Pacer(60_000, () => 0);
    const low = new Headers({ "ratelimit-policy": '"a";q=100;w=60', ratelimit: '"a";r=9;t=100' });
    pacer.after("one", 200, low, 0);
    assert.deepEqual(
      [1, 2, 3].map(() => pacer.before("one", 0)),
      [10_000, 20_000, 30_000],
    );
    pacer.after("two", 429, new Headers({ "retry-after": "30" }), 0);
    pacer.after("two", 200, new Headers({ ratelimit: '"a";r=50;t=1' }), 0);
    assert.equal(pacer.before("two", 0), 30_000);
    for (let other = 0; other < 1_000; other += 1) pacer.after(`other ${other}`, 200, new Headers(), 0);
    assert.equal(pacer.before("one", 0), 0);
  });

  test("differs finds a difference", () => {
    assert.equal(differs({ a: [1, { from: 2 }] }, { a: [1, 3] }), "");
    assert.notEqual(differs({ a: [1, { from: 2 }] }, { a: [1, 1] }), "");
    assert.notEqual(differs({ a: { absent: true } }, { a: 1 }), "");
  });
});
