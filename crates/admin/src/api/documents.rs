//! Documents of the configuration as resources: `/v1/policies`, `/v1/routes`, `/v1/upstreams`, `/v1/edge/backends`,
//! `/v1/edge/places`, and those of whatever service the binary names.
//!
//! What a document means, and whether it may be changed, its service says through the configuration
//! ([`tidegate_control::Configuration`]); here it is JSON with a name, and all kinds are one resource. The origin in
//! a list says which layer a document in force comes from.

mod words;

use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::{Path, RawQuery, State};
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use tidegate_access::guard::{Actor, Guard};
use tidegate_access::json_body::JsonBytes;
use tidegate_access::refusal::Refusal;
use tidegate_access::routes::ApiRoutes;
use tidegate_control::{Change, ChangeError, Configuration, Edit, Kind, Origin, Parts, Revision};

use self::words::{Words, backends, places, policies, routes, upstreams};
use super::changes::{self, Tagged, etag, named, precondition, tagged};
use super::query::page;

/// Most documents of a page.
const MAX_PAGE: usize = 1_000;

/// Documents that are policies.
pub(super) const POLICY: Kind = Kind::new("policy");
pub(super) const ROUTE: Kind = Kind::new("route");

/// Documents that are clients' own limits, which are a resource of another shape.
pub(super) const OVERRIDE: Kind = Kind::new("override");

/// A kind of documents as a resource.
#[derive(Debug)]
pub struct Resource {
    kind: Kind,
    /// Its place.
    path: &'static str,
    /// The place of one document.
    item_path: &'static str,
    /// The names of the list, and of a document in it.
    fields: [&'static str; 2],
    /// What the OpenAPI document says of it.
    words: fn(&Self) -> Words,
}

impl Resource {
    /// The documents of this kind, under this path and this one with `/{name}`.
    #[must_use]
    pub const fn new(kind: Kind, path: &'static str, item_path: &'static str) -> Self {
        Self { kind, path, item_path, fields: ["documents", "document"], words: Words::of }
    }

    /// The templates of its routes.
    #[must_use]
    pub fn paths(&self) -> [&'static str; 2] {
        [self.path, self.item_path]
    }

    const fn described(self, words: fn(&Self) -> Words) -> Self {
        Self { words, ..self }
    }
}

/// The policies of the decision service.
pub static POLICIES: Resource = Resource {
    kind: POLICY,
    path: "/v1/policies",
    item_path: "/v1/policies/{name}",
    fields: ["policies", "policy"],
    words: policies,
};

/// The gateway's routes.
pub static ROUTES: Resource = Resource::new(ROUTE, "/v1/routes", "/v1/routes/{name}").described(routes);

/// The gateway's upstreams.
pub static UPSTREAMS: Resource =
    Resource::new(Kind::new("upstream"), "/v1/upstreams", "/v1/upstreams/{name}").described(upstreams);

/// The edge's backends, but for those that registered themselves.
pub static EDGE_BACKENDS: Resource =
    Resource::new(Kind::new("edge_backend"), "/v1/edge/backends", "/v1/edge/backends/{name}")
        .described(backends);

/// The edge's places.
pub static EDGE_PLACES: Resource =
    Resource::new(Kind::new("edge_place"), "/v1/edge/places", "/v1/edge/places/{name}").described(places);

/// The routes of these kinds, each of which may be had as `guard` says.
#[must_use]
pub fn routes_of(
    guard: &Arc<Guard>,
    configuration: &Configuration,
    resources: &[&'static Resource],
) -> ApiRoutes {
    let router = resources.iter().fold(Router::new(), |router, resource| {
        let one = get(read).put(put).delete(delete).route_layer(Extension(*resource));
        let all = get(list).route_layer(Extension(*resource));
        router.route(resource.path, all).route(resource.item_path, one)
    });
    let templates: Vec<_> = resources.iter().flat_map(|resource| resource.paths()).collect();
    ApiRoutes::new(router.with_state(configuration.clone()), &templates, guard)
}

/// A kind's documents in force.
struct Listed {
    resource: &'static Resource,
    revision: Revision,
    documents: Vec<DocumentInList>,
    /// Where the next page begins, of a list in pages.
    next: Option<Arc<str>>,
}

struct DocumentInList {
    field: &'static str,
    origin: Origin,
    document: Value,
    /// Of a policy: whether a request has met it as it is.
    is_used: Option<bool>,
}

impl Serialize for Listed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_map(None)?;
        list.serialize_entry("revision", &self.revision.0)?;
        list.serialize_entry(self.resource.fields[0], &self.documents)?;
        if let Some(next) = &self.next {
            list.serialize_entry("next", next)?;
        }
        list.end()
    }
}

