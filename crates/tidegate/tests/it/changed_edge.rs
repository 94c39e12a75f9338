//! Listeners of the edge come, go and change with the file, without a restart: in the built binary, on real sockets.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use crate::support::edge::{PATIENCE, answers, connect_from, echo, free, json, metric, until, visit};
use crate::support::{Tidegate, agent};
use tidegate_testkit::certificates::{Certificates, Pair};

/// A file of an edge with these `listeners` in front of `backend`.
fn file(http: SocketAddr, backend: SocketAddr, listeners: &[String]) -> String {
    let listeners = listeners.iter().map(|listener| format!("[[edge.listener]]\n{listener}\n"));
    let listeners: String = listeners.collect();
    format!(
        "http.listen = \"{http}\"\nedge.api_listen = \"off\"\n{listeners}\
         [[edge.backend]]\nname = \"echo\"\naddress = \"{backend}\"\ncheck.kind = \"off\"\n"
    )
}

fn at(address: SocketAddr) -> String {
    format!("listen = \"{address}\"")
}

fn secured(address: SocketAddr, pair: &Pair) -> String {
    format!("listen = \"{address}\"\ntls_certificate = {:?}\ntls_key = {:?}", pair.certificate, pair.key)
}

fn start(text: &str) -> Tidegate {
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("t.toml"), text).unwrap();
    Tidegate::start_in(data, &["--config", "t.toml"], &[])
}

/// Has the service read another file, in one step, so that it sees no half of it.
fn rewrite(service: &Tidegate, text: &str) {
    fs::write(service.path().join("new.toml"), text).unwrap();
    fs::rename(service.path().join("new.toml"), service.path().join("t.toml")).unwrap();
    service.signal("HUP");
}

fn page(http: SocketAddr) -> String {
    agent().get(format!("http://{http}/metrics")).call().unwrap().body_mut().read_to_string().unwrap()
}

/// Whether connections to this address are passed to the backend.
fn is_passed(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    answers(&mut stream)
}

/// The serial number of the certificate that is shown; empty if none is.
fn serial(address: SocketAddr) -> String {
    let script = format!("openssl s_client -connect {address} </dev/null | openssl x509 -noout -serial");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn serial_of(pair: &Pair) -> String {
    let arguments = ["x509", "-noout", "-serial", "-in", pair.certificate.to_str().unwrap()];
    String::from_utf8(Command::new("openssl").args(arguments).output().unwrap().stdout).unwrap()
}

#[test]
fn the_first_listener_of_the_edge_comes_and_passes_bytes() {
    let (http, edge, backend) = (free(), free(), echo());
    let service = start(&file(http, backend, &[]));
    assert!(!page(http).contains("tidegate_edge_open"), "nothing is said of an edge without listeners");
    rewrite(&service, &file(http, backend, &[at(edge)]));
    until("it passes bytes", || is_passed(edge));
    let explained = json(&service, "/v1/explain/edge?client_ip=127.0.0.1");
    assert_eq!(explained["listener"], edge.to_string(), "{explained}");
    let placed = format!("tidegate_edge_placed_total{{listener=\"{edge}\",by=\"score\"}}");
    let again = format!("tidegate_edge_placed_total{{listener=\"{edge}\",by=\"affinity\"}}");
    assert!(metric(&service, &placed) + metric(&service, &again) >= 1);
    assert!(page(http).contains("server=\"edge\""), "its connections are counted");
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success() && !ended.output.contains("at the next start"), "{}", ended.output);
}

#[test]
fn a_listener_of_the_edge_that_goes_lets_its_connection_go_on_and_refuses_others() {
    let (http, old, new, backend) = (free(), free(), free(), echo());
    let service = start(&file(http, backend, &[at(old)]));
    let (mut held, is_served) = visit("127.0.0.1", old);
    assert!(is_served);
    rewrite(&service, &file(http, backend, &[at(new)]));
    until("the new listener passes bytes", || is_passed(new));
    until("the old one refuses", || TcpStream::connect(old).is_err());
    assert!(answers(&mut held), "what is open goes on");
    let open = format!("tidegate_edge_open{{listener=\"{old}\"}}");
    assert_eq!(metric(&service, &open), 1, "and is counted");
    let explained = json(&service, "/v1/explain/edge?client_ip=127.0.0.1");
    assert_eq!(explained["listener"], new.to_string(), "{explained}");
    let asked = format!("/v1/explain/edge?client_ip=127.0.0.1&listener={old}");
    let status = agent().get(service.url(&asked)).call().unwrap().status();
    assert_eq!(status, 422, "it gets nothing any more");
    drop(held);
    until("it is not in the metrics any more", || !page(http).contains(&old.to_string()));
    // It may come back.
    rewrite(&service, &file(http, backend, &[at(new), at(old)]));
    until("the old one is there again", || is_passed(old));
    assert!(is_passed(new));
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success() && !ended.output.contains("at the next start"), "{}", ended.output);
}

