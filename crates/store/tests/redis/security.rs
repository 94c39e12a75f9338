//! TLS, mTLS and an ACL user that may do only what the store needs.

use tidegate_store::StoreError;
use tidegate_store::redis::config::{RedisConfig, Secret, TlsConfig};
use tidegate_testkit::certificates::Certificates;
use tidegate_testkit::free_port;
use tidegate_testkit::redis::RedisServer;

use crate::node::{Clock, bare, hourly, patient, remaining, spend};

/// What the script calls, and the two commands that run it.
const RIGHTS: &str = "on >correct-horse ~tg:* +evalsha +script|load +time +get +set +setrange +pexpire +del";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutual_tls_and_an_acl_user() {
    let certificates = Certificates::make();
    let port = free_port();
    let path = |path: std::path::PathBuf| path.display().to_string();
    let server = RedisServer::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-ca-cert-file",
        &path(certificates.authority()),
        "--tls-cert-file",
        &path(certificates.certificate()),
        "--tls-key-file",
        &path(certificates.key()),
    ]);
    let set = [&["ACL", "SETUSER", "tidegate"][..], &RIGHTS.split(' ').collect::<Vec<_>>()].concat();
    assert_eq!(server.command(&set).trim(), "OK");
    let clock = Clock::start();
    let limit = hourly(100);
    let read = |path: std::path::PathBuf| std::fs::read(path).unwrap();
    let key = Secret(String::from_utf8(read(certificates.key())).unwrap());
    let mut config = patient(RedisConfig::single("127.0.0.1", port));
    config.username = Some("tidegate".to_owned());
    config.password = Some(Secret("correct-horse".to_owned()));
    config.tls = Some(TlsConfig {
        root: Some(read(certificates.authority())),
        client: Some((read(certificates.certificate()), key)),
    });
    assert!(!format!("{config:?}").contains("correct-horse"), "a secret does not show");

    let store = bare(config.clone());
    spend(&store, &clock, &limit, b"client").await.unwrap();
    assert_eq!(remaining(&store, &clock, &limit, b"client").await, 99);

    let wrong = RedisConfig { password: Some(Secret("guess".to_owned())), ..config.clone() };
    let error = spend(&bare(wrong), &clock, &limit, b"client").await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
    let anonymous = TlsConfig { client: None, ..config.tls.clone().unwrap() };
    let error =
        spend(&bare(RedisConfig { tls: Some(anonymous), ..config.clone() }), &clock, &limit, b"client").await;
    assert!(error.is_err(), "a client without a certificate");
    let stranger =
        TlsConfig { root: Some(read(Certificates::make().authority())), ..config.tls.clone().unwrap() };
    let error = spend(&bare(RedisConfig { tls: Some(stranger), ..config }), &clock, &limit, b"client")
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
}
