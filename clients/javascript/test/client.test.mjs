// What conformance.json cannot say: fault 75 with many callers, disposal, hooks, module systems, other runtimes.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { defaultTextMapSetter, ROOT_CONTEXT, trace as spans } from "@opentelemetry/api";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import * as esbuild from "esbuild";
import { Tidegate, VERSION } from "tidegate";
import { Breaker, Denials, LocalLimiter } from "tidegate/fallback";
import { fields } from "tidegate/middleware";
import { metrics, traceContext } from "tidegate/otel";
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

/**
 * Each of several callers calls three times. The server gives no answer, and each call ends by its mode. How much later
 * than its deadline is measured in regression/clients.
 */
async function allEnd(callers, client) {
  const caller = async () => {
    for (let time = 0; time < 3; time += 1) assert.equal((await client.allow(WHO)).degraded, "open");
  };
  await Promise.all(Array.from({ length: callers }, caller));
}

/** A client for each that may send: Node's own, and `fetch`. */
const bySender = (options) =>
  [undefined, globalThis.fetch].map((fetch) => new Tidegate({ ...options, fetch }));

for (const fault of ["drip", "slow", "full", "garbage", "error_500", "endless", "endless_header"]) {
  test(`fault_75_a server that is ${fault}: each call ends by its mode`, () =>
    withFault(fault, async (url) => {
      const clients = bySender({ url, deadlineMs: DEADLINE_MS, breakerFailures: 1_000_000 });
      await Promise.all(clients.map((client) => allEnd(8, client)));
    }));
}

