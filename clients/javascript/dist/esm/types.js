/**
 * What calls take and return, and what they throw.
 *
 * The interfaces are those of the API's OpenAPI document in the spelling of JavaScript, with the client's own
 * fields beside them. A check of the types compares the two, so a field that is new there has to come here.
 * `read` is strict: a reply whose fields have other types than the document says is no decision.
 */
/** The server calls the request wrong: its author's mistake. `problem` says where. */
export class InvalidRequest extends Error {
    problem;
    name = "InvalidRequest";
    constructor(problem) {
        super(problem.detail || problem.title);
        this.problem = problem;
    }
}
/** The server gave no answer to a call that has nothing to fall back to. */
export class Unavailable extends Error {
    failure;
    name = "Unavailable";
    constructor(failure) {
        super(`Tidegate gave no answer: ${failure}`);
        this.failure = failure;
    }
}
/** A reply has not the form that the API documents. Calls turn it into the failure `reply`. */
export class NotAsDocumented extends Error {
}
const one = (name, kind, required = false) => [name, camel(name), kind, false, required];
const many = (name, kind, required = false) => [name, camel(name), kind, true, required];
function camel(name) {
    return name.replace(/[_-]([a-z])/g, (_, letter) => letter.toUpperCase());
}
const PART = [
    one("policy", "string", true),
    one("mode", "string", true),
    one("allowed", "boolean", true),
    one("limit", "number", true),
    one("remaining", "number", true),
    one("reset_ms", "number", true),
    one("retry_after_ms", "number"),
    one("concurrent", "boolean"),
];
export const DECISION = [
    one("allowed", "boolean", true),
    many("policies", PART, true),
    one("policy", "string"),
    one("limit", "number"),
    one("remaining", "number"),
    one("retry_after", "number"),
    one("retry_after_ms", "number"),
    one("reset_ms", "number"),
    one("delay_ms", "number"),
    one("permit", "string"),
    one("degraded", "string"),
    one("no_match", "boolean"),
];
export const REFUNDED = [many("policies", "string", true)];
export const RENEWED = [one("lease_ms", "number", true)];
const LEASE = ["nodes", "units", "lifetime_ms", "over_admission", "stranded"].map((name) => one(name, "number", true));
const POLICY_EXPLANATION = [
    one("policy", "object", true),
    one("origin", "string", true),
    one("applies", "boolean", true),
    one("because_of", "string"),
    one("own_limits", "object"),
    one("lease", LEASE),
    one("verdict", PART),
];
const REQUEST_LIMITS = [
    one("limits", "object", true),
    one("decide", "boolean", true),
    one("verdict", PART),
];
export const EXPLANATION = [
    one("allowed", "boolean", true),
    one("revision", "number", true),
    many("policies", POLICY_EXPLANATION, true),
    one("no_match", "boolean"),
    one("not_listed", "number"),
    one("degraded", "string"),
    one("request_limits", REQUEST_LIMITS),
];
const FIELD_ERROR = [
    one("pointer", "string", true),
    one("detail", "string", true),
    one("accepted", "string"),
];
export const PROBLEM = [
    one("type", "string", true),
    one("title", "string", true),
    one("status", "number", true),
    one("detail", "string", true),
    many("errors", FIELD_ERROR),
    many("violated-policies", "string"),
];
/** Reads an object of the API; fields that the model does not have are passed over. */
export function read(model, document) {
    if (typeof document !== "object" || document === null || Array.isArray(document)) {
        throw new NotAsDocumented("this is no object");
    }
    const given = document;
    const made = {};
    for (const [name, property, kind, isList, required] of model) {
        const value = Object.hasOwn(given, name) ? given[name] : undefined;
        if (value === undefined || value === null) {
            if (required)
                throw new NotAsDocumented(`${name} is absent`);
        }
        else if (isList) {
            if (!Array.isArray(value))
                throw new NotAsDocumented(`${name} is no list`);
            made[property] = value.map((item) => readOne(kind, item, name));
        }
        else {
            made[property] = readOne(kind, value, name);
        }
    }
    return made;
}
function readOne(kind, value, name) {
    if (typeof kind !== "string")
        return read(kind, value);
    let right = typeof value === kind;
    if (kind === "number")
        right = Number.isInteger(value) && value >= 0;
    if (kind === "object")
        right = right && value !== null && !Array.isArray(value);
    if (!right)
        throw new NotAsDocumented(`${name} is no ${kind}`);
    return value;
}
