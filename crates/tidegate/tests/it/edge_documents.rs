//! Backends and places of the edge through the admin API of the built binary: in force at once, audited, and never at the
//! cost of a running connection.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;

use crate::support;
use crate::support::edge::{answers, echo, free, json, metric, until, visit};
use crate::support::{Tidegate, agent};
use serde_json::{Value, json};

const OWN: [(&str, &str); 1] = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];

struct Started {
    service: Tidegate,
    edge: SocketAddr,
    /// The registration API.
    api: SocketAddr,
}

/// An edge with one listener, and this in its file beside.
fn start(more: &str) -> Started {
    let (edge, api, data) = (free(), free(), tempfile::tempdir().unwrap());
    let file = format!(
        "edge.listener = [{{ listen = \"{edge}\", affinity = \"off\" }}]\nedge.api_listen = \"{api}\"\n{more}"
    );
    fs::write(data.path().join("edge.toml"), file).unwrap();
    Started { service: Tidegate::start_in(data, &["--config", "edge.toml"], &OWN), edge, api }
}

impl Started {
    /// Status, entity tag and body.
    fn send(&self, method: &str, path: &str, tag: Option<&str>, body: &Value) -> (u16, String, Value) {
        let mut request = http::Request::builder().method(method).uri(self.service.url(path));
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = request.header("content-type", "application/json").body(body).unwrap();
        let mut reply = agent().run(request).unwrap();
        let tag = reply.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned()).unwrap_or_default();
        let text = reply.body_mut().read_to_string().unwrap();
        (reply.status().as_u16(), tag, serde_json::from_str(&text).unwrap_or_default())
    }

    fn put(&self, path: &str, body: &Value) -> u16 {
        self.send("PUT", path, None, body).0
    }

    fn delete(&self, path: &str) -> u16 {
        self.send("DELETE", path, None, &Value::Null).0
    }

    /// Registers a backend; the status and what is said.
    fn register(&self, id: &str, port: u16) -> (u16, String) {
        let body =
            json!({"id": id, "app": "default", "ip": "127.0.0.1", "port": port, "check": {"kind": "off"}});
        let mut reply = agent().post(format!("http://{}/api/v1/register", self.api)).send_json(body).unwrap();
        (reply.status().as_u16(), reply.body_mut().read_to_string().unwrap())
    }

    /// Where a connection from 127.0.0.1 would go, and the region that its client is in.
    fn next(&self) -> [Value; 2] {
        let said = json(&self.service, "/v1/explain/edge?client_ip=127.0.0.1");
        [said["next"].clone(), said["region"].clone()]
    }
}

/// A backend that is not checked.
fn backend(address: SocketAddr, region: &str) -> Value {
    json!({"address": address.to_string(), "region": region, "check": {"kind": "off"}})
}

#[test]
fn a_backend_that_is_put_is_in_force_at_once_and_seen_wherever_others_are() {
    let started = start("edge.backend = [{ name = \"other\", app = \"shop\", address = \"127.0.0.1:9\" }]\n");
    assert!(!visit("127.0.0.1", started.edge).1, "there is no backend");
    let path = "/v1/edge/backends/one";
    let (status, tag, stored) = started.send("PUT", path, Some("\"0\""), &backend(echo(), "sa"));
    assert_eq!((status, tag.as_str(), &stored["name"]), (200, "\"1\"", &json!("one")));
    let (mut held, is_served) = visit("127.0.0.1", started.edge);
    assert!(is_served, "it is in force when that is answered");
    assert_eq!(started.next()[0], "one");
    let series = "{app=\"default\",region=\"sa\",backend=\"one\"}";
    assert_eq!(metric(&started.service, &format!("tidegate_edge_backend_open{series}")), 1);
    let decisions = json(&started.service, "/v1/edge/decisions");
    assert!(decisions["decisions"].to_string().contains("\"one\""), "{decisions}");

    // Of two who change one version, the second is told.
    let mut small = backend(echo(), "sa");
    small["hard_limit"] = json!(7);
    assert_eq!(started.send("PUT", path, Some("\"1\""), &small).1, "\"2\"");
    assert_eq!(started.send("PUT", path, Some("\"1\""), &backend(echo(), "eu")).0, 412);
    assert_eq!(started.send("DELETE", path, Some("\"1\""), &Value::Null).0, 412);
    let (status, tag, document) = started.send("GET", path, None, &Value::Null);
    assert_eq!((status, tag.as_str(), &document["hard_limit"]), (200, "\"2\"", &json!(7)));

    let (_, _, listed) = started.send("GET", "/v1/edge/backends", None, &Value::Null);
    let listed: Vec<_> = listed["documents"].as_array().unwrap().iter().collect();
    let rows: Vec<_> =
        listed.iter().map(|it| (&it["document"]["name"], &it["origin"], &it["etag"])).collect();
    assert_eq!(
        rows,
        [
            (&json!("other"), &json!("file"), &json!("\"0\"")),
            (&json!("one"), &json!("stored"), &json!("\"2\""))
        ]
    );
    assert_eq!(started.delete(path), 204);
    assert_eq!((started.delete(path), started.delete("/v1/edge/backends/other")), (404, 409));
    assert!(!visit("127.0.0.1", started.edge).1, "it gets nothing new");
    assert!(answers(&mut held), "the connection has lived through both changes");
    let (_, _, audit) = started.send("GET", "/v1/audit", None, &Value::Null);
    let rows: Vec<String> = audit
        .as_array()
        .unwrap()
        .iter()
        .map(|row| ["action", "kind", "name"].map(|key| row[key].as_str().unwrap().to_owned()).join(" "))
        .collect();
    assert_eq!(rows, ["put edge_backend one", "put edge_backend one", "delete edge_backend one"]);
}

