// Builds the console: node console/build.mjs [FOLDER], console/dist if absent.
//
// The same sources and the same packages (xtask/npm/package-lock.json) give the same bytes; a test of the binary
// compares them with what is committed.

import { copyFile, mkdir, symlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const folder = resolve(process.argv[2] ?? join(here, "dist"));

// The packages that `cargo xtask setup` installs are found as those of any project.
await symlink("../.npm/node_modules", join(here, "node_modules")).catch((error) => {
  if (error.code !== "EEXIST") throw error;
});
const { build } = await import("esbuild");

await mkdir(folder, { recursive: true });
await build({
  absWorkingDir: here,
  entryPoints: { console: "src/main.tsx" },
  outdir: folder,
  bundle: true,
  format: "esm",
  target: ["chrome123", "firefox124", "safari17.5"],
  minify: true,
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
for (const file of ["index.html", "console.svg"]) {
  await copyFile(join(here, "src", file), join(folder, file));
}
