// The folder of a checkout, installed as it is: what its sources are compiled to is committed.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { test } from "node:test";
import { CLIENTS, withServer } from "./support.mjs";

const ASK = `
  const client = new Tidegate({ url: process.env.TIDEGATE_URL, deadlineMs: 10_000 });
  const { allowed, source } = await client.allow({ client_id: "a checkout's" });
  console.log(allowed, source);
  await client.close();
`;

test("npm installs the folder of a checkout without a compiler", () =>
  withServer(async ({ url }) => {
    const folder = mkdtempSync(join(tmpdir(), "tidegate-checkout-"));
    try {
      writeFileSync(join(folder, "package.json"), "{}");
      // Node's own programs and the system's: no compiler among them.
      const path = [dirname(process.execPath), "/usr/bin", "/bin"].join(delimiter);
      const run = (program, words) =>
        execFileSync(program, words, {
          cwd: folder,
          encoding: "utf8",
          env: { HOME: folder, PATH: path, TIDEGATE_URL: url },
        });
      run("npm", [
        "install",
        "--silent",
        "--offline",
        "--no-audit",
        "--no-fund",
        join(CLIENTS, "javascript"),
      ]);
      const module = ["--input-type=module", "--eval", `import { Tidegate } from "tidegate";${ASK}`];
      assert.equal(run("node", module), "true server\n");
      const script = `const { Tidegate } = require("tidegate"); (async () => {${ASK}})();`;
      assert.equal(run("node", ["--eval", script]), "true server\n");
    } finally {
      rmSync(folder, { recursive: true });
    }
  }, null));