#[test]
fn what_is_wrong_with_a_document_is_said_with_its_place_and_changes_nothing() {
    let started = start("");
    for (path, body, pointer) in [
        ("backends/one", json!({}), "/address"),
        ("backends/one", json!({"adress": "10.0.0.1:80"}), "/adress"),
        ("backends/one", json!({"address": "10.0.0.1:80", "soft_limit": 9, "hard_limit": 8}), "/soft_limit"),
        ("backends/one", json!({"address": "10.0.0.1:80", "check": {"kind": "icmp"}}), "/check/kind"),
        ("backends/one", json!({"name": "two", "address": "10.0.0.1:80"}), "/name"),
        // Where a backend registered is no operator's to say.
        ("backends/one", json!({"address": "10.0.0.1:80", "node": 7}), "/node"),
        ("backends/One", json!({"address": "10.0.0.1:80"}), "/name"),
        ("places/one", json!({"networks": ["10.0.0.0/8"]}), "/region"),
        ("places/one", json!({"networks": ["10.0.0.300"], "region": "sa"}), "/networks/0"),
        ("places/one", json!({"countries": ["BRA"], "region": "sa"}), "/countries/0"),
        ("places/one", json!({"name": "two", "countries": ["BR"], "region": "sa"}), "/name"),
        ("places/file:0", json!({"countries": ["BR"], "region": "sa"}), "/name"),
    ] {
        let (status, _, problem) = started.send("PUT", &format!("/v1/edge/{path}"), None, &body);
        let pointers: Vec<_> =
            problem["errors"].as_array().unwrap().iter().map(|it| it["pointer"].as_str()).collect();
        assert!(status == 422 && pointers.contains(&Some(pointer)), "{path} {body}: {problem}");
    }
    let (_, _, listed) = started.send("GET", "/v1/edge/backends", None, &Value::Null);
    assert_eq!(listed, json!({"revision": 0, "documents": []}));
}

#[test]
fn a_name_is_either_registered_or_put_and_who_takes_the_others_is_told_so() {
    let started = start("");
    let address = echo();
    assert_eq!(started.register("rio", address.port()).0, 201);
    let (status, _, problem) = started.send("PUT", "/v1/edge/backends/rio", None, &backend(address, "sa"));
    assert_eq!(status, 422, "{problem}");
    let error = &problem["errors"][0];
    assert_eq!(error["pointer"], "", "it is about the document that was sent");
    assert_eq!(error["detail"], "has the name of a backend that registered itself");
    assert!(visit("127.0.0.1", started.edge).1, "what registered is in force as before");
    assert_eq!(started.put("/v1/edge/backends/bahia", &backend(address, "sa")), 200);
    let (status, said) = started.register("bahia", address.port());
    assert!(status == 422 && said.contains("has the name of a backend put by the admin API"), "{said}");
}

