//! Fault 42: certificates are rotated while serving, and a pair that cannot be served changes nothing.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::common;
use crate::common::tls::{client, connect, first, server, shown};
use crate::common::{Options, TestServer, request};
use rustls::{ClientConnection, StreamOwned};
use tidegate_net::tls::{
    NamedCertificates, NamedPair, NamedPairError, PairFiles, Tls, TlsConfig, TlsFault, TlsFile, TlsFiles,
};
use tidegate_testkit::certificates::{Certificates, Pair};

/// A running server whose pair is a copy that the test may replace.
struct Rotating {
    certificates: Certificates,
    pair: Pair,
    tls: Tls,
    server: TestServer,
}

impl Rotating {
    fn start() -> Self {
        let certificates = Certificates::make();
        let pair = certificates.issue("in-force");
        let tls = Tls::load(server(&pair, None)).unwrap();
        let options = Options { tls: Some(tls.clone()), ..Options::default() };
        Self { certificates, pair, tls, server: TestServer::start(options) }
    }
}

#[test]
fn fault_42_new_connections_get_the_new_pair_and_old_ones_go_on() {
    let rotating = Rotating::start();
    let config = client(&rotating.certificates, None, &[]);
    let old = first(&rotating.pair.certificate);
    let mut before = connect(rotating.server.address, &config);
    assert!(request(&mut before, "/").unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(shown(&before), old);

    let next = rotating.certificates.issue("next");
    next.replace(&rotating.pair);
    rotating.tls.reload().unwrap();
    // The same client, which holds a ticket: the new certificate is shown nevertheless.
    let mut after = connect(rotating.server.address, &config);
    assert!(request(&mut after, "/").unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(shown(&after), first(&next.certificate));
    assert!(request(&mut before, "/").unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(rotating.server.stats.totals().handshakes, 2);
}

#[test]
fn fault_42_rotation_under_load_fails_no_request() {
    const ROTATIONS: usize = 30;
    let rotating = Rotating::start();
    let address = rotating.server.address;
    let [one, other] = ["one", "other"].map(|name| rotating.certificates.issue(name));
    let stop = AtomicBool::new(false);
    let use_it = || {
        let (mut requests, mut seen) = (0, HashSet::new());
        while !stop.load(Relaxed) {
            // A client of its own each time: what is measured are full handshakes.
            let mut stream = connect(address, &client(&rotating.certificates, None, &[]));
            for _ in 0..4 {
                assert!(request(&mut stream, "/").unwrap().starts_with("HTTP/1.1 200"));
                requests += 1;
            }
            seen.insert(shown(&stream).to_vec());
        }
        (requests, seen)
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(use_it)).collect();
        for pair in [&one, &other].into_iter().cycle().take(ROTATIONS) {
            pair.replace(&rotating.pair);
            rotating.tls.reload().unwrap();
            // At most four are under way with the pair before.
            let so_far = rotating.server.stats.totals().handshakes;
            common::eventually("the pair is used", || rotating.server.stats.totals().handshakes > so_far + 4);
        }
        stop.store(true, Relaxed);
        let ended: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        assert!(ended.iter().map(|(requests, _)| requests).sum::<usize>() > ROTATIONS * 16);
        let seen: HashSet<_> = ended.into_iter().flat_map(|(_, seen)| seen).collect();
        for pair in [&one, &other] {
            assert!(seen.contains(first(&pair.certificate).as_ref()), "both pairs were served");
        }
    });
    let totals = rotating.server.stats.totals();
    assert_eq!(totals.handshakes_failed.iter().sum::<u64>(), 0);
    assert_eq!(rotating.tls.status().applied, ROTATIONS as u64);
}

/// What a file may turn into, and what is said of it.
type Case = (&'static str, TlsFile, fn(&Certificates, &Pair), fn(&TlsFault) -> bool);

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
}

const CASES: &[Case] = &[
    (
        "No such file",
        TlsFile::Certificate,
        |_, pair| fs::remove_file(&pair.certificate).unwrap(),
        |fault| matches!(fault, TlsFault::Unreadable(_)),
    ),
    (
        "not a regular file",
        TlsFile::Key,
        |_, pair| {
            fs::remove_file(&pair.key).unwrap();
            fs::create_dir(&pair.key).unwrap();
        },
        |fault| matches!(fault, TlsFault::Unreadable(_)),
    ),
    (
        "no certificate in PEM",
        TlsFile::Certificate,
        |_, pair| write(&pair.certificate, b"-----BEGIN CERTIFICATE-----\n???"),
        |fault| matches!(fault, TlsFault::NoCertificate),
    ),
    (
        "cannot be used",
        TlsFile::Certificate,
        |_, pair| {
            let torn = "-----BEGIN CERTIFICATE-----\nMAMCAQA=\n-----END CERTIFICATE-----\n";
            write(&pair.certificate, torn.as_bytes());
        },
        |fault| matches!(fault, TlsFault::BadCertificate(_)),
    ),
    (
        "larger than",
        TlsFile::Certificate,
        |_, pair| write(&pair.certificate, &vec![b'#'; (1 << 20) + 1]),
        |fault| matches!(fault, TlsFault::TooLarge),
    ),
    (
        "to be shown in a handshake",
        TlsFile::Certificate,
        |certificates, pair| lengthen(certificates, pair, 65_000),
        |fault| matches!(fault, TlsFault::TooLongToShow(65_001..)),
    ),
    (
        "not encrypted",
        TlsFile::Key,
        |_, pair| {
            let key = fs::read_to_string(&pair.key).unwrap();
            write(&pair.key, key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY").as_bytes());
        },
        |fault| matches!(fault, TlsFault::NoKey),
    ),
    (
        "private key that cannot be used",
        TlsFile::Key,
        |_, pair| {
            write(&pair.key, b"-----BEGIN PRIVATE KEY-----\nMAMCAQA=\n-----END PRIVATE KEY-----\n");
        },
        |fault| matches!(fault, TlsFault::BadKey(_)),
    ),
    (
        "is not the key of the certificate in",
        TlsFile::Key,
        |certificates, pair| {
            fs::copy(certificates.issue("stranger").key, &pair.key).unwrap();
        },
        |fault| matches!(fault, TlsFault::Mismatch(_)),
    ),
    (
        "expired 24 h ago",
        TlsFile::Certificate,
        |certificates, pair| certificates.expired("over").replace(pair),
        |fault| matches!(fault, TlsFault::Expired(_)),
    ),
];

/// Repeats the authority behind the certificate until the chain has more than `bytes`, as a handshake shows
/// it; without the last one it would have less.
fn lengthen(certificates: &Certificates, pair: &Pair, bytes: usize) {
    let shown = |path: &Path| first(path).len() + 5;
    let (own, more) = (shown(&pair.certificate), shown(&certificates.authority()));
    let times = (bytes - own) / more + 1;
    let mut chain = fs::read_to_string(&pair.certificate).unwrap();
    chain.push_str(&fs::read_to_string(certificates.authority()).unwrap().repeat(times));
    write(&pair.certificate, chain.as_bytes());
}

#[test]
fn fault_42_the_longest_chain_that_is_accepted_can_be_served() {
    let rotating = Rotating::start();
    let longest = 65_000 - first(&rotating.certificates.authority()).len() - 5;
    lengthen(&rotating.certificates, &rotating.pair, longest);
    rotating.tls.reload().unwrap();
    let mut stream = connect(rotating.server.address, &client(&rotating.certificates, None, &[]));
    assert!(request(&mut stream, "/").unwrap().starts_with("HTTP/1.1 200"));
    assert!(stream.conn.peer_certificates().unwrap().len() > 50);
}

/// A client that authenticates itself is told the names of the authorities, in one message of bounded size.
#[test]
fn fault_42_authorities_whose_names_no_handshake_can_hold_are_refused() {
    let certificates = Certificates::make();
    let pair = certificates.issue("in-force");
    let unit = "/OU=a unit with a name that is about as long as X.520 lets it be";
    let long = fs::read_to_string(certificates.other_authority(&unit.repeat(10))).unwrap();
    let own = fs::read_to_string(certificates.authority()).unwrap();
    let file = certificates.authority().with_file_name("authorities.pem");
    let tls = |times| {
        write(&file, format!("{own}{}", long.repeat(times)).as_bytes());
        Tls::load(server(&pair, Some(&file)))
    };

    let error = tls(100).unwrap_err();
    assert_eq!((error.file, &error.path), (TlsFile::ClientCa, &file), "{error}");
    assert!(matches!(error.fault, TlsFault::TooLongToShow(65_001..)), "{error}");

    let most = (1..100).rev().find_map(|times| tls(times).ok()).unwrap();
    let server = TestServer::start(Options { tls: Some(most), ..Options::default() });
    let mut stream =
        connect(server.address, &client(&certificates, Some(&certificates.issue("client")), &[]));
    assert!(request(&mut stream, "/").unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn fault_42_a_bad_pair_is_refused_and_the_old_one_serves_on() {
    for (refused, (words, file, spoil, is_expected)) in CASES.iter().enumerate() {
        let rotating = Rotating::start();
        let old = first(&rotating.pair.certificate);
        spoil(&rotating.certificates, &rotating.pair);
        let error = rotating.tls.reload().expect_err(words);
        let text = error.to_string();
        let path = if *file == TlsFile::Key { &rotating.pair.key } else { &rotating.pair.certificate };
        assert_eq!((error.file, &error.path), (*file, path), "{refused}: {text}");
        assert!(is_expected(&error.fault) && text.contains(words), "{text}");
        assert!(text.starts_with(&path.display().to_string()), "{text}");

        let status = rotating.tls.status();
        assert_eq!((status.is_reload_good, status.applied, status.refused), (false, 0, 1));
        let mut stream = connect(rotating.server.address, &client(&rotating.certificates, None, &[]));
        assert!(request(&mut stream, "/").unwrap().starts_with("HTTP/1.1 200"));
        assert_eq!(shown(&stream), old);
    }
}

#[test]
fn fault_42_the_days_that_are_left_follow_the_certificate() {
    const DAY: u64 = 86_400;
    let rotating = Rotating::start();
    let left = || rotating.tls.status().seconds_left().unwrap();
    assert!((DAY - 600..=DAY).contains(&left()), "{}", left());
    rotating.certificates.issue_for("longer", 90).replace(&rotating.pair);
    assert!(left() <= DAY, "nothing was loaded yet");
    rotating.tls.reload().unwrap();
    assert!((90 * DAY - 600..=90 * DAY).contains(&left()), "{}", left());
}

#[test]
fn fault_42_a_client_is_shown_the_certificate_of_the_name_that_it_asks_for() {
    let certificates = Certificates::make();
    let [files, old, new] =
        [("files", "DNS:files.example"), ("old", "DNS:a.example"), ("new", "DNS:a.example")]
            .map(|(file, name)| certificates.issue_named(file, name));
    let named = NamedCertificates::default();
    let put = |pair: &Pair| {
        let text = |path| fs::read_to_string(path).unwrap();
        let pair = NamedPair::from_pem(&text(&pair.certificate), &text(&pair.key)).unwrap();
        named.replace([("a.example".into(), pair)].into());
    };
    let with_files = TlsConfig { named: Some(named.clone()), ..server(&files, None) };
    let no_files = TlsFiles { pair: None, ..with_files.files.clone() };
    let without = TlsConfig { files: no_files, ..with_files.clone() };
    let [with_files, without] = [with_files, without].map(|config| {
        TestServer::start(Options { tls: Some(Tls::load(config).unwrap()), ..Options::default() })
    });
    let config = client(&certificates, None, &[]);
    let ask = |server: &TestServer, name: &'static str| {
        let session = ClientConnection::new(config.clone(), name.try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(session, common::connect(server.address).unwrap());
        request(&mut stream, "/").is_ok_and(|it| it.starts_with("HTTP/1.1 200")).then(|| shown(&stream))
    };
    assert_eq!(ask(&without, "a.example"), None, "there is no certificate yet");
    put(&old);
    for server in [&with_files, &without] {
        assert_eq!(ask(server, "a.example"), Some(first(&old.certificate)));
        assert_eq!(ask(server, "A.Example"), Some(first(&old.certificate)));
    }
    put(&new);
    assert_eq!(ask(&with_files, "a.example"), Some(first(&new.certificate)), "in force at once");
    assert_eq!(ask(&with_files, "files.example"), Some(first(&files.certificate)));
    assert_eq!(ask(&without, "files.example"), None, "of a name that nobody ordered");
    let mismatched = NamedPair::from_pem(
        &fs::read_to_string(&old.certificate).unwrap(),
        &fs::read_to_string(&new.key).unwrap(),
    );
    assert!(matches!(mismatched, Err(NamedPairError::Library(_))), "{mismatched:?}");
}

#[test]
fn fault_42_a_client_is_shown_the_files_of_the_name_that_it_asks_for() {
    let certificates = Certificates::make();
    let [other, exact, wild, renewed, ordered] = [
        ("other", "DNS:other.example"),
        ("exact", "DNS:a.shop.example,DNS:shop.example"),
        ("wild", "DNS:*.shop.example"),
        ("renewed", "DNS:b.shop.example,DNS:shop.example"),
        ("ordered", "DNS:shop.example"),
    ]
    .map(|(file, names)| certificates.issue_named(file, names));
    let files = |pair: &Pair| PairFiles { certificate: pair.certificate.clone(), key: pair.key.clone() };
    let named = NamedCertificates::default();
    let text = |path| fs::read_to_string(path).unwrap();
    let pair = NamedPair::from_pem(&text(&ordered.certificate), &text(&ordered.key)).unwrap();
    named.replace([("shop.example".into(), pair.clone()), ("c.example".into(), pair)].into());
    let mut config = TlsConfig { named: Some(named), ..server(&other, None) };
    config.files.named = vec![files(&exact), files(&wild)];
    let tls = Tls::load(config.clone()).unwrap();
    let running = TestServer::start(Options { tls: Some(tls.clone()), ..Options::default() });
    let client = client(&certificates, None, &[]);
    let ask = |name: &'static str| {
        let session = ClientConnection::new(client.clone(), name.try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(session, common::connect(running.address).unwrap());
        request(&mut stream, "/").is_ok_and(|it| it.starts_with("HTTP/1.1 200")).then(|| shown(&stream))
    };
    let is =
        |name: &'static str, pair: &Pair| assert_eq!(ask(name), Some(first(&pair.certificate)), "{name}");
    is("shop.example", &exact);
    is("a.shop.example", &exact);
    is("A.Shop.Example", &exact);
    is("b.shop.example", &wild);
    is("other.example", &other);
    assert_eq!(ask("a.b.shop.example"), None, "`*` is one label: it is shown the pair for all others");
    assert_eq!(ask("c.example"), None, "it is shown what was ordered, which is not of this name");

    // A certificate is found under the names that it has now.
    renewed.clone().replace(&exact);
    assert_eq!(tls.certificates().len(), 3);
    let names: Vec<String> = tls.seconds_left_by_name().into_keys().collect();
    assert!(names.iter().any(|name| name == "*.shop.example"), "{names:?}");
    let of_files = tls.of_files();
    assert!(of_files.len() == 3 && of_files.iter().all(|it| !it.names.is_empty() && it.not_after > 0));
    tls.reload().unwrap();
    is("b.shop.example", &exact);
    is("a.shop.example", &wild);

    // Two of one name, one without names, one that is not there: each is refused with its place, and all stay as they were.
    let refused = |pairs: [&PairFiles; 2]| {
        let mut wrong = config.clone();
        wrong.files.named = pairs.into_iter().cloned().collect();
        Tls::load(wrong).unwrap_err()
    };
    let taken = refused([&files(&ordered), &files(&exact)]);
    assert!(matches!(&taken.fault, TlsFault::NameTaken(name) if &**name == "shop.example"), "{taken}");
    assert_eq!((taken.place, taken.file), (Some(1), TlsFile::Certificate));
    let nameless = refused([&files(&certificates.issue_named("nameless", "IP:127.0.0.1")), &files(&exact)]);
    assert!(matches!(nameless.fault, TlsFault::NoName) && nameless.place == Some(0), "{nameless}");
    let absent = PairFiles { certificate: exact.certificate.clone(), key: "/absent".into() };
    let absent = refused([&files(&wild), &absent]);
    assert!(matches!(absent.fault, TlsFault::Unreadable(_)), "{absent}");
    assert_eq!((absent.place, absent.file), (Some(1), TlsFile::Key));
    fs::write(&wild.certificate, "nothing").unwrap();
    assert_eq!(tls.reload().unwrap_err().place, Some(1));
    is("b.shop.example", &exact);
    assert!(!tls.status().is_reload_good);
}
