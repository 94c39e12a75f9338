//! Listeners and their TLS change with the file, without a restart: in the built binary, on real sockets.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

use crate::support::edge::{PATIENCE, free, json, until};
use crate::support::{Tidegate, agent};
use tidegate_testkit::certificates::{Certificates, Pair};

/// What the server behind the gateway says.
const SAID: &str = "from behind the gateway";

/// A server behind the gateway. It tells of each request for `/slow`, and answers that when it is released.
struct Behind {
    address: SocketAddr,
    slow: mpsc::Receiver<()>,
    release: mpsc::SyncSender<()>,
}

fn behind() -> Behind {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, slow) = mpsc::sync_channel(16);
    let (release, released) = mpsc::sync_channel(16);
    let released = Arc::new(Mutex::new(released));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (tell, released) = (tell.clone(), Arc::clone(&released));
            std::thread::spawn(move || {
                while let Some(head) = head_of(&mut stream) {
                    if head.starts_with("GET /slow ") {
                        tell.send(()).unwrap();
                        released.lock().unwrap().recv().unwrap();
                    }
                    let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{SAID}", SAID.len());
                    if stream.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Behind { address, slow, release }
}

/// The head of the next request or reply; `None` if the connection ends instead.
fn head_of(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

/// A file of a decision API at `http`, and a gateway with these `listeners`.
fn file(http: SocketAddr, behind: &Behind, listeners: &[String]) -> String {
    let listeners = listeners.iter().map(|listener| format!("[[gateway.listener]]\n{listener}\n"));
    format!(
        "http.listen = \"{http}\"\nupstream = [{{ name = \"app\", servers = [\"{}\"] }}]\n\
         [[route]]\nname = \"app\"\nupstream = \"app\"\n{}",
        behind.address,
        listeners.collect::<String>()
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

/// The reply's body of a request by a connection of its own; `None` if there is no connection.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut reply = agent().get(format!("http://{address}{path}")).call().ok()?;
    Some(reply.body_mut().read_to_string().unwrap())
}

fn is_gateway(address: SocketAddr) -> bool {
    get(address, "/").as_deref() == Some(SAID)
}

/// Whether the last change of the file was refused.
fn is_refused(service: &Tidegate) -> bool {
    let page = get(service.http, "/metrics").unwrap();
    page.contains("tidegate_config_last_reload_successful 0\n")
}

/// How many changes of the file were refused.
fn refusals(http: SocketAddr) -> u64 {
    let page = get(http, "/metrics").unwrap();
    let counted = page.split("tidegate_config_reloads_total{result=\"refused\"} ").nth(1).unwrap();
    counted.lines().next().unwrap().parse().unwrap()
}

/// curl's exit code and the reply's body.
fn curl(certificates: &Certificates, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--max-time", "60", "--cacert"]).arg(certificates.authority());
    let output = command.args(more).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The serial number of the certificate that is shown.
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
fn a_listener_comes_and_one_that_goes_lets_its_requests_end() {
    let (http, old, new, behind) = (free(), free(), free(), behind());
    let service = start(&file(http, &behind, &[at(old)]));
    let mut open = TcpStream::connect(old).unwrap();
    open.set_read_timeout(Some(PATIENCE)).unwrap();
    open.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    behind.slow.recv_timeout(PATIENCE).unwrap();

    rewrite(&service, &file(http, &behind, &[at(new)]));
    until("the new listener serves", || is_gateway(new));
    until("the old one refuses", || TcpStream::connect(old).is_err());
    behind.release.send(()).unwrap();
    let head = head_of(&mut open).expect("the request that was under way is answered");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut rest = String::new();
    open.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, SAID, "then the connection ends");

    // It may come back.
    rewrite(&service, &file(http, &behind, &[at(new), at(old)]));
    until("the old one is there again", || is_gateway(old));
    assert!(is_gateway(new));
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success(), "{}", ended.output);
    assert!(!ended.output.contains("at the next start"), "{}", ended.output);
}

#[test]
fn other_files_of_a_certificate_and_authorities_of_clients_are_in_force_for_new_connections() {
    let certificates = Certificates::make();
    let [first, second, client] = ["server", "second", "client"].map(|name| certificates.issue(name));
    let (http, gateway, behind) = (free(), free(), behind());
    let service = start(&file(http, &behind, &[secured(gateway, &first)]));
    assert_eq!(serial(gateway), serial_of(&first));

    rewrite(&service, &file(http, &behind, &[secured(gateway, &second)]));
    until("the other certificate is shown", || serial(gateway) == serial_of(&second));
    // The files that are followed are the new ones.
    let third = certificates.issue("third");
    let renewed = serial_of(&third);
    third.replace(&second);
    until("a renewed certificate is shown", || serial(gateway) == renewed);
    let listed = json(&service, "/v1/certificates").to_string();
    assert!(listed.contains("second.pem") && !listed.contains("server.pem"), "{listed}");

    let authority = certificates.authority();
    let demanding = format!("{}\ntls_client_ca = {authority:?}", secured(gateway, &second));
    rewrite(&service, &file(http, &behind, &[demanding]));
    let url = format!("https://{gateway}/");
    // Its code for a handshake that failed, or for a connection that ended in the midst of it.
    let is_turned_away = || matches!(curl(&certificates, &[&url]).0, Some(35 | 56));
    until("a client without a certificate is turned away", is_turned_away);
    let (certificate, key) = (client.certificate.to_str().unwrap(), client.key.to_str().unwrap());
    let shown = curl(&certificates, &["--cert", certificate, "--key", key, &url]);
    assert_eq!(shown, (Some(0), SAID.to_owned()));
    service.signal("TERM");
    assert!(service.wait().status.success());
}

/// Whether a client of openssl's that speaks this version of TLS alone is let in.
fn is_let_in(address: SocketAddr, version: &str) -> bool {
    let mut command = Command::new("openssl");
    command.args(["s_client", version, "-connect", &address.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn clients_of_an_old_tls_are_refused_at_every_listener_whose_least_version_the_file_raises() {
    let certificates = Certificates::make();
    let pair = certificates.issue("server");
    let (http, admin, gateway, edge, behind) = (free(), free(), free(), free(), behind());
    let text = |is_newest: bool| {
        let tls = |at: &str| {
            let least = if is_newest { format!("{at}tls_min_version = \"1.3\"\n") } else { String::new() };
            format!("{at}tls_certificate = {:?}\n{at}tls_key = {:?}\n{least}", pair.certificate, pair.key)
        };
        let groups = ["http.", "admin.", "grpc.", "resp.", "intake."].map(tls).concat();
        let listener = format!("{}\n{}", at(gateway), tls(""));
        format!(
            "{groups}admin.listen = \"{admin}\"\n{}[[edge.listener]]\nlisten = \"{edge}\"\n{}\
             [[edge.backend]]\nname = \"app\"\naddress = \"{}\"\ncheck = {{ kind = \"off\" }}\n",
            file(http, &behind, &[listener]),
            tls(""),
            behind.address
        )
    };
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("t.toml"), text(false)).unwrap();
    let service = Tidegate::start_in(data, &["--config", "t.toml"], &[("TIDEGATE_EDGE_API_LISTEN", "off")]);
    let intake = service.intake.unwrap();
    let listeners = [http, admin, service.grpc, service.resp, intake, gateway, edge];
    for address in listeners {
        assert!(is_let_in(address, "-tls1_2") && is_let_in(address, "-tls1_3"), "{address}");
    }
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session");
    // With the session of a client of TLS 1.2 that was let in.
    let resumes = |option: &str| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-tls1_2", "-connect", &http.to_string(), option]).arg(&session);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(resumes("-sess_out") && session.exists() && resumes("-sess_in"));
    rewrite(&service, &text(true));
    until("TLS 1.2 is refused everywhere", || listeners.iter().all(|it| !is_let_in(*it, "-tls1_2")));
    for address in listeners {
        assert!(is_let_in(address, "-tls1_3"), "{address}");
    }
    assert!(!resumes("-sess_in"), "no session of before is a way around it");
    rewrite(&service, &text(false));
    until("TLS 1.2 is spoken again", || listeners.iter().all(|it| is_let_in(*it, "-tls1_2")));
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success() && !ended.output.contains("at the next start"), "{}", ended.output);
}

#[test]
fn the_admin_api_takes_tls_and_the_cookies_of_its_sessions_follow() {
    let certificates = Certificates::make();
    let (pair, token) = (certificates.issue("server"), "the-token-of-the-operator");
    let (http, behind) = (free(), behind());
    let plain = format!("admin.token = \"{token}\"\n{}", file(http, &behind, &[]));
    let service = start(&plain);
    let bearer = format!("authorization: Bearer {token}");
    let session = |scheme: &str| {
        let url = format!("{scheme}://{http}/v1/session");
        curl(&certificates, &["--include", "--request", "POST", "--header", &bearer, &url]).1.to_lowercase()
    };
    let said = session("http");
    assert!(said.contains("set-cookie: tidegate_session=") && !said.contains("; secure"), "{said}");
    let mut events = TcpStream::connect(http).unwrap();
    events.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(events, "GET /v1/events HTTP/1.1\r\nhost: a\r\n{bearer}\r\n\r\n").unwrap();
    let head = head_of(&mut events).unwrap();
    assert!(head.contains("text/event-stream"), "{head}");
    let tls = format!("http.tls_certificate = {:?}\nhttp.tls_key = {:?}\n", pair.certificate, pair.key);
    rewrite(&service, &format!("{tls}{plain}"));
    let mut rest = String::new();
    events.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("\r\n0\r\n\r\n"), "the stream ends with the listener that it came by: {rest}");
    until("it speaks TLS", || session("https").contains("set-cookie: tidegate_session="));
    let said = session("https");
    assert!(said.contains("; secure"), "{said}");
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success() && !ended.output.contains("cut at the deadline"), "{}", ended.output);
}

#[test]
fn an_address_or_a_certificate_that_cannot_be_had_leaves_all_as_it_was() {
    let (http, gateway, behind) = (free(), free(), behind());
    let (moved, missing) = (free(), free());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap();
    let service = start(&file(http, &behind, &[at(gateway)]));
    let good = "[[policy]]\nname = \"new\"\nlimit = 1\nwindow_seconds = 60\n";
    let policies = || json(&service, "/v1/policies").to_string();

    // One of the two could be had.
    let wanted = file(moved, &behind, &[at(busy)]) + good;
    rewrite(&service, &wanted);
    until("it is refused", || is_refused(&service));
    assert!(is_gateway(gateway) && TcpStream::connect(moved).is_err());
    assert!(!policies().contains("\"new\""), "nothing of the file is in force");
    let secured = format!("{}\ntls_certificate = \"missing.pem\"\ntls_key = \"missing.key\"", at(missing));
    rewrite(&service, &(file(http, &behind, &[at(gateway), secured]) + good));
    // The file before may have been read twice since, so that it takes three more to know that this one was.
    let before = refusals(http);
    let is_read = || {
        service.signal("HUP");
        refusals(http) >= before + 3
    };
    until("so is the certificate", is_read);
    assert!(is_gateway(gateway) && TcpStream::connect(missing).is_err() && !policies().contains("\"new\""));

    drop(taken);
    rewrite(&service, &wanted);
    until("all of it is in force", || is_gateway(busy) && get(moved, "/livez").is_some());
    service.signal("TERM");
    let output = service.wait().output;
    let told = |words: [&str; 2]| output.lines().any(|line| words.iter().all(|words| line.contains(words)));
    // With its line in the file.
    assert!(told(["t.toml:6:1: gateway.listener[0].listen: cannot be opened", "in use"]), "{output}");
    assert!(told(["gateway.listener[1].tls_certificate", "missing.pem"]), "{output}");
}

#[test]
fn addresses_that_the_apis_and_the_gateway_exchange_refuse_no_connection() {
    let (first, second, behind) = (free(), free(), behind());
    let service = start(&file(first, &behind, &[at(second)]));
    assert!(is_gateway(second) && !is_gateway(first));
    rewrite(&service, &file(second, &behind, &[at(first)]));
    until("they are exchanged", || {
        let answers = [first, second].map(|address| get(address, "/").expect("somebody answers at each"));
        answers[0] == SAID && answers[1] != SAID
    });
    assert!(get(second, "/metrics").unwrap().contains("tidegate_config_last_reload_successful 1\n"));
    // What was taken over is no longer held by who had it.
    service.signal("TERM");
    assert!(service.wait().status.success());
    assert!([first, second].iter().all(|address| TcpStream::connect(address).is_err()));
}

/// Whether the Redis protocol is spoken there.
fn is_redis(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut pong = [0; 7];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"PING\r\n").is_ok() && stream.read_exact(&mut pong).is_ok() && &pong == b"+PONG\r\n"
}

/// Whether HTTP/2 is spoken there: the server's preface is a frame of its settings (RFC 9113, 3.4).
fn is_http2(address: SocketAddr) -> bool {
    const SETTINGS: u8 = 4;
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut frame = [0; 9];
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).is_ok() && stream.read_exact(&mut frame).is_ok() && frame[3] == SETTINGS
}

