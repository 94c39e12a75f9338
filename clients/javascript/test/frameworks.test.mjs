// The middlewares in the frameworks that people use, behind real HTTP servers.
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { serve as serveHono } from "@hono/node-server";
import express from "express";
import { rateLimit } from "express-rate-limit";
import fastify from "fastify";
import { Hono } from "hono";
import { cors } from "hono/cors";
import { NextRequest, NextResponse } from "next/server.js";
import { Tidegate } from "tidegate";
import { peerName } from "tidegate/address";
import * as forExpress from "tidegate/express";
import { policyOf, TidegateStore } from "tidegate/express-rate-limit";
import * as forFastify from "tidegate/fastify";
import * as forHono from "tidegate/hono";
import { bounded, denial, fields, Guard } from "tidegate/middleware";
import * as forNext from "tidegate/next";
import { NODE_DEFAULTS } from "tidegate/node";
import { guardOf } from "tidegate/web";
import {
  CONFORMANCE,
  camel,
  differs,
  get,
  TOKEN,
  takeRequests,
  text,
  until,
  withServer,
} from "./support.mjs";

const CASES = CONFORMANCE.middleware;
const PIECES = 10;

function optionsFor(url, header, urlOf) {
  return {
    client: new Tidegate({ url, token: TOKEN, deadlineMs: 2_000 }),
    key: (request) => header(request, "x-client"),
    attributes: (request) => {
      const query = new URL(urlOf(request), "http://x").searchParams;
      const resource = query.get("resource") ?? CASES.attributes.resource;
      return { resource, client_id: query.get("tenant") };
    },
    cost: (request) => Number(new URL(urlOf(request), "http://x").searchParams.get("cost") ?? 1),
    skip: (request) => new URL(urlOf(request), "http://x").pathname === "/health",
  };
}

const webHeader = (request, name) => request.headers.get(name);
const nodeHeader = (request, name) => request.headers[name];

function piecesAsWeb(settle) {
  let sent = 0;
  return new ReadableStream({
    pull(controller) {
      if (sent === PIECES) {
        settle(1);
        controller.close();
      } else {
        sent += 1;
        controller.enqueue(new TextEncoder().encode("piece\n"));
      }
    },
  });
}

/** Pieces until nobody reads them any more. */
function endlessAsWeb(settle) {
  settle(1);
  return new ReadableStream({
    async pull(controller) {
      await sleep(1);
      controller.enqueue(new TextEncoder().encode("piece\n"));
    },
  });
}

async function onExpress(url) {
  const app = express();
  app.use(forExpress.tidegate(optionsFor(url, nodeHeader, (request) => request.url)));
  app.get(["/", "/health"], (_, response) => response.send("ok"));
  app.get("/stream", (request, response) => {
    for (let piece = 0; piece < PIECES; piece += 1) response.write("piece\n");
    forExpress.settlementOf(request).settle(1);
    response.end();
  });
  app.get("/endless", (request, response) => {
    forExpress.settlementOf(request).settle(1);
    response.write("piece\n");
  });
  const server = app.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: server.address().port, close: () => server.close() };
}

async function onFastify(url) {
  const app = fastify();
  await app.register(
    forFastify.tidegate,
    optionsFor(url, nodeHeader, (request) => request.raw.url),
  );
  app.get("/", async () => "ok");
  app.get("/health", async () => "ok");
  app.get("/stream", async (request, reply) => {
    const { settle } = { settle: (used) => forFastify.settlementOf(request).settle(used) };
    return reply.send(new Response(piecesAsWeb(settle)));
  });
  app.get("/endless", async (request, reply) => {
    const settlement = forFastify.settlementOf(request);
    return reply.send(new Response(endlessAsWeb((used) => settlement.settle(used))));
  });
  await app.listen({ port: 0, host: "127.0.0.1" });
  return { port: app.server.address().port, close: () => app.close() };
}

