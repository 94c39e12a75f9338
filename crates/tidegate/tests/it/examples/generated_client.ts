// The types that openapi-typescript makes of the OpenAPI document, against the service that it describes.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const baseUrl = process.env.TIDEGATE_URL;
const anybody = createClient<paths>({ baseUrl });
const operator = createClient<paths>({
  baseUrl,
  headers: { authorization: `Bearer ${process.env.TIDEGATE_TOKEN}` },
});

const numbers: components["schemas"]["ConfigureBody"] = { window_seconds: 60, request_per_window: 2 };
const refused = await anybody.POST("/api/v1/configure", { body: numbers });
console.log(refused.response.status, refused.error?.title);
await operator.POST("/api/v1/configure", { body: numbers });
for (let turn = 0; turn < 3; turn++) {
  const { data } = await anybody.POST("/api/v1/ratelimit", { body: { client_id: "a", resource: "r" } });
  console.log(data?.allowed, data?.remaining, (data?.retry_after ?? 0) > 0);
}

const put = await operator.PUT("/v1/policies/{name}", {
  params: { path: { name: "writes" } },
  body: { limit: 3, window_seconds: 60, match: { method: ["POST", "PUT"], path: { not: ["/open"] } } },
});
console.log(put.response.status);
const listed = await operator.GET("/v1/policies");
console.log(listed.data?.policies.map((one) => `${one.origin} ${(one.policy as { name: string }).name}`).sort().join(", "));

const asked = await anybody.POST("/v1/decisions", {
  body: [{ attributes: { client_id: "b", method: "PUT", path: "/x" } }, { attributes: { client_id: "b" }, cost: 0 }],
});
const decisions = asked.data as components["schemas"]["DecisionReply"][];
console.log(decisions.map((decision) => `${decision.policies.length} ${decision.remaining}`).join(", "));
const checked = await anybody.GET("/v1/check");
console.log(checked.response.status);
const gone = await operator.DELETE("/v1/policies/{name}", { params: { path: { name: "writes" } } });
console.log(gone.response.status);
