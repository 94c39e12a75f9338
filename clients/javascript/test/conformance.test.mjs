// The cases of conformance.json, against the real server.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { InvalidRequest, Permit, Tidegate, Unavailable } from "tidegate";
import {
  CLIENTS,
  CONFORMANCE,
  camel,
  differs,
  Server,
  snake,
  text,
  until,
  withFault,
  withNothing,
  withServer,
} from "./support.mjs";

/** What sends the requests: where nothing is said Node's own client, and `fetch` as in browsers. */
const SENDERS = { "Node's own client": undefined, fetch };

function optionsOf(given, url) {
  const options = camel({ ...CONFORMANCE.options, ...given });
  // Attributes are named as the server does.
  if (given?.fallback?.key) options.fallback.key = given.fallback.key;
  return url === undefined ? options : { ...options, url };
}

/** The limits that a call brings. */
function limitsOf({ limits }) {
  return limits && camel(limits);
}

/** Makes the calls of a case, and says what comes of them as conformance.json writes it. */
class Asker {
  #client;
  #permits = {};
  events = [];

  constructor(options) {
    this.#client = new Tidegate({ ...options, onEvent: (event) => this.events.push(event) });
  }

  async call(step) {
    try {
      const result = await this.#result(step);
      if (step.as) this.#permits[step.as] = result;
      if (!(result instanceof Permit)) return snake(result ?? {});
      return { ...snake(result.decision), held: result.held };
    } catch (error) {
      if (error instanceof InvalidRequest) return { error: "invalid_request", status: error.problem.status };
      if (error instanceof Unavailable) return { error: "unavailable", failure: error.failure };
      throw error;
    }
  }

  #result(step) {
    const { cost, peek, deadline_ms } = step;
    const options = Object.fromEntries(
      Object.entries({ cost, peek, deadlineMs: deadline_ms, limits: limitsOf(step) }).filter(
        ([, value]) => value !== undefined,
      ),
    );
    if (step.permit) return this.#permits[step.permit][step.call]();
    const requests = step.requests?.map((item) => ({ ...text(item), limits: limitsOf(item) }));
    return this.#client[step.call](requests ?? text(step.attributes), options);
  }
}

function withPlace(server, shared, use) {
  if (server === "shared") return use(shared.url);
  if (server === "own") return withServer((own) => use(own.url, own));
  if (server === "nothing") return withNothing(use);
  return withFault(server.fault, use);
}

async function take(asker, own, step) {
  if (step.do) return own[step.do]();
  if (Array.isArray(step.concurrently)) {
    const calls = step.concurrently.map((call) => asker.call(call));
    await Promise.race(calls);
    if (step.then) await own[step.then]();
    const results = await Promise.all(calls);
    return step.concurrently.forEach((call, at) => {
      assert.equal(differs(call.expect, results[at]), "");
    });
  }
  if (step.concurrently) {
    const results = await Promise.all(Array.from({ length: step.concurrently }, () => asker.call(step)));
    const count = (condition) => results.filter(condition).length;
    const found = {
      allowed: count(({ allowed }) => allowed),
      denied: count(({ allowed }) => !allowed),
      server: count(({ source }) => source === "server"),
      degraded: count(({ degraded }) => degraded !== undefined),
    };
    return assert.equal(differs(step.count, found), "");
  }
  for (let time = 0; time < (step.times ?? 1); time += 1) {
    if (step.until) await until(async () => differs(step.expect, await asker.call(step)) === "");
    else assert.equal(differs(step.expect ?? {}, await asker.call(step)), "", JSON.stringify(step));
  }
}

for (const [sender, fetch] of Object.entries(SENDERS)) {
  describe(`conformance.json, by ${sender}`, () => {
    // A server for each: the cases count on fresh counters.
    const shared = new Server();
    before(() => shared.start());
    after(() => shared.close());
    for (const { name, server, options, steps } of CONFORMANCE.cases) {
      test(name, () =>
        withPlace(server, shared, async (url, own) => {
          const asker = new Asker({ ...optionsOf(options, url), fetch });
          for (const step of steps) {
            asker.events = [];
            await take(asker, own, step);
            if (step.events)
              assert.equal(differs(step.events, snake(asker.events)), "", JSON.stringify(step));
          }
        }),
      );
    }
  });
}

describe("options that make no sense", () => {
  for (const wrong of CONFORMANCE.invalid_options) {
    test(JSON.stringify(wrong), () => {
      assert.throws(() => new Tidegate(optionsOf(wrong)), RangeError);
    });
  }
});

/** Collects the schemas that a part of the document refers to, directly or through others. */
function refer(part, schemas, found) {
  if (part === null || typeof part !== "object") return;
  const name = typeof part.$ref === "string" ? part.$ref.split("/").at(-1) : undefined;
  if (name && !found.has(name)) {
    found.add(name);
    refer(schemas[name], schemas, found);
  }
  for (const inner of Object.values(part)) refer(inner, schemas, found);
}

test("the operations are those of the OpenAPI document", () => {
  const { paths, components } = JSON.parse(readFileSync(join(CLIENTS, "../docs/openapi.json"), "utf8"));
  const found = new Set();
  for (const [name, own] of Object.entries(CONFORMANCE.api)) {
    const [method, path] = name.split(" ");
    const operation = paths[path][method];
    const stated = (operation.parameters ?? []).map((parameter) => parameter.name);
    assert.deepEqual(stated.sort(), [...own.parameters, ...(own.not_offered ?? [])].sort(), name);
    refer(operation, components.schemas, found);
  }
  const withFields = [...found].filter((name) => components.schemas[name].properties);
  // types.ts compares each of these with the client's own type.
  const compared = readFileSync(join(import.meta.dirname, "types.ts"), "utf8").matchAll(/Api<"(\w+)">/g);
  assert.deepEqual(withFields.sort(), [...new Set(Array.from(compared, ([, name]) => name))].sort());
});