#[test]
fn fault_67_an_address_where_the_edge_itself_listens_is_no_backends() {
    let started = start("");
    let own = backend(started.edge, "sa");
    let (status, _, problem) = started.send("PUT", "/v1/edge/backends/rio", None, &own);
    let error = &problem["errors"][0];
    assert_eq!((status, &error["pointer"]), (422, &json!("/address")), "{problem}");
    let (status, said) = started.register("rio", started.edge.port());
    assert!(status == 422 && said.contains("connections would go in circles"), "{said}");
    let edge = started.edge;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("edge.toml");
    let text = format!(
        "edge.listener = [{{ listen = \"{edge}\", server_names = [{{ names = [\"db.example\"], app = \"db\" }}] }}]\n\
         [[edge.backend]]\nname = \"own\"\naddress = \"{edge}\"\n\
         [[edge.backend]]\nname = \"db\"\napp = \"db\"\naddress = \"10.0.0.1:5432\"\n"
    );
    fs::write(&file, text).unwrap();
    let checked = support::binary().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap() + &String::from_utf8(checked.stderr).unwrap();
    assert!(said.contains("\"own\" gets nothing, since the edge itself listens at its address"), "{said}");
    assert!(said.contains("clients of PostgreSQL ask for TLS in clear first (STARTTLS)"), "{said}");
}

#[test]
fn places_that_are_put_move_new_connections_and_no_running_one() {
    let (near, far) = (echo(), echo());
    let started = start(
        "edge.place = [{ networks = [\"127.0.0.0/8\"], region = \"eu\" }, { countries = [\"BR\"], region = \"sa\" }]\n",
    );
    assert_eq!(started.put("/v1/edge/backends/dublin", &backend(near, "eu")), 200);
    assert_eq!(started.put("/v1/edge/backends/rio", &backend(far, "sa")), 200);
    assert_eq!(started.next(), ["dublin", "eu"]);
    let (mut held, is_served) = visit("127.0.0.1", started.edge);
    assert!(is_served);
    // The same network is in the file. What is put counts, and its region is that of its country by the file.
    let office = json!({"networks": ["127.0.0.0/8"], "country": "BR"});
    assert_eq!(started.put("/v1/edge/places/office", &office), 200);
    assert_eq!(started.next(), ["rio", "sa"]);
    let (_, _, listed) = started.send("GET", "/v1/edge/places", None, &Value::Null);
    let rows: Vec<_> = listed["documents"].as_array().unwrap().iter().collect();
    let rows: Vec<_> = rows.iter().map(|it| [&it["document"]["name"], &it["origin"]]).collect();
    assert_eq!(rows, [["file:0", "file"], ["file:1", "file"], ["office", "stored"]]);
    let (status, _, of_file) = started.send("GET", "/v1/edge/places/file:0", None, &Value::Null);
    assert_eq!((status, &of_file["networks"]), (200, &json!(["127.0.0.0/8"])));
    assert_eq!(started.delete("/v1/edge/places/file:0"), 409);
    assert_eq!(started.delete("/v1/edge/places/office"), 204);
    assert_eq!(started.next(), ["dublin", "eu"]);
    assert!(answers(&mut held));
}

#[test]
fn a_stored_backend_hides_the_files_and_survives_a_restart_and_a_file_that_is_read_again() {
    let (of_file, stored) = (echo(), echo());
    let started =
        start(&format!("edge.backend = [{{ name = \"one\", address = \"{of_file}\", region = \"eu\" }}]\n"));
    let document = |started: &Started| started.send("GET", "/v1/edge/backends/one", None, &Value::Null).2;
    assert_eq!(started.put("/v1/edge/backends/one", &backend(stored, "sa")), 200);
    assert_eq!(
        started.put("/v1/edge/places/here", &json!({"networks": ["127.0.0.0/8"], "region": "sa"})),
        200
    );
    let (mut held, _) = visit("127.0.0.1", started.edge);
    let text = fs::read_to_string(started.service.path().join("edge.toml")).unwrap();
    fs::write(started.service.path().join("edge.toml"), format!("{text}edge.region = \"us\"\n")).unwrap();
    started.service.signal("HUP");
    until("the file is in force", || {
        json(&started.service, "/v1/explain/edge?client_ip=127.0.0.1")["node_region"] == "us"
    });
    assert_eq!(document(&started)["address"], stored.to_string());
    assert!(answers(&mut held));
    drop(held);
    let Started { service, edge, api } = started;
    service.signal("TERM");
    let (data, ended) = service.wait_keeping_data();
    assert!(ended.status.success(), "{}", ended.output);
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let started = Started { service, edge, api };
    assert_eq!(document(&started)["address"], stored.to_string());
    assert_eq!(started.next(), ["one", "sa"]);
    assert_eq!(started.delete("/v1/edge/backends/one"), 204);
    assert_eq!(document(&started)["address"], of_file.to_string(), "the file's is in force again");
}

