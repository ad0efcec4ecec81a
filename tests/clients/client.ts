// Create an experiment and read it with a generated client; print what it has, as JSON.
import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { env: Record<string, string> };

const headers = { Authorization: `Bearer ${process.env.TOKEN}` };
const client = createClient<paths>({ baseUrl: process.env.SERVER, headers });
const made = await client.POST("/api/v1/experiments", { body: { name: "generated", tags: ["a"] } });
const path = { experiment_id: made.data!.experiment_id };
const read = await client.GET("/api/v1/experiments/{experiment_id}", { params: { path } });
const missing = await client.GET("/api/v1/experiments/{experiment_id}", {
  params: { path: { experiment_id: "a".repeat(22) } },
});
const name: string = read.data!.name;
console.log(JSON.stringify({ name, tags: read.data!.tags, missing: missing.response.status }));