impl Serialize for DocumentInList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut document = serializer.serialize_map(None)?;
        document.serialize_entry("origin", self.origin.word())?;
        document.serialize_entry("etag", &etag(self.origin.revision()))?;
        document.serialize_entry(self.field, &self.document)?;
        if let Some(is_used) = self.is_used {
            document.serialize_entry("asked_since_change", &is_used)?;
        }
        document.end()
    }
}

fn in_force(parts: &Parts, kind: Kind, name: &str) -> Option<(Value, Origin)> {
    Some((parts.document(kind, name)?, parts.origin(kind, name)?))
}

/// All of them, with `limit` a page: those behind the one of the name `after`; with `name` that one.
async fn list(
    State(configuration): State<Configuration>,
    Extension(resource): Extension<&'static Resource>,
    RawQuery(query): RawQuery,
) -> Result<Tagged<Listed>, Refusal> {
    let query = query.unwrap_or_default();
    let parameter = |name: &str| form_urlencoded::parse(query.as_bytes()).find(|(other, _)| other == name);
    let parts = configuration.parts();
    let names = match parameter("name") {
        Some((_, name)) => [Arc::from(name)].into(),
        None => parts.names(resource.kind),
    };
    let mut page_of = &names[..];
    if let Some((_, after)) = parameter("after") {
        let place = names.iter().position(|name| **name == *after);
        let gone =
            || Refusal::field("/after", format!("is {after:?}"), "the name of a document that is in force");
        page_of = &names[place.ok_or_else(gone)? + 1..];
    }
    let mut next = None;
    if parameter("limit").is_some() {
        let limit = page(&query, MAX_PAGE)?;
        if page_of.len() > limit {
            page_of = &page_of[..limit];
            next = page_of.last().cloned();
        }
    }
    let documents = page_of.iter().filter_map(|name| {
        let (document, origin) = in_force(&parts, resource.kind, name)?;
        let is_used = parts.is_used(resource.kind, name);
        Some(DocumentInList { field: resource.fields[1], origin, document, is_used })
    });
    let revision = parts.documents().revision();
    Ok(tagged(revision, Listed { resource, revision, documents: documents.collect(), next }))
}

async fn read(
    State(configuration): State<Configuration>,
    Extension(resource): Extension<&'static Resource>,
    Path(name): Path<String>,
) -> Result<Tagged<Value>, Refusal> {
    let found = in_force(&configuration.parts(), resource.kind, &name);
    let missing = || Refusal::not_found(format_args!("{} {name:?}", resource.kind));
    let (document, origin) = found.ok_or_else(missing)?;
    Ok(tagged(origin.revision(), document))
}

async fn put(
    State(configuration): State<Configuration>,
    Extension(resource): Extension<&'static Resource>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(name): Path<String>,
    JsonBytes(body): JsonBytes,
) -> Result<Tagged<Value>, Refusal> {
    let document = named(&body, &name)?;
    let change = Change::put(resource.kind, name.as_str(), document.to_string());
    let revision = changes::change(&configuration, &actor, change, &headers).await?;
    let in_force = configuration.parts().document(resource.kind, &name);
    Ok(tagged(revision, in_force.unwrap_or(document)))
}