test("fault_75_a frozen server: each call ends by its mode", () =>
  withServer(async (own) => {
    const options = { url: own.url, token: TOKEN, breakerFailures: 1_000_000, maxConnections: 4 };
    const clients = bySender(options);
    for (const client of clients) {
      await until(async () => (await client.allow(WHO, { peek: true })).source === "server");
    }
    await own.freeze();
    // More calls than connections: those that wait for one have the same deadline.
    await Promise.all(clients.map((client) => allEnd(8, client)));
    const [client] = clients;
    const holding = Array.from({ length: 4 }, () => client.allow(WHO, { deadlineMs: 1_000 }));
    await client.allow(WHO);
    assert(client.stats().connectionsFull > 0);
    await Promise.all(holding);
    own.thaw();
    await until(async () => (await client.allow(WHO, { peek: true })).source === "server");
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

test("a cached denial states what is left of its wait", () => {
  const denials = new Denials(10, 60_000);
  const question = { attributes: { client_id: "a" }, cost: 1, peek: false };
  const part = { policy: "three", mode: "enforce", allowed: false, limit: 3, remaining: 0 };
  const times = { retryAfterMs: 1_200_000, resetMs: 3_600_000 };
  const described = { rateLimit: '"three";r=0;t=1200', rateLimitPolicy: '"three";q=3;w=3600' };
  const denied = {
    allowed: false,
    source: "server",
    policies: [{ ...part, ...times }],
    ...times,
    ...described,
  };
  denials.keep(question, denied, 1, 2);
  const found = denials.find(question, 30_502);
  assert.equal(found.retryAfterMs, 1_169_500);
  assert.equal(found.retryAfter, 1_170);
  assert.equal(found.resetMs, 3_569_500);
  assert.equal(found.policies[0].retryAfterMs, 1_169_500);
  assert.deepEqual(fields(found), {
    "ratelimit-policy": '"three";q=3;w=3600',
    ratelimit: '"three";r=0;t=1170',
  });
  assert.equal(denials.find(question, 60_002), undefined);
});

test("a call that was under way when the breaker opened does not prolong that", () => {
  const breaker = new Breaker(2, 1_000);
  breaker.failed(0);
  breaker.failed(1);
  breaker.failed(900);
  assert(!breaker.admits(1_000));
  assert(breaker.admits(1_001));
  assert(!breaker.admits(1_002));
  breaker.failed(1_003);
  assert(!breaker.admits(2_002));
  assert(breaker.admits(2_003));
  breaker.answered();
  assert(breaker.admits(2_004) && !breaker.isOpen);
});

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

test("calls are part of the current trace", () =>
  withServer(
    async ({ url, log }) => {
      const storage = new AsyncLocalStorage();
      const trace = (number) => `${number}`.padStart(32, "0");
      const api = {
        context: { active: () => storage.getStore() ?? ROOT_CONTEXT },
        propagation: {
          inject: (context, carrier) =>
            new W3CTraceContextPropagator().inject(context, carrier, defaultTextMapSetter),
        },
      };
      const within = (number, call) => {
        const span = { traceId: trace(number), spanId: "0000000000000007", traceFlags: 1 };
        return storage.run(spans.setSpanContext(ROOT_CONTEXT, span), call);
      };
      const options = { url, token: TOKEN, deadlineMs: 10_000, headers: traceContext(api) };
      const client = new Tidegate(options);
      await within(1, () => client.allow(WHO));
      await within(2, () => client.refund(WHO));
      // It may share its request with others, so it is in nobody's trace.
      await within(3, () => new Tidegate({ ...options, batch: true }).allow(WHO));
      await within(4, () => client.explain(WHO));
      const logged = (number) => readFileSync(log, "utf8").includes(`trace=${trace(number)}`);
      await until(() => logged(4));
      assert.deepEqual([1, 2, 3, 4].map(logged), [true, true, false, true]);
    },
    undefined,
    ["--log-level", "debug"],
  ));

test("fields that make no sense are left out", () =>
  withServer(async ({ url }) => {
    const odd = [
      () => assert.fail(),
      () => undefined,
      () => ({ x: "a\r\nb: c" }),
      () => ({ "x y": "a" }),
      () => ({ x: "\u0001" }),
      () => ({ Authorization: "Bearer none", "Content-Type": "text/plain" }),
      () => ({ Host: "x", Connection: "close", "Content-Length": "1", "Transfer-Encoding": "chunked" }),
    ];
    for (const headers of odd) {
      for (const fetch of [undefined, globalThis.fetch]) {
        const client = new Tidegate({ url, token: TOKEN, deadlineMs: 10_000, headers, fetch });
        assert.equal((await client.allow(WHO, { peek: true })).source, "server", `${headers}`);
      }
    }
  }));

test("require finds the same package", () => {
  const require = createRequire(import.meta.url);
  assert.equal(typeof require("tidegate").Tidegate, "function");
  assert.equal(require("tidegate").VERSION, VERSION);
  for (const name of ["express", "fastify", "hono", "next", "otel", "pacing", "express-rate-limit", "web"]) {
    assert(Object.keys(require(`tidegate/${name}`)).length > 0, name);
  }
});

test("the package brings the licence", () => {
  const entry = createRequire(import.meta.url).resolve("tidegate");
  const text = readFileSync(join(CLIENTS, "../LICENSE"), "utf8");
  assert.equal(readFileSync(join(entry, "../../../LICENSE"), "utf8"), text);
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

test("a bundle for browsers needs nothing of Node", async () => {
  const entry = { contents: 'export { Tidegate } from "tidegate";', resolveDir: import.meta.dirname };
  const options = { bundle: true, format: "esm", platform: "browser", write: false, metafile: true };
  const { metafile, warnings } = await esbuild.build({ stdin: entry, outfile: "bundle.js", ...options });
  assert.deepEqual([warnings, metafile.outputs["bundle.js"].imports], [[], []]);
});

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
      // It ends with this process, however that ends.
      const command = ["--pdeathsig", "KILL", "chromium", ...options];
      const browser = spawn("setpriv", command, { stdio: "ignore", detached: true });
      const exit = once(browser, "exit");
      try {
        const { source, remaining } = JSON.parse(await answer);
        assert.deepEqual([source, remaining], ["server", 9]);
      } finally {
        // With its children, which would go on writing into the profile.
        process.kill(-browser.pid, "SIGKILL");
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
      const began = performance.now();
      await paced(url);
      const stop = new AbortController();
      const stopped = paced(url, { signal: stop.signal });
      stop.abort();
      await assert.rejects(stopped, { name: "AbortError" });
      await paced(url);
      assert(performance.now() - began >= 900);
    }));

  for (const one of CONFORMANCE.departures) {
    test(one.what, () => {
      const { responses, at_least_s: least, at_most_s: most } = one;
      const firsts = new Set();
      for (let time = 0; time < 20; time += 1) {
        const pacer = new Pacer((one.max_wait_s ?? 60) * 1_000);
        for (const { status, fields } of responses) pacer.after("one", status, new Headers(fields), 1_000);
        const waits = least.map(() => pacer.before("one", 1_000) / 1_000);
        firsts.add(waits[0]);
        waits.forEach((wait, at) => {
          assert(wait >= least[at] - 1e-6 && wait <= most[at] + 1e-6, waits.join(" "));
        });
      }
      assert.equal(firsts.size > 1, least[0] !== most[0]);
    });
  }

  test("origins are bounded", () => {
    const pacer = new Pacer(60_000);
    pacer.after("one", 429, new Headers({ "retry-after": "30" }), 0);
    for (let other = 0; other < 1_000; other += 1) pacer.after(`other ${other}`, 200, new Headers(), 0);
    assert.equal(pacer.before("one", 0), 0);
  });

  test("it keeps within a limit of the real server", async () => {
    const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
    const config = join(folder, "tidegate.toml");
    writeFileSync(config, CONFORMANCE.paced.config);
    await withServer(async ({ url }) => {
      const paced = pacedFetch();
      const began = performance.now();
      for (let asked = 0; asked < 30; asked += 1) assert.equal((await paced(`${url}/v1/check`)).status, 204);
      assert(performance.now() - began >= 1_000);
    }, config);
    rmSync(folder, { recursive: true });
  });

  test("differs finds a difference", () => {
    assert.equal(differs({ a: [1, { from: 2 }] }, { a: [1, 3] }), "");
    assert.notEqual(differs({ a: [1, { from: 2 }] }, { a: [1, 1] }), "");
    assert.notEqual(differs({ a: { absent: true } }, { a: 1 }), "");
  });
});
