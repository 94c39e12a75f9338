//! The gateway of the built binary between clients and servers of each protocol, with TLS and without, in every pair: curl
//! asks, and nginx says what it was asked in, and keeps and returns a file.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Tidegate;
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::free_port;
use tidegate_testkit::nginx::Nginx;

/// Large enough to come in several pieces.
const FILE_BYTES: usize = 300_000;

/// Starts nginx on ports of HTTP/1.1, of HTTP/2, and of the same with TLS.
fn start_nginx(certificates: &Certificates) -> (Nginx, [u16; 4]) {
    let ports = [free_port(), free_port(), free_port(), free_port()];
    let pair = format!(
        "ssl_certificate {}; ssl_certificate_key {};",
        certificates.certificate().display(),
        certificates.key().display()
    );
    let nginx = Nginx::start(&ports, |folder| {
        let at = folder.display();
        let servers = [("", ""), ("http2", ""), ("ssl", &pair), ("ssl http2", &pair)].into_iter().zip(ports);
        let servers: String = servers
            .map(|((how, pair), port)| {
                format!(
                    "server {{ listen 127.0.0.1:{port} {how}; {pair} root {at}; client_max_body_size 1m;\n\
                     location = /file {{ dav_methods PUT; }}\n\
                     location / {{ return 200 \"$server_protocol$https $request_method $http_x_of\"; }} }}\n"
                )
            })
            .collect();
        format!("access_log off;\n{servers}")
    });
    (nginx, ports)
}

/// A route to each of the four, and a listener without TLS and one with it.
fn file(ports: [u16; 4], certificates: &Certificates) -> String {
    let (pair, authority) = ((certificates.certificate(), certificates.key()), certificates.authority());
    let mut text = format!(
        "gateway.listener = [{{ listen = \"127.0.0.1:0\" }}, {{ listen = \"127.0.0.1:0\", tls_certificate = {:?}, tls_key = {:?} }}]\n",
        pair.0, pair.1
    );
    for ((scheme, protocol), port) in
        [("http", "http1"), ("http", "http2"), ("https", "http1"), ("https", "http2")].into_iter().zip(ports)
    {
        let name = format!("{scheme}-{protocol}");
        let tls =
            if scheme == "https" { format!("tls = {{ ca_file = {authority:?} }}\n") } else { String::new() };
        text += &format!(
            "[[upstream]]\nname = \"{name}\"\nservers = [\"{scheme}://127.0.0.1:{port}\"]\nprotocol = \"{protocol}\"\n{tls}\
             [[route]]\nname = \"{name}\"\npath = \"/{name}/*\"\nstrip_prefix = \"/{name}\"\nupstream = \"{name}\"\n"
        );
    }
    text
}

/// What curl says of a reply, and the reply.
fn curl(authority: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60", "--cacert"]).arg(authority);
    command.args(["--write-out", " | %{http_version} %{response_code} %{size_download}"]).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?} {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_protocol_of_a_client_goes_on_in_every_protocol_of_a_server() {
    let certificates = Certificates::make();
    let (nginx, ports) = start_nginx(&certificates);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file(ports, &certificates)).unwrap();
    let free = [("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")];
    let service = Tidegate::start_in(folder, &["--config", "tidegate.toml"], &free);
    let [clear, secured] = service.gateway[..] else { panic!("{:?}", service.gateway) };
    let (clear, secured) = (format!("http://{clear}"), format!("https://{secured}"));
    let authority = certificates.authority();
    let [sent, received] = ["sent", "received"].map(|name| service.path().join(name).display().to_string());
    let body: Vec<u8> = (0..FILE_BYTES).map(|byte| (byte % 251) as u8).collect();
    fs::write(&sent, &body).unwrap();
    for (at, option, version) in [
        (&clear, "--http1.1", "1.1"),
        (&clear, "--http2-prior-knowledge", "2"),
        (&secured, "--http1.1", "1.1"),
        (&secured, "--http2", "2"),
    ] {
        for (route, spoken) in [
            ("http-http1", "HTTP/1.1"),
            ("http-http2", "HTTP/2.0"),
            ("https-http1", "HTTP/1.1on"),
            ("https-http2", "HTTP/2.0on"),
        ] {
            let ask = |path: &str, more: &[&str]| {
                let url = format!("{at}/{route}/{path}");
                curl(&authority, &[&[option, "--header", "x-of: a client", &url], more].concat())
            };
            for _ in 0..3 {
                let said = ask("", &[]);
                let length = spoken.len() + " GET a client".len();
                assert_eq!(
                    said,
                    format!("{spoken} GET a client | {version} 200 {length}"),
                    "{at} {option} {route}"
                );
            }
            let status = |said: &str| said.rsplit_once(" | ").unwrap().1.to_owned();
            let put = status(&ask("file", &["--upload-file", &sent]));
            assert!(
                [format!("{version} 201 0"), format!("{version} 204 0")].contains(&put),
                "{put}: {at} {option} {route}"
            );
            let got = status(&ask("file", &["--output", &received]));
            assert_eq!(got, format!("{version} 200 {FILE_BYTES}"), "{at} {option} {route}");
            assert!(fs::read(&received).unwrap() == body, "{at} {option} {route}");
            fs::remove_file(nginx.folder().join("file")).unwrap();
        }
    }
}