async fn delete(
    State(configuration): State<Configuration>,
    Extension(resource): Extension<&'static Resource>,
    Extension(actor): Extension<Actor>,
    headers: HeaderMap,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    let kind = resource.kind;
    let delete = Change::delete(kind, name.as_str()).when(precondition(&headers)?);
    let wanted = name.clone();
    let edit: Edit = Box::new(move |parts| {
        if parts.documents().get(kind, &wanted).is_none() && parts.has(kind, &wanted) {
            return Err(ChangeError::DeclaredInFile { kind, name: wanted.clone() });
        }
        Ok(Some(delete.clone()))
    });
    changes::edit(&configuration, &actor, (kind, &name), edit, str::to_owned).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the OpenAPI document says of these kinds.
#[must_use]
pub fn described(resources: &[&'static Resource]) -> Value {
    let mut paths = serde_json::Map::new();
    for resource in resources {
        let words = (resource.words)(resource);
        let name = resource.kind.as_str();
        let path_of = json!({"name": "name", "in": "path", "required": true, "schema": {"type": "string"},
            "description": format!("the {}'s name", name.replace('_', " ")), "example": words.examples.read["name"]});
        let tag = json!({"name": "if-match", "in": "header", "required": false, "schema": {"type": "string"},
            "description": "change only this version; \"0\": only if it is not stored yet", "example": "\"7\""});
        let limit = json!({"name": "limit", "in": "query", "required": false,
            "schema": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE},
            "description": "a page of so many at most; `next` is there if there are more"});
        let after = json!({"name": "after", "in": "query", "required": false, "schema": {"type": "string"},
            "description": "those behind the one of this name: `next` of the page before"});
        let one = json!({"name": "name", "in": "query", "required": false, "schema": {"type": "string"},
            "description": "that one alone, if it is in force"});
        let etag =
            json!({"etag": {"description": "the version, for if-match", "schema": {"type": "string"}}});
        let object = json!({"type": "object"});
        let operation = |verb: &str, what: &str, summary: String, parameters: &[&Value], success: Value| {
            let mut operation = json!({"operationId": format!("{verb}_{what}"), "tags": [words.tag],
                "summary": summary, "responses": problems()});
            if !parameters.is_empty() {
                operation["parameters"] = json!(parameters);
            }
            let (status, success) = if verb == "delete" { ("204", success) } else { ("200", success) };
            operation["responses"][status] = success;
            operation
        };
        let list = json!({"description": words.order, "content": {"application/json": {
            "schema": {"$ref": format!("#/components/schemas/{}", words.list)},
            "example": words.examples.listed}}});
        let document = |description: &str, example: &Value| {
            json!({"description": description, "headers": etag,
                "content": {"application/json": {"schema": object, "example": example}}})
        };
        let many = words.many;
        let listing = operation(
            "list",
            &many.replace(' ', "_"),
            format!("Lists the {many} in force, all or in pages."),
            &[&limit, &after, &one],
            list,
        );
        let read = document("Its document.", &words.examples.read);
        let reading = operation("get", name, format!("Reads {} in force.", words.one), &[&path_of], read);
        let put = document("It is stored and in force.", &words.examples.put);
        let mut putting = operation("put", name, words.put.to_owned(), &[&path_of, &tag], put);
        putting["requestBody"] = words.sent;
        putting["requestBody"]["required"] = true.into();
        putting["requestBody"]["content"]["application/json"]["example"] = words.examples.sent;
        let deleted = json!({"description": words.deleted});
        let deleting = operation("delete", name, words.delete.to_owned(), &[&path_of, &tag], deleted);
        paths.insert(resource.path.to_owned(), json!({ "get": listing }));
        paths.insert(
            resource.item_path.to_owned(),
            json!({"get": reading, "put": putting, "delete": deleting}),
        );
    }
    json!({ "paths": paths })
}

/// What any operation may answer instead of its own reply.
fn problems() -> Value {
    let problem = |description: &str| {
        json!({"description": description, "content": {"application/problem+json": {
            "schema": {"$ref": "#/components/schemas/Problem"}}}})
    };
    json!({
        "4XX": problem("The request is wrong, or may not do this. Nothing was charged or changed."),
        "5XX": problem("The store or the disk gave no answer. Try again."),
    })
}
