// A check by the compiler alone: CommonJS finds the types of the package and of an entry.
import express = require("tidegate/express");
import tidegate = require("tidegate");

const client: tidegate.Tidegate = new tidegate.Tidegate();
export const decided: Promise<tidegate.Decision> = client.allow({ client_id: "a" });
export const middleware = express.tidegate({ client });
// @ts-expect-error: there is no such call.
client.deny({});
