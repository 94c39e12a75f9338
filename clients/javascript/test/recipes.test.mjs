// The recipes of clients/RECIPES.md: their policies on the real server, and their code as it stands there.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Tidegate } from "tidegate";
import { CLIENTS, withServer } from "./support.mjs";

const PAGE = readFileSync(join(CLIENTS, "RECIPES.md"), "utf8");
const POLICIES = [...PAGE.matchAll(/^```toml\n(.*?)```/gms)].map(([, text]) => text).join("\n");
const NOBODY = "http://127.0.0.1:1";

/** A server with the policies of all recipes. */
async function withPolicies(use) {
  const folder = mkdtempSync(join(tmpdir(), "recipes-"));
  const config = join(folder, "tidegate.toml");
  writeFileSync(config, POLICIES);
  try {
    await withServer(({ url }) => use(url), config);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The function `wanted` that a recipe's code defines. `given` is what the application has. */
function recipe(name, wanted, url, given) {
  const [, code] = /^```js\n(.*?)```/ms.exec(PAGE.split(`<!-- recipe: ${name} -->`)[1]);
  // With time for a busy machine; everything else is the recipe's.
  class Patient extends Tidegate {
    constructor(options) {
      super({ ...options, url, deadlineMs: 10_000 });
    }
  }
  const names = ["Tidegate", ...Object.keys(given)];
  return new Function(...names, `${code}\nreturn ${wanted};`)(Patient, ...Object.values(given));
}

/** Calls one after the other. */
async function each(count, call) {
  const results = [];
  for (let n = 0; n < count; n += 1) results.push(await call(n));
  return results;
}

const all = (results, wanted) => results.every((result) => result === wanted);

test("a login counts failures only, by account and by address", () =>
  withPolicies(async (url) => {
    const login = recipe("login", "login", url, { verify: (_, word) => word === "right" });
    assert(all(await each(7, () => login("Ann", "10.0.0.1", "right")), "welcome"));
    assert(all(await each(5, (n) => login("ann", `10.0.1.${n}`, "guess")), "wrong"));
    assert.match(await login("ANN", "10.0.2.1", "right"), /^try again in \d+ s$/);
    assert(all(await each(20, (n) => login(`user${n}`, "10.0.3.1", "guess")), "wrong"));
    assert.match(await login("user99", "10.0.3.1", "right"), /^try again/);
    assert.equal(await login("user99", "10.0.3.2", "right"), "welcome");
    const alone = recipe("login", "login", NOBODY, { verify: () => true });
    assert.match(await alone("ann", "10.0.0.1", "right"), /^try again/);
  }));

test("a key has the limit of its tier", () =>
  withPolicies(async (url) => {
    const customers = { k1: { customer: "acme", tier: "free" }, k2: { customer: "apex", tier: "pro" } };
    const call = recipe("tiers", "call", url, { lookUp: (key) => customers[key] });
    const free = await each(12, () => call("k1"));
    assert.deepEqual(
      free.map(({ allowed }) => allowed),
      [...Array(10).fill(true), false, false],
    );
    const pro = await each(12, () => call("k2"));
    assert(pro.every(({ allowed, policy }) => allowed && policy === "pro"));
  }));

test("tokens that were reserved and not used come back", () =>
  withPolicies(async (url) => {
    const generate = async (prompt) => {
      if (prompt === "broken") throw new Error(prompt);
      return { text: `about ${prompt}`, used: 100 };
    };
    const complete = recipe("tokens", "complete", url, { count: (prompt) => prompt.length, generate });
    assert(all(await each(3, () => complete("acme", "tides", 9_000)), "about tides"));
    await assert.rejects(complete("acme", "broken", 9_000));
    assert.equal(await complete("acme", "tides", 9_000), "about tides");
    assert.equal(await complete("acme", "tides", 20_000), "too long");
    assert.match(await complete("acme", "tides", 9_900), /^wait \d+ s$/);
    const client = new Tidegate({ url, deadlineMs: 10_000 });
    const held = await each(2, () => client.acquire({ client_id: "acme", unit: "requests" }));
    assert.equal(await complete("acme", "tides", 10), "too many requests at once");
    for (const permit of held) await permit.release();
    assert.equal(await complete("acme", "tides", 10), "about tides");
    client.close();
  }));

test("webhooks leave at the pace of their receiver", () =>
  withPolicies(async (url) => {
    const sent = [];
    const deliver = recipe("webhooks", "deliver", url, { post: (receiver) => sent.push(receiver) });
    const waits = await Promise.all(Array.from({ length: 60 }, () => deliver("slow.example", "x")));
    // The bucket holds 20; ten a second leave it.
    const sentAtOnce = waits.filter((wait) => wait === 0).length;
    assert(sentAtOnce >= 20 && sentAtOnce < 60, waits.join(" "));
    assert(waits.every((wait) => wait >= 0));
    assert.equal(await deliver("other.example", "x"), 0);
    assert.equal(sent.length, sentAtOnce + 1);
  }));

test("a job runs once, on one machine", () =>
  withPolicies(async (url) => {
    let failures = 0;
    const work = async (job, renew) => {
      assert(await renew());
      assert.equal(await run(job), "another runs it");
      if (job === "broken" && failures === 0) {
        failures += 1;
        throw new Error(job);
      }
    };
    const run = recipe("cron", "run", url, { work });
    assert.equal(await run("report"), "ran");
    // It may have become tomorrow meanwhile.
    assert(["done today", "ran"].includes(await run("report")));
    await assert.rejects(run("broken"));
    assert.equal(await run("broken"), "ran");
    assert.equal(await recipe("cron", "run", NOBODY, { work })("report"), "another runs it");
  }));
