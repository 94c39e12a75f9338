//! `tidegate import nginx`: the certificate that servers are shown, the same through nginx and imported; and versions of TLS.

use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::free_port;

use super::backend::ask;
use super::nginx::{Nginx, import};
use crate::support::Tidegate;

/// nginx is the server, too: it lets nobody in without a certificate of the authority, and says whose it was shown.
#[test]
fn a_server_that_demands_a_certificate_is_shown_the_one_that_nginx_shows() {
    let certificates = Certificates::make();
    let client = certificates.issue("client");
    let (authority, server) = (certificates.authority(), free_port());
    let _server = tidegate_testkit::nginx::Nginx::start(&[server], |_| {
        format!(
            "access_log off;\nserver {{ listen 127.0.0.1:{server} ssl; ssl_certificate {}; ssl_certificate_key {};\n\
             ssl_client_certificate {}; ssl_verify_client on;\n\
             location / {{ return 200 \"$ssl_client_verify $ssl_client_serial\"; }} }}",
            certificates.certificate().display(),
            certificates.key().display(),
            authority.display()
        )
    });
    let ports = [free_port(), free_port()];
    let [there, here] = ports.map(|port| {
        format!(
            "proxy_ssl_trusted_certificate {};\nproxy_ssl_verify on;\nproxy_ssl_name localhost;\n\
             server {{\n    listen 127.0.0.1:{port};\n    \
             location / {{ proxy_ssl_certificate {}; proxy_ssl_certificate_key {};\n        \
             proxy_pass https://127.0.0.1:{server}; }}\n    \
             location /plain {{ proxy_pass https://localhost:{server}; }}\n}}\n",
            authority.display(),
            client.certificate.display(),
            client.key.display()
        )
    });
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (file, output) = (folder.path().join("nginx.conf"), data.path().join("tidegate.toml"));
    let _nginx = Nginx::start(folder.path(), &there);
    std::fs::write(&file, here).unwrap();
    let ran = import(&[file.to_str().unwrap(), "--output", output.to_str().unwrap()]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let arguments = ["--config", output.to_str().unwrap()];
    let _tidegate = Tidegate::start_in(data, &arguments, &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    for (path, status) in [("/", 200), ("/plain", 400)] {
        let [theirs, ours] = ports.map(|port| ask(&format!("http://127.0.0.1:{port}{path}"), &[]));
        assert_eq!([theirs.status, ours.status], [status; 2], "{path}: {theirs:?} {ours:?}");
        assert_eq!(theirs.body, ours.body, "{path}");
        assert!(ours.body.is_none_or(|body| body.starts_with("SUCCESS ")), "{path}");
    }
}

#[test]
fn a_client_certificate_that_is_not_whole_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nginx.conf");
    for (stated, expected) in [
        (
            "proxy_ssl_certificate /c.pem;",
            "proxy_ssl_certificate: has no proxy_ssl_certificate_key beside it",
        ),
        (
            "proxy_ssl_certificate /c.pem; proxy_ssl_certificate_key engine:a:b;",
            "proxy_ssl_certificate_key: is no file",
        ),
        (
            "proxy_ssl_certificate $host.pem; proxy_ssl_certificate_key /c.key;",
            "proxy_ssl_certificate: is no file",
        ),
    ] {
        let text = format!(
            "http {{ server {{ listen 127.0.0.1:8080; location / {{ {stated} proxy_pass https://127.0.0.1:1; }} }} }}"
        );
        std::fs::write(&file, text).unwrap();
        let ran = import(&[file.to_str().unwrap()]);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.code() == Some(2) && said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn tls_1_3_alone_is_taken_over_and_other_lists_of_versions_are_a_warning() {
    let certificates = Certificates::make();
    let folder = tempfile::tempdir().unwrap();
    let imported = |name: &str, clients: &str, servers: &str| {
        let (file, output) = (folder.path().join(name), folder.path().join(format!("{name}.toml")));
        let text = format!(
            "http {{ server {{ listen 127.0.0.1:8443 ssl; ssl_certificate {}; ssl_certificate_key {};\n\
             ssl_protocols {clients};\nlocation / {{ proxy_ssl_protocols {servers};\n\
             proxy_ssl_trusted_certificate {}; proxy_ssl_verify on; proxy_pass https://127.0.0.1:1; }} }} }}",
            certificates.certificate().display(),
            certificates.key().display(),
            certificates.authority().display()
        );
        std::fs::write(&file, text).unwrap();
        let ran = import(&[file.to_str().unwrap(), "--output", output.to_str().unwrap()]);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.success(), "{said}");
        (std::fs::read_to_string(output).unwrap(), said)
    };
    let (written, said) = imported("newest", "TLSv1.3", "TLSv1.3");
    assert!(written.contains("tls_min_version = \"1.3\""), "{written}");
    assert_eq!(written.matches("min_version = \"1.3\"").count(), 2, "{written}");
    assert!(!said.contains("ssl_protocols"), "{said}");

    let (written, said) = imported("both", "TLSv1.2 TLSv1.3", "TLSv1.2");
    assert!(!written.contains("min_version"), "{written}");
    assert_eq!(said.matches("ssl_protocols: has no effect").count(), 2, "{said}");
    assert!(said.contains("proxy_ssl_protocols: has no effect"), "{said}");
}

#[test]
fn versions_of_tls_are_inherited_and_a_server_that_has_others_than_its_listener_is_a_warning() {
    let certificates = Certificates::make();
    // What the whole file, its first server and a second one at the same address say.
    let imported = |[http, first, second]: [&str; 3]| {
        let folder = tempfile::tempdir().unwrap();
        let (file, output) = (folder.path().join("nginx.conf"), folder.path().join("tidegate.toml"));
        let text = format!(
            "http {{ ssl_certificate {}; ssl_certificate_key {}; {http}\n\
             server {{ listen 127.0.0.1:8443 ssl; server_name a.test; {first}\nlocation / {{ return 204; }} }}\n\
             server {{ listen 127.0.0.1:8443 ssl; server_name b.test; {second}\nlocation / {{ return 204; }} }} }}",
            certificates.certificate().display(),
            certificates.key().display()
        );
        std::fs::write(&file, text).unwrap();
        let ran = import(&[file.to_str().unwrap(), "--output", output.to_str().unwrap()]);
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(ran.status.success(), "{said}");
        (std::fs::read_to_string(output).unwrap().contains("tls_min_version = \"1.3\""), said)
    };
    let (newest, all) = ("ssl_protocols TLSv1.3;", "ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;");
    let alone = "ssl_protocols: TLS 1.3 alone is spoken at 127.0.0.1:8443";
    let both = "ssl_protocols: has no effect at 127.0.0.1:8443: TLS 1.2 is spoken there";
    for (stated, expected, warning) in [
        ([newest, "", ""], true, None),
        (["", newest, newest], true, None),
        ([newest, all, ""], false, Some(both)),
        ([all, newest, ""], true, Some(alone)),
        (["", newest, ""], true, Some(alone)),
        (["", "", newest], false, Some(both)),
        ([all, "", ""], false, None),
    ] {
        let (is_newest, said) = imported(stated);
        assert_eq!(is_newest, expected, "{stated:?}: {said}");
        for known in [alone, both] {
            assert_eq!(said.contains(known), warning == Some(known), "{stated:?}: {said}");
        }
    }
}
