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
import { NextRequest, NextResponse } from "next/server.js";
import { Tidegate } from "tidegate";
import * as forExpress from "tidegate/express";
import { policyOf, TidegateStore } from "tidegate/express-rate-limit";
import * as forFastify from "tidegate/fastify";
import * as forHono from "tidegate/hono";
import { bounded, denial, fields } from "tidegate/middleware";
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
        found.push(NODE_DEFAULTS.attributes(request).path);
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

describe("responses", () => {
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

  test("says once that a limit has no policy", () =>
    withLimits(async ({ url }) => {
      const said = [];
      const store = new TidegateStore({
        url,
        token: TOKEN,
        deadlineMs: 5_000,
        warn: (line) => said.push(line),
      });
      store.init({ windowMs: 1_000, limit: 5 });
      for (let hit = 0; hit < 9; hit += 1) assert.equal((await store.increment("e2")).totalHits, 1);
      assert.equal(said.length, 1);
      assert.match(said[0], /limit=5\/1,/);
    }));
});
