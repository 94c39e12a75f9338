// The example of the README, run as it stands there: from an empty folder to a 429, in a minute.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { CLIENTS, withServer } from "./support.mjs";

const MARK = "<!-- run by clients/javascript/test/readme.test.mjs -->";
const POLICY = "<!-- run by clients/javascript/test/readme.test.mjs: policy -->";

test("the example ends in a 429 within a minute", () =>
  withServer(async ({ url }) => {
    const began = performance.now();
    const readme = readFileSync(join(CLIENTS, "javascript/README.md"), "utf8");
    // Beneath the tests, so that Express is found where they have it.
    const folder = mkdtempSync(join(import.meta.dirname, "example-"));
    const [, tarball] = /^npm install (target\/dist\/\S+\.tgz)$/m.exec(readme);
    writeFileSync(join(folder, "package.json"), "{}");
    const quiet = ["--silent", "--offline", "--no-audit", "--no-fund"];
    execFileSync("npm", ["install", ...quiet, join(CLIENTS, "..", tarball)], { cwd: folder });
    const migration = readFileSync(join(CLIENTS, "javascript/MIGRATION.md"), "utf8");
    const [, command] = /^\n```sh\n(.*?)```/s.exec(migration.split(POLICY)[1]);
    execFileSync("sh", ["-ec", command], { cwd: folder });
    assert.match(readFileSync(join(folder, "tidegate.toml"), "utf8"), /^limit = 100$/m);
    const [, code] = /^\n```js\n(.*?)```/s.exec(readme.split(MARK)[1]);
    // It counts on every request being asked, also on a busy machine.
    const example = code
      .replace('http://127.0.0.1:4000"', `${url}", deadlineMs: 10_000`)
      .replace("8000", "0");
    const file = join(folder, "server.mjs");
    writeFileSync(file, example);
    const app = spawn(process.execPath, [file], { stdio: ["ignore", "pipe", "inherit"] });
    try {
      const [line] = await once(createInterface({ input: app.stdout }), "line");
      const at = `http://127.0.0.1:${line.split(" ")[1]}/`;
      for (let request = 0; request < 100; request += 1) assert.equal((await fetch(at)).status, 200);
      const denied = await fetch(at);
      assert.equal(denied.status, 429);
      assert.match(denied.headers.get("retry-after"), /^\d+$/);
      assert.match(denied.headers.get("ratelimit"), /^"default";r=0;t=\d+$/);
      assert.equal(denied.headers.get("content-type"), "application/problem+json");
    } finally {
      const exit = once(app, "exit");
      app.kill();
      await exit;
      rmSync(folder, { recursive: true });
    }
    assert(performance.now() - began < 60_000);
  }, null));