#[test]
fn a_registration_whose_name_a_file_takes_refuses_the_file_and_is_set_aside_by_a_start() {
    let started = start("edge.heartbeat_ttl = \"1h\"\n");
    assert_eq!(started.register("rio", echo().port()).0, 201);
    let (file, of_file) = (started.service.path().join("edge.toml"), echo());
    let text = fs::read_to_string(&file).unwrap();
    let taken = format!("{text}edge.backend = [{{ name = \"rio\", address = \"{of_file}\" }}]\n");
    fs::write(&file, taken).unwrap();
    started.service.signal("HUP");
    let refused = || metric(&started.service, "tidegate_config_reloads_total{result=\"refused\"}");
    until("the file is refused", || refused() > 0);
    assert!(visit("127.0.0.1", started.edge).1, "what registered is in force as before");
    let Started { service, edge, api } = started;
    service.signal("TERM");
    let (data, _) = service.wait_keeping_data();
    let checked = support::binary().args(["check", "edge.toml"]).current_dir(data.path()).output().unwrap();
    let checked = String::from_utf8(checked.stdout).unwrap();
    let said = "has the name of a backend of the file";
    assert!(
        checked.contains("edge_registration \"rio\" is set aside") && checked.contains(said),
        "{checked}"
    );
    let service = Tidegate::start_in(data, &["--config", "edge.toml"], &OWN);
    let started = Started { service, edge, api };
    let (_, _, aside) = started.send("GET", "/v1/set-aside", None, &Value::Null);
    let aside = &aside["set_aside"][0];
    assert_eq!((&aside["kind"], &aside["name"]), (&json!("edge_registration"), &json!("rio")));
    assert!(aside["mistakes"][0].as_str().unwrap().contains(said), "{aside}");
    let (_, _, document) = started.send("GET", "/v1/edge/backends/rio", None, &Value::Null);
    assert_eq!(document["address"], of_file.to_string());
}

#[test]
fn the_bounds_count_what_the_file_has_what_is_put_and_what_registers() {
    let mut places = String::new();
    for index in 0..10_000 {
        write!(places, "{{ networks = [\"10.0.{}.{}\"], region = \"sa\" }},", index / 250, index % 250)
            .unwrap();
    }
    let started = start(&format!("edge.place = [{places}]\n"));
    let place = json!({"networks": ["127.0.0.0/8"], "region": "sa"});
    let (status, _, problem) = started.send("PUT", "/v1/edge/places/one", None, &place);
    let error = &problem["errors"][0];
    assert_eq!((status, &error["accepted"]), (422, &json!("up to 10000 places")), "{problem}");
    drop(started);

    let mut backends = String::new();
    for index in 0..9_998 {
        write!(
            backends,
            "{{ name = \"b{index}\", app = \"many\", address = \"10.0.0.1:80\", check.kind = \"off\" }},"
        )
        .unwrap();
    }
    let started = start(&format!("edge.backend = [{backends}]\n"));
    let address = echo();
    assert_eq!(started.register("zanzibar", address.port()).0, 201);
    assert_eq!(started.put("/v1/edge/backends/one", &backend(address, "sa")), 200);
    let (status, _, problem) = started.send("PUT", "/v1/edge/backends/two", None, &backend(address, "sa"));
    let error = &problem["errors"][0];
    let accepted = json!("up to 10000 backends, registered ones included");
    assert_eq!((status, &error["pointer"], &error["accepted"]), (422, &json!(""), &accepted), "{problem}");
    let (status, said) = started.register("more", address.port());
    assert!(status == 422 && said.contains("is one too many"), "{said}");
    assert!(visit("127.0.0.1", started.edge).1);
}

#[test]
fn without_a_listener_documents_are_kept_and_shown() {
    let service = Tidegate::start(&[], &[]);
    let started = Started { service, edge: free(), api: free() };
    assert_eq!(started.put("/v1/edge/backends/one", &backend(free(), "sa")), 200);
    let (_, _, listed) = started.send("GET", "/v1/edge/backends", None, &Value::Null);
    assert_eq!(listed["documents"][0]["origin"], "stored");
    assert_eq!(started.delete("/v1/edge/backends/one"), 204);
}
