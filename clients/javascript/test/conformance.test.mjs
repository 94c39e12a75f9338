// The cases of conformance.json, against the real server.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { InvalidRequest, Permit, Tidegate, Unavailable } from "tidegate";
import {
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

const shared = new Server();
before(() => shared.start());
after(() => shared.close());

function optionsOf(given, url) {
  const options = camel({ ...CONFORMANCE.options, ...given });
  // Attributes are named as the server does.
  if (given?.fallback?.key) options.fallback.key = given.fallback.key;
  return url === undefined ? options : { ...options, url };
}

/** Makes the calls of a case, and says what comes of them as conformance.json writes it. */
class Asker {
  #client;
  #permits = {};

  constructor(options) {
    this.#client = new Tidegate(options);
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
      Object.entries({ cost, peek, deadlineMs: deadline_ms }).filter(([, value]) => value !== undefined),
    );
    if (step.permit) return this.#permits[step.permit][step.call]();
    return this.#client[step.call](text(step.requests ?? step.attributes), options);
  }
}

function withPlace(server, use) {
  if (server === "shared") return use(shared.url);
  if (server === "own") return withServer((own) => use(own.url, own));
  if (server === "nothing") return withNothing(use);
  return withFault(server.fault, use);
}

async function take(asker, own, step) {
  if (step.do) return own[step.do]();
  if (Array.isArray(step.concurrently)) {
    const results = await Promise.all(step.concurrently.map((call) => asker.call(call)));
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

describe("conformance.json", () => {
  for (const { name, server, options, steps } of CONFORMANCE.cases) {
    test(name, () =>
      withPlace(server, async (url, own) => {
        const asker = new Asker(optionsOf(options, url));
        for (const step of steps) await take(asker, own, step);
      }),
    );
  }
});

describe("options that make no sense", () => {
  for (const wrong of CONFORMANCE.invalid_options) {
    test(JSON.stringify(wrong), () => {
      assert.throws(() => new Tidegate(optionsOf(wrong)), RangeError);
    });
  }
});
