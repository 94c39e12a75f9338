// A scenario that is killed leaves no browser behind, whose processes are no group of the scenario's: it ends when the pipe to it does.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { scenario, until } from "./support.mjs";

if (process.argv[2] === "endless") {
  await scenario(async ({ tab, pid }) => {
    await tab();
    console.log(pid);
    await new Promise(() => setInterval(() => {}, 60_000));
  });
}

const endless = spawn(process.execPath, [fileURLToPath(import.meta.url), "endless"], {
  stdio: ["ignore", "pipe", "inherit"],
});
const [said] = await once(endless.stdout, "data");
const browser = `/proc/${Number(said)}`;
if (!existsSync(browser)) throw new Error(`there is no browser: ${said}`);
endless.kill("SIGKILL");
await until(
  () => `the browser goes on: ${browser}`,
  async () => !existsSync(browser),
);
