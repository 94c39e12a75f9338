// TLS to the real binary: who is trusted and who is not, and that the deadline holds for a handshake.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { Tidegate } from "tidegate";
import { CLIENTS, Server, TOKEN } from "./support.mjs";

const run = promisify(execFile);
const WHO = { client_id: "tls", resource: "ten" };
const folder = mkdtempSync(join(tmpdir(), "tidegate-"));
const certificate = join(folder, "certificate.pem");
const config = join(folder, "tidegate.toml");
const own = new Server(config);

before(async () => {
  const key = join(folder, "key.pem");
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
  const name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
  await run("openssl", ["req", ...kind, ...name, "-keyout", key, "-out", certificate]);
  const cases = readFileSync(join(CLIENTS, "conformance.toml"), "utf8");
  writeFileSync(config, `http.tls_certificate = "${certificate}"\nhttp.tls_key = "${key}"\n${cases}`);
  await own.start();
});
after(async () => {
  await own.close();
  rmSync(folder, { recursive: true });
});

/** What two calls come to in a process with this environment, by Node's own client and by `fetch`. */
async function found(host, environment) {
  const script = join(import.meta.dirname, "tls-calls.mjs");
  const url = `https://${host}:${own.port}`;
  writeFileSync(
    script,
    `import { Tidegate } from "tidegate";
     for (const fetch of [undefined, globalThis.fetch]) {
       const client = new Tidegate({ url: "${url}", token: "${TOKEN}", deadlineMs: 60_000, fetch });
       for (let call = 0; call < 2; call += 1) {
         const { source, failure } = await client.allow(${JSON.stringify(WHO)}, { peek: true });
         console.log(failure ?? source);
       }
     }`,
  );
  const { stdout } = await run(process.execPath, [script], { env: { ...process.env, ...environment } });
  return stdout.trim().split("\n");
}

test("an authority of one's own is trusted where Node is told so", async () => {
  const trusting = { NODE_EXTRA_CA_CERTS: certificate };
  assert.deepEqual(await found("localhost", trusting), Array(4).fill("server"));
  assert.deepEqual(await found("localhost", {}), Array(4).fill("connection"));
  // The certificate has another name.
  assert.deepEqual(await found("127.0.0.1", trusting), Array(4).fill("connection"));
});

test("fault_75_a handshake with a frozen server ends at the deadline", async () => {
  await own.freeze();
  for (const fetch of [undefined, globalThis.fetch]) {
    const client = new Tidegate({ url: `https://localhost:${own.port}`, onFailure: "closed", fetch });
    const { allowed, failure } = await client.allow(WHO);
    assert.deepEqual([allowed, failure], [false, "timeout"]);
  }
  own.thaw();
});
