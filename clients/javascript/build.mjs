// Says of each build's folder which module system its files are of.
import { writeFileSync } from "node:fs";

writeFileSync("dist/esm/package.json", '{"type":"module"}\n');
writeFileSync("dist/cjs/package.json", '{"type":"commonjs"}\n');