async function onHono(url) {
  const app = new Hono();
  app.use(forHono.tidegate(optionsFor(url, webHeader, (request) => request.url)));
  app.get("/", (c) => c.text("ok"));
  app.get("/health", (c) => c.text("ok"));
  app.get("/stream", (c) => c.body(piecesAsWeb((used) => forHono.settlementOf(c.req.raw).settle(used))));
  app.get("/endless", (c) => c.body(endlessAsWeb((used) => forHono.settlementOf(c.req.raw).settle(used))));
  return listening((done) => serveHono({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, done));
}

async function listening(start) {
  let server;
  const port = await new Promise((resolve) => {
    server = start((info) => resolve(info.port));
  });
  return { port, close: () => server.close() };
}

describe("frameworks", () => {
  const frameworks = { express: onExpress, fastify: onFastify, hono: onHono };
  for (const [name, start] of Object.entries(frameworks)) {
    test(name, () =>
      withServer(async (own) => {
        const { port, close } = await start(own.url);
        try {
          await takeRequests(own, port, CASES.steps);
        } finally {
          await close();
        }
      }),
    );
  }

  test("next's proxy lets a request go on, or answers it", () =>
    withServer(async (own) => {
      const proxy = forNext.tidegate(optionsFor(own.url, webHeader, (request) => request.url));
      const ask = (path) =>
        proxy(new NextRequest(`http://shop.example${path}`, { headers: { "x-client": "p1" } }));
      const allowed = await ask("/?cost=3");
      assert.equal(
        allowed.headers.get("x-middleware-next"),
        NextResponse.next().headers.get("x-middleware-next"),
      );
      assert.equal(allowed.headers.get("ratelimit"), '"three";r=0;t=1200');
      const denied = await ask("/");
      assert.equal(denied.status, 429);
      assert.equal(denied.headers.get("x-middleware-next"), null);
      assert.equal((await ask("/health")).headers.get("ratelimit"), null);
    }));

  for (const [name, start] of Object.entries(frameworks)) {
    test(`a client that goes away in the middle settles too: ${name}`, () =>
      withServer(async (own) => {
        const { port, close } = await start(own.url);
        const gone = httpRequest({
          port,
          host: "127.0.0.1",
          path: "/endless?cost=3",
          agent: false,
          headers: { "x-client": "gone" },
        });
        gone.on("error", () => {});
        gone.end();
        const [response] = await once(gone, "response");
        await once(response, "data");
        gone.destroy();
        // Of the three units that it reserved one was used.
        const client = new Tidegate({ url: own.url, token: TOKEN, deadlineMs: 10_000 });
        const who = { client_id: "gone", resource: "three" };
        await until(async () => (await client.allow(who, { cost: 0 })).remaining === 2);
        await close();
      }));
  }
});

describe("the path that is sent of a request", () => {
  for (const { what, target, sent } of CONFORMANCE.paths) {
    test(what, async () => {
      const found = [];
      const server = createServer((request, response) => {
        found.push(forExpress.path(request));
        response.end();
      }).listen(0, "127.0.0.1");
      await once(server, "listening");
      await get(server.address().port, target);
      server.close();
      const allow = async ({ path }) => {
        found.push(path);
        return { allowed: true, policies: [] };
      };
      const guard = guardOf({ key: () => "", client: { allow } });
      await guard.ask(new Request(`http://x${target}`));
      assert.deepEqual(found, [sent, sent]);
    });
  }
});

describe("who asks", () => {
  for (const { peer, name } of CONFORMANCE.addresses) {
    test(`the address ${peer}`, () => assert.equal(peerName(peer), name));
  }

  const trusting = {
    async express(trusts, options) {
      const app = express();
      app.set("trust proxy", trusts);
      app.use(forExpress.tidegate(options));
      app.get("/", (_, response) => response.send("ok"));
      const server = app.listen(0, "127.0.0.1");
      await once(server, "listening");
      return { port: server.address().port, close: () => server.close() };
    },
    async fastify(trusts, options) {
      const app = fastify({ trustProxy: trusts });
      await app.register(forFastify.tidegate, options);
      app.get("/", async () => "ok");
      await app.listen({ port: 0, host: "127.0.0.1" });
      return { port: app.server.address().port, close: () => app.close() };
    },
  };
  for (const [framework, start] of Object.entries(trusting)) {
    test(`a proxy is said once if it is not trusted, and its client counts if it is: ${framework}`, async () => {
      for (const trusts of [false, true]) {
        const asked = [];
        const said = [];
        const allow = async ({ client_id }) => {
          asked.push(client_id);
          return { allowed: true, policies: [] };
        };
        const options = { client: { allow }, warn: (message) => said.push(message) };
        const { port, close } = await start(trusts, options);
        const headers = { "x-forwarded-for": "2001:db8::1" };
        for (let time = 0; time < 2; time += 1) await get(port, "/", undefined, { headers });
        await close();
        const name = trusts ? "2001:db8::/64" : "127.0.0.1";
        assert.deepEqual(asked, [name, name]);
        assert.equal(said.length, trusts ? 0 : 1);
      }
    });
  }
});

describe("CORS", () => {
  const PREFLIGHT = {
    method: "OPTIONS",
    headers: { origin: "http://shop.example", "access-control-request-method": "POST" },
  };

  /** A client that has as many units as it is asked for, and what was given back. */
  function counting() {
    const refunded = [];
    const allow = async () => ({ allowed: true, policies: [], source: "server" });
    const refund = async (_, { cost }) => refunded.push(cost);
    return { client: { allow, refund }, refunded };
  }

  const apps = {
    async express(options) {
      const app = express();
      app.use(forExpress.tidegate(options));
      app.options("/cors", (_, response) => response.set("access-control-allow-methods", "POST").end());
      app.all("/handler", (_, response) => response.send("ok"));
      const server = app.listen(0, "127.0.0.1");
      await once(server, "listening");
      return { port: server.address().port, close: () => server.close() };
    },
    async fastify(options) {
      const app = fastify();
      await app.register(forFastify.tidegate, options);
      app.options("/cors", async (_, reply) => reply.header("access-control-allow-methods", "POST").send());
      app.all("/handler", async () => "ok");
      await app.listen({ port: 0, host: "127.0.0.1" });
      return { port: app.server.address().port, close: () => app.close() };
    },
    hono(options) {
      const app = new Hono();
      app.use(forHono.tidegate(options));
      app.options("/cors", (c) => c.body(null, 204, { "access-control-allow-methods": "POST" }));
      app.all("/handler", (c) => c.text("ok"));
      return listening((done) => serveHono({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, done));
    },
  };

  for (const [name, start] of Object.entries(apps)) {
    test(`a preflight that the application's CORS answers is given back, and no other: ${name}`, async () => {
      const { client, refunded } = counting();
      const { port, close } = await start({ client, key: () => "a", cost: () => 7 });
      await get(port, "/handler", undefined, PREFLIGHT);
      await get(port, "/cors", undefined, { method: "OPTIONS" });
      await get(port, "/cors", undefined, PREFLIGHT);
      await until(() => refunded.length > 0);
      assert.deepEqual(refunded, [7]);
      await close();
    });
  }

  test("a denial keeps what the application's CORS has said", async () => {
    const denied = { allowed: false, policies: [], source: "server", retryAfter: 1 };
    const client = { allow: async () => denied };
    const origin = { headers: { origin: "http://shop.example" } };
    const onExpress = express();
    onExpress.use((_, response, next) => {
      response.set({ "access-control-allow-origin": "*", "access-control-expose-headers": "x-own" });
      next();
    });
    onExpress.use(forExpress.tidegate({ client }));
    const server = onExpress.listen(0, "127.0.0.1");
    await once(server, "listening");
    const byExpress = await get(server.address().port, "/", undefined, origin);
    server.close();
    const onHono = new Hono();
    onHono.use(cors());
    onHono.use(forHono.tidegate({ client, key: () => "a" }));
    const { port, close } = await listening((done) =>
      serveHono({ fetch: onHono.fetch, port: 0, hostname: "127.0.0.1" }, done),
    );
    const byHono = await get(port, "/", undefined, origin);
    await close();
    const said = ({ status, ...response }) => [
      status,
      response["access-control-allow-origin"],
      response["access-control-expose-headers"],
    ];
    assert.deepEqual(said(byExpress), [429, "*", "x-own"]);
    assert.deepEqual(said(byHono), [429, "*", "RateLimit, RateLimit-Policy, Retry-After"]);
  });
});

describe("responses", () => {
  test("a path that is too long to be counted is answered 414", async () => {
    const guard = new Guard(
      { client: { allow: () => assert.fail("asked") } },
      { ...NODE_DEFAULTS, attributes: () => ({ path: `/${"a".repeat(16_384)}` }) },
    );
    assert.equal((await guard.ask({ headers: {}, socket: {} })).status, 414);
  });

  test("no value is sent that JSON cannot carry", async () => {
    const [one, other] = [await bounded("a\ud800"), await bounded("a\ud801")];
    assert.match(one, /^a\ufffd~[0-9a-f]{64}$/);
    assert.notEqual(one, other);
  });

  for (const { what, decision, status, fields: expected, problem } of CONFORMANCE.denials) {
    test(what, () => {
      const given = camel(decision);
      if (given.allowed) return assert.equal(differs(expected, fields(given)), "");
      const made = denial(given);
      assert.equal(made.status, status);
      assert.equal(differs(expected, made.headers), "");
      return assert.equal(differs(problem, JSON.parse(made.body)), "");
    });
  }
  for (const { value, sent } of CONFORMANCE.bounded) {
    test(`what is sent for ${JSON.stringify(value)}`, async () => {
      const made = await bounded(text(value));
      assert.equal(made, text(sent));
      assert(Buffer.byteLength(made) <= 512);
    });
  }
});

describe("express-rate-limit", () => {
  const tokens =
    '[[token]]\nname = "t"\nscopes = ["decide", "refund"]\nsha256 = "b77fd4981604b694cac2ed17303e9881dcbc2af00ddd4065ac989366caeb5336"\n';
  const DAY = 86_400_000;

  async function withLimits(use) {
    const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
    const config = join(folder, "tidegate.toml");
    writeFileSync(config, tokens + policyOf(3, DAY));
    try {
      await withServer(use, config);
    } finally {
      rmSync(folder, { recursive: true });
    }
  }

  test("counts in Tidegate", () =>
    withLimits(async ({ url }) => {
      const store = new TidegateStore({ url, token: TOKEN, deadlineMs: 5_000 });
      const app = express();
      app.use(
        rateLimit({ windowMs: DAY, limit: 3, store, keyGenerator: () => "e1", standardHeaders: "draft-8" }),
      );
      app.get("/", (_, response) => response.send("ok"));
      const server = app.listen(0, "127.0.0.1");
      await once(server, "listening");
      const { port } = server.address();
      const ask = async () => (await get(port, "/", "")).status;
      assert.deepEqual([await ask(), await ask(), await ask(), await ask()], [200, 200, 200, 429]);
      assert.equal((await store.get("e1")).totalHits, 3);
      await store.decrement("e1");
      assert.deepEqual([await ask(), await ask()], [200, 429]);
      await store.resetKey("e1");
      assert.equal((await store.get("e1")).totalHits, 0);
      assert.equal(await ask(), 200);
      server.close();
    }));

  test("a limit without a policy holds from the first request", () =>
    withLimits(async ({ url }) => {
      const said = [];
      const store = new TidegateStore({
        url,
        token: TOKEN,
        deadlineMs: 5_000,
        warn: (line) => said.push(line),
      });
      store.init({ windowMs: DAY, limit: 2 });
      const hits = async () => (await store.increment("e3")).totalHits;
      assert.deepEqual([await hits(), await hits(), await hits()], [1, 2, 3]);
      await store.decrement("e3");
      assert.deepEqual([await hits(), await hits()], [2, 3]);
      await store.resetKey("e3");
      assert.equal((await store.get("e3")).totalHits, 0);
      assert.deepEqual(said, []);
    }));

  test("a policy decides where there is one", () =>
    withLimits(async ({ url }) => {
      // The file's policy for `3/86400` has three, whatever number comes with the request.
      const client = new Tidegate({ url, token: TOKEN, deadlineMs: 5_000 });
      const attributes = { client_id: "e4", resource: "express-rate-limit", limit: "3/86400" };
      const limits = { limit: 1_000, windowSeconds: 86_400 };
      const ask = async () => (await client.allow(attributes, { limits })).allowed;
      assert.deepEqual([await ask(), await ask(), await ask(), await ask()], [true, true, true, false]);
    }));

  test("says once that a limit is none that a server takes", () =>
    withLimits(async ({ url }) => {
      const said = [];
      const store = new TidegateStore({
        url,
        token: TOKEN,
        deadlineMs: 5_000,
        warn: (line) => said.push(line),
      });
      store.init({ windowMs: 500, limit: 5 });
      for (let hit = 0; hit < 9; hit += 1) assert.equal((await store.increment("e2")).totalHits, 1);
      assert.equal(said.length, 1);
      assert.match(said[0], /limit=5\/0.5,/);
    }));
});