/// Whether HTTP/1.1 is spoken there.
fn is_http(address: SocketAddr) -> bool {
    get(address, "/nothing").is_some()
}

#[test]
fn grpc_resp_and_the_intake_exchange_their_ports_and_two_are_turned_off() {
    let (http, addresses) = (free(), [free(), free(), free()]);
    let [one, two, three] = addresses.map(|address| address.to_string());
    let text = |grpc: &str, resp: &str, intake: &str| {
        format!(
            "http.listen = \"{http}\"\ngrpc.listen = \"{grpc}\"\nresp.listen = \"{resp}\"\nintake.listen = \"{intake}\"\n"
        )
    };
    let data = tempfile::tempdir().unwrap();
    fs::write(data.path().join("t.toml"), text(&one, &two, &three)).unwrap();
    // What the environment says is never changed by the file.
    let mut command = Command::new("env");
    let unset = ["GRPC", "RESP", "INTAKE"].map(|listener| format!("--unset=TIDEGATE_{listener}_LISTEN"));
    command.args(unset).arg(env!("CARGO_BIN_EXE_tidegate")).args(["serve", "--config", "t.toml"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let service = Tidegate::spawn(data, command, &[]);
    assert!(is_redis(addresses[1]) && is_http(addresses[2]));
    rewrite(&service, &text(&two, &three, &one));
    until("they are exchanged", || is_redis(addresses[2]) && is_http(addresses[0]) && is_http2(addresses[1]));
    assert!(!is_redis(addresses[1]) && !is_http(addresses[1]), "gRPC alone is there");
    rewrite(&service, &text("off", "off", &one));
    let off = [addresses[1], addresses[2]];
    until("two are closed", || off.iter().all(|address| TcpStream::connect(address).is_err()));
    assert!(is_http(addresses[0]));
    service.signal("TERM");
    let ended = service.wait();
    assert!(ended.status.success() && !ended.output.contains("at the next start"), "{}", ended.output);
}