#[test]
fn the_permit_of_a_connection_whose_listener_goes_comes_back_when_it_ends() {
    let (http, old, new, backend) = (free(), free(), free(), echo());
    let policy =
        "[[policy]]\nname = \"one\"\nalgorithm = \"concurrency\"\nlimit = 1\nkey = [\"client_id\"]\n";
    let limited = |address| format!("{}\npolicies = [\"one\"]", at(address));
    let text = |address| file(http, backend, &[limited(address)]) + policy;
    let service = start(&text(old));
    let (mut held, is_served) = visit("127.0.0.1", old);
    assert!(is_served && !is_passed(old), "there is one permit");
    rewrite(&service, &text(new));
    until("the old one refuses", || TcpStream::connect(old).is_err());
    assert!(answers(&mut held) && !is_passed(new), "it is held still");
    drop(held);
    until("it comes back", || is_passed(new));
    service.signal("TERM");
    assert!(service.wait().status.success());
}

#[test]
fn tls_of_a_listener_of_the_edge_comes_changes_and_goes() {
    let certificates = Certificates::make();
    let [first, second] = ["server", "second"].map(|name| certificates.issue(name));
    let (http, edge, backend) = (free(), free(), echo());
    let service = start(&file(http, backend, &[at(edge)]));
    let (mut held, is_served) = visit("127.0.0.1", edge);
    assert!(is_served);
    rewrite(&service, &file(http, backend, &[secured(edge, &first)]));
    until("a certificate is shown", || serial(edge) == serial_of(&first));
    assert!(answers(&mut held), "a connection of before goes on as it began");
    drop(held);
    rewrite(&service, &file(http, backend, &[secured(edge, &second)]));
    until("the other certificate is shown", || serial(edge) == serial_of(&second));
    let listed = json(&service, "/v1/certificates").to_string();
    assert!(listed.contains("second.pem") && !listed.contains("server.pem"), "{listed}");
    // The files that are followed are the new ones.
    let third = certificates.issue("third");
    let renewed = serial_of(&third);
    third.replace(&second);
    until("a renewed certificate is shown", || serial(edge) == renewed);
    rewrite(&service, &file(http, backend, &[at(edge)]));
    until("it is without TLS again", || is_passed(edge));
    service.signal("TERM");
    assert!(service.wait().status.success());
}

#[test]
fn addresses_that_the_edge_and_the_gateway_exchange_refuse_no_connection() {
    let (http, first, second, backend) = (free(), free(), free(), echo());
    let text = |edge, gateway| {
        let gateway = format!("[[gateway.listener]]\n{}\n", at(gateway));
        let route = "[[route]]\nname = \"all\"\nrespond = { status = 200, body = \"gateway\" }\n";
        file(http, backend, &[at(edge)]) + &gateway + route
    };
    let is_gateway = |address: SocketAddr| {
        let reply = agent().get(format!("http://{address}/")).call();
        reply.is_ok_and(|mut reply| reply.body_mut().read_to_string().is_ok_and(|body| body == "gateway"))
    };
    // A connection is never refused, so that whoever connects may say so by a panic.
    let is_edge = |address: SocketAddr| answers(&mut connect_from("127.0.0.1", address));
    let service = start(&text(first, second));
    assert!(is_edge(first) && is_gateway(second));
    rewrite(&service, &text(second, first));
    until("they are exchanged", || is_gateway(first) && is_edge(second));
    // What was taken over is no longer held by who had it.
    service.signal("TERM");
    assert!(service.wait().status.success());
    assert!([first, second].iter().all(|address| TcpStream::connect(address).is_err()));
}

#[test]
fn a_refused_file_leaves_the_listeners_of_the_edge_as_they_were() {
    let (http, edge, moved, backend) = (free(), free(), free(), echo());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap();
    let service = start(&file(http, backend, &[at(edge)]));
    let (mut held, is_served) = visit("127.0.0.1", edge);
    assert!(is_served);
    // One of the two could be had, and the one that is open would go.
    let wanted = file(http, backend, &[at(moved), at(busy)]);
    rewrite(&service, &wanted);
    until("it is refused", || page(http).contains("tidegate_config_last_reload_successful 0\n"));
    assert!(answers(&mut held) && is_passed(edge) && TcpStream::connect(moved).is_err());
    drop(taken);
    rewrite(&service, &wanted);
    until("all of it is in force", || is_passed(moved) && is_passed(busy));
    until("the one before is closed", || TcpStream::connect(edge).is_err());
    assert!(answers(&mut held));
    drop(held);
    service.signal("TERM");
    let output = service.wait().output;
    let is_told =
        |line: &str| line.contains("edge.listener[1].listen: cannot be opened") && line.contains("in use");
    assert!(output.lines().any(is_told), "{output}");
}
