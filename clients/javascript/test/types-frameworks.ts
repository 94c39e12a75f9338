// A check by the compiler alone: an application in strict TypeScript takes each entry of the package, beside the types
// of its framework.
import express from "express";
import { rateLimit, type Store } from "express-rate-limit";
import fastify from "fastify";
import { Hono } from "hono";
import { type Decision, Tidegate } from "tidegate";
import * as forExpress from "tidegate/express";
import { TidegateStore } from "tidegate/express-rate-limit";
import * as forFastify from "tidegate/fastify";
import * as forHono from "tidegate/hono";
import * as forNext from "tidegate/next";
import { pacedFetch } from "tidegate/pacing";
import { protect } from "tidegate/web";

const client = new Tidegate({ url: "http://127.0.0.1:4000" });

express()
  .use(
    forExpress.tidegate({
      client,
      key: (request) => forExpress.header(request, "x-api-key") || request.ip,
      skip: (request) => request.path === "/health",
      cost: (request) => Number(request.query.cost ?? 1),
    }),
  )
  .get("/", (request, response) => {
    forExpress.settlementOf(request)?.settle(1);
    response.send("hello\n");
  });

const store: Store = new TidegateStore({ url: "http://127.0.0.1:4000", resource: "api" });
express().use(rateLimit({ windowMs: 60_000, limit: 100, store }));

fastify().register(forFastify.tidegate, {
  client,
  key: (request: forFastify.FastifyLikeRequest) => request.ip,
});

const key = (request: Request) => request.headers.get("x-api-key");
const handler = async (_request: Request) => new Response("hello\n");

new Hono().use(forHono.tidegate({ client, key }));
export const GET: (request: Request) => Promise<Response> = forNext.withTidegate(handler, { client, key });
export const proxy: (request: Request) => Promise<Response> = forNext.tidegate({ client, key });
export const served: (request: Request) => Promise<Response> = protect(handler, { client, key });
export const slow: typeof fetch = pacedFetch({ retries: 1 });
export const decided: Promise<Decision> = client.allow({ client_id: "a" }, { cost: 2 });
// @ts-expect-error: an attribute is a text.
client.allow({ client_id: 7 });
