//! The texts of the OpenAPI document for each kind of documents.

use serde_json::{Value, json};

use super::Resource;

/// What the OpenAPI document says of a resource.
pub(super) struct Words {
    pub(super) tag: &'static str,
    /// `a policy`, `policies`.
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    /// Schemas of the list and of the document that is put.
    pub(super) list: &'static str,
    pub(super) sent: Value,
    pub(super) order: &'static str,
    pub(super) put: &'static str,
    pub(super) delete: &'static str,
    pub(super) deleted: &'static str,
    pub(super) examples: Examples,
}

pub(super) struct Examples {
    pub(super) listed: Value,
    pub(super) read: Value,
    pub(super) sent: Value,
    pub(super) put: Value,
}

impl Words {
    /// The texts of a kind that has no texts of its own.
    pub(super) fn of(resource: &Resource) -> Self {
        let example = json!({"name": "example"});
        Self {
            tag: resource.kind.as_str(),
            one: resource.kind.as_str(),
            many: resource.path.rsplit('/').next().unwrap_or_default(),
            list: "DocumentList",
            sent: json!({"content": {"application/json": {"schema": {"type": "object"}}}}),
            order: "The file's, then the stored ones.",
            put: "Creates or replaces one, in force when this is answered.",
            delete: "Deletes a stored one.",
            deleted: "it is gone; one of the file of the same name is in force again",
            examples: Examples {
                listed: json!({"revision": 7, "documents": [{"origin": "stored", "etag": "\"7\"", "document": example}]}),
                sent: example.clone(),
                put: example.clone(),
                read: example,
            },
        }
    }
}

/// A document without a schema of its own: the keys of the file's table, of which this one is demanded
/// unless one of the others is there.
fn keys_of(table: &str, demanded: &str, others: &[&str]) -> Value {
    let mut schema = json!({"type": "object"});
    if others.is_empty() {
        schema["required"] = json!([demanded]);
    } else {
        let one_of_them: Vec<_> = others.iter().map(|it| json!({"required": [it]})).collect();
        schema["if"] = json!({"not": {"anyOf": one_of_them}});
        schema["then"] = json!({"required": [demanded]});
    }
    json!({"description": format!("The keys of [[{table}]] in the file."),
        "content": {"application/json": {"schema": schema}}})
}

pub(super) fn policies(_: &Resource) -> Words {
    let small = json!({"name": "api", "limit": 100, "window_seconds": 60});
    Words {
        tag: "configuration",
        one: "a policy",
        many: "policies",
        list: "PolicyList",
        sent: json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/PolicyDocument"}}}}),
        order: "In the order in which they are checked.",
        put: "Creates or replaces a policy.",
        delete: "Deletes a stored policy.",
        deleted: "it is gone; a policy of the file or the built-in one of the same name is in force again",
        examples: Examples {
            listed: json!({"revision": 7, "policies": [{"origin": "stored", "etag": "\"7\"", "policy": small,
                "asked_since_change": true}]}),
            sent: json!({"algorithm": "token_bucket", "limit": 100, "window_seconds": 60, "burst": 20,
                "key": ["client_id"], "match": {"path": "/v1/*"}}),
            put: small.clone(),
            read: small,
        },
    }
}

pub(super) fn routes(_: &Resource) -> Words {
    let small = json!({"name": "app", "upstream": "app"});
    let shop = json!({"host": "shop.example", "path": "/api/*", "upstream": "app"});
    let (mut sent, mut put) = (shop.clone(), shop);
    sent["policies"] = json!(["per-client"]);
    put["name"] = json!("app");
    Words {
        tag: "gateway",
        one: "a route",
        many: "routes",
        list: "DocumentList",
        sent: keys_of("route", "upstream", &["split", "redirect", "respond"]),
        order: "The file's, then the stored ones.",
        put: "Creates or replaces a route, in force when this is answered.",
        delete: "Deletes a stored route.",
        deleted: "it is gone; a route of the file of the same name is in force again",
        examples: Examples {
            listed: json!({"revision": 7, "documents": [{"origin": "stored", "etag": "\"7\"", "document": small}]}),
            read: small,
            sent,
            put,
        },
    }
}

pub(super) fn upstreams(_: &Resource) -> Words {
    let small = json!({"name": "app", "servers": ["http://127.0.0.1:3000"]});
    let sent = json!({"servers": ["http://127.0.0.1:3000", "http://127.0.0.1:3001"]});
    let mut put = sent.clone();
    put["name"] = json!("app");
    Words {
        tag: "gateway",
        one: "an upstream",
        many: "upstreams",
        list: "DocumentList",
        sent: keys_of("upstream", "servers", &[]),
        order: "The file's, then the stored ones.",
        put: "Creates or replaces an upstream, in force when this is answered.",
        delete: "Deletes a stored upstream, which no route may name any more.",
        deleted: "it is gone; an upstream of the file of the same name is in force again",
        examples: Examples {
            listed: json!({"revision": 7, "documents": [{"origin": "file", "etag": "\"0\"", "document": small}]}),
            read: small,
            sent,
            put,
        },
    }
}

pub(super) fn backends(_: &Resource) -> Words {
    let small = json!({"name": "rio-1", "address": "10.1.0.1:8080", "region": "sa"});
    let sent = json!({"address": "10.1.0.1:8080", "country": "BR", "region": "sa", "hard_limit": 1000});
    let mut put = sent.clone();
    put["name"] = json!("rio-1");
    Words {
        tag: "edge",
        one: "a backend of the edge",
        many: "backends of the edge",
        list: "DocumentList",
        sent: keys_of("edge.backend", "address", &[]),
        order: "The file's, then the stored ones. Those that registered themselves are listed by the registration API.",
        put: "Creates or replaces a backend of the edge, which gets connections when this is answered.",
        delete: "Deletes a stored backend of the edge. Connections that it has live on.",
        deleted: "it is gone; a backend of the file of the same name is in force again",
        examples: Examples {
            listed: json!({"revision": 7, "documents": [{"origin": "stored", "etag": "\"7\"", "document": small}]}),
            read: small,
            sent,
            put,
        },
    }
}

pub(super) fn places(_: &Resource) -> Words {
    let sent = json!({"networks": ["10.8.0.0/16"], "country": "BR", "region": "sa"});
    let mut put = sent.clone();
    put["name"] = json!("offices");
    let of_file = json!({"countries": ["BR", "AR"], "region": "sa", "name": "file:0"});
    Words {
        tag: "edge",
        one: "a place of clients",
        many: "places of clients",
        list: "DocumentList",
        sent: keys_of("edge.place", "networks", &["countries"]),
        order: "The file's, which have no names of their own but file:0, file:1 and so on, then the stored ones.",
        put: "Creates or replaces a place. Of the same network in several places a stored one counts, the first by name.",
        delete: "Deletes a stored place.",
        deleted: "it is gone; new connections of its clients are placed without it",
        examples: Examples {
            listed: json!({"revision": 7, "documents": [{"origin": "file", "etag": "\"0\"", "document": of_file}]}),
            read: put.clone(),
            sent,
            put,
        },
    }
}
