//! Loading the configuration: layers, messages and redaction.
//!
//! Over 400 lines because each layer of the configuration has its tests beside those of the others.

use std::time::Duration;

use insta::assert_snapshot;
use tidegate::config::{
    Bytes, Environment, File, Flags, Loaded, LogFormat, MAX_FILE_BYTES, MAX_MISTAKES, Mistakes, Origin,
    TABLE, load,
};
use tidegate_algorithms::policy::Source;

const CANARY: &str = "canary-7f3a-canary";

fn environment(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().copied().collect()
}

fn flags(arguments: &[&str]) -> Flags {
    use clap::{Args, FromArgMatches};
    let command = Flags::augment_args(clap::Command::new("test").no_binary_name(true));
    Flags::from_arg_matches(&command.try_get_matches_from(arguments).expect("the flags exist"))
        .expect("the flags are texts")
}

fn load_file(text: &str) -> Result<Loaded, Mistakes> {
    let file = File { name: "t.toml", bytes: text.as_bytes() };
    load(Some(file), &Environment::default(), &Flags::default())
}

fn mistakes(text: &str) -> String {
    load_file(text).map(|loaded| loaded.explain()).expect_err("the file has mistakes").to_string()
}

#[test]
fn every_default_is_accepted_and_shown_as_written() {
    let loaded = load(None, &Environment::default(), &Flags::default()).expect("the defaults are good");
    let shown = loaded.config.settings.show();
    assert_eq!(shown.len(), TABLE.len());
    for (setting, (path, value)) in TABLE.iter().zip(shown) {
        assert_eq!(setting.path, path);
        assert_eq!(*loaded.origin(path), Origin::Default);
        assert!(value == setting.default || setting.default.is_empty(), "{path}: {value}");
    }
}

#[test]
fn variables_that_only_clients_and_their_tests_read_are_no_typing_mistakes() {
    let names = [
        "TIDEGATE_URL",
        "TIDEGATE_TOKEN",
        "TIDEGATE_SERVER",
        "TIDEGATE_INTAKE_SERVER",
        "TIDEGATE_BIN",
        "TIDEGATE_CLIENTS",
    ];
    let environment = environment(&names.map(|name| (name, "x")));
    let loaded = load(None, &environment, &flags(&[])).expect("no setting is given");
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file_over_the_default() {
    let text = "http.listen = '127.0.0.1:1'\ngrpc.listen = '127.0.0.1:2'\nresp.listen = '127.0.0.1:3'";
    let file = File { name: "t.toml", bytes: text.as_bytes() };
    let environment = environment(&[
        ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:11"),
        ("TIDEGATE_GRPC_LISTEN", "127.0.0.1:12"),
        ("TIDEGATE_RESP_LISTEN", ""),
        ("TIDEGATE_LOG_LEVL", "debug"),
        ("TIDEGATE_CONFIG", "t.toml"),
        ("HTTP_LISTEN", "x"),
    ]);
    let flags = flags(&["--http-listen", "127.0.0.1:21", "--log-format=json"]);
    let loaded = load(Some(file), &environment, &flags).expect("all layers are good");
    assert_eq!(
        loaded.warnings,
        ["environment TIDEGATE_LOG_LEVL names no setting; did you mean TIDEGATE_LOG_LEVEL?"]
    );
    assert_eq!(loaded.config.settings.log.format, LogFormat::Json);
    assert_snapshot!("explained", loaded.explain());
}

#[test]
fn every_layer_is_checked_even_where_another_one_wins() {
    let file = File { name: "t.toml", bytes: b"log.level = 'loud'" };
    let environment = environment(&[("TIDEGATE_LOG_LEVEL", "louder"), ("TIDEGATE_RUNTIME_WORKERS", "-1")]);
    let refused = load(Some(file), &environment, &flags(&["--log-level", "info", "--http-listen", "x"]));
    assert_snapshot!(refused.expect_err("three layers are wrong").to_string(), @r#"
    t.toml:1:13: log.level: is "loud" (accepted: "off", "error", "warn", "info", "debug", "trace")
    environment TIDEGATE_LOG_LEVEL: log.level: is "louder" (accepted: "off", "error", "warn", "info", "debug", "trace")
    environment TIDEGATE_RUNTIME_WORKERS: runtime.workers: is "-1" (accepted: a whole number from 0 to 1024)
    flag --http-listen: http.listen: is "x" (accepted: an IP address and a port, as in "127.0.0.1:4000" or "[::1]:4000")
    "#);
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once() {
    let text = r#"
store = "mysql://u:p@h"
data_dir = 3
colour = "red"

[http]
listen = 127.0.0.1:4000
trusted_proxy_hops = 99
lisen = "x"

[grpc]
listen = [1, 2]

[admin]
token = "short"

[limits]
connections = 0
body_bytes = "1 mb"
header_deadline = 10
drain_deadline = "2h"

[log]
level = "\u0000loud"

[[policy]]
name = "api"
limit = -1
window_seconds = 60

[[policy]]
name = "B a"
algorithm = "token_bucket"
limit = 10
match = { "a.b" = nan, c = [1979-05-27] }
burst = 1e999
colour = 1

[[override]]
client_id = ""
policy = "nope"
"#;
    assert_snapshot!(mistakes(text), @r#"
    t.toml:2:9: store: is not acceptable (13 characters) (accepted: "memory" or a URL: redis://, redis-sentinel://, redis-cluster:// (rediss... for TLS), postgres://)
    t.toml:3:12: data_dir: is a number (accepted: a path of 1 to 4096 bytes)
    t.toml:4:1: colour: is not a known key (accepted: store, control, data_dir, on_no_match, http, grpc, resp, gateway, acme, access_log, edge, intake, admin, memory, shared, node, limits, log, telemetry, runtime, policy, override, attributes, token, upstream, route)
    t.toml:7:15: invalid float, expected nothing (accepted: TOML 1.1, with texts in quotes)
    t.toml:8:22: http.trusted_proxy_hops: is "99" (accepted: a whole number from 0 to 16)
    t.toml:9:1: http.lisen: is not a known key; did you mean "listen"? (accepted: listen, trusted_proxy_hops, proxy_headers, legacy_headers, allowed_hosts, cors_origins, tls_certificate, tls_key, tls_client_ca, tls_min_version)
    t.toml:12:10: grpc.listen: is a list (accepted: an IP address and a port, as in "127.0.0.1:4000" or "[::1]:4000", or "off")
    t.toml:15:9: admin.token: is not acceptable (5 characters) (accepted: 16 to 4096 printable ASCII characters without spaces)
    t.toml:18:15: limits.connections: is "0" (accepted: a whole number from 1 to 1000000)
    t.toml:19:14: limits.body_bytes: is "1 mb" (accepted: bytes from "1 KiB" to "1 GiB" in B, KiB, MiB, GiB or TiB)
    t.toml:20:19: limits.header_deadline: is a number (accepted: a time from "100ms" to "10m" in ms, s, m, h or d)
    t.toml:21:18: limits.drain_deadline: is "2h" (accepted: a time from "0ms" to "1h" in ms, s, m, h or d)
    t.toml:24:9: log.level: is "\0loud" (accepted: "off", "error", "warn", "info", "debug", "trace")
    t.toml:28:9: policy[0].limit: is -1 (accepted: a whole number from 0 to 1000000000)
    t.toml:31:1: policy[1].window_seconds: is missing (accepted: a whole number from 1 to 7776000)
    t.toml:32:8: policy[1].name: is "B a" (accepted: 1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter)
    t.toml:35:19: policy[1].match.a.b: is nan (accepted: a string, a boolean, a list, a table or a 64-bit number)
    t.toml:35:29: policy[1].match.c[0]: is 1979-05-27 (accepted: a string, a boolean, a list, a table or a 64-bit number)
    t.toml:36:9: policy[1].burst: is "1e999" (accepted: a whole number from 1 to 1000000000)
    t.toml:37:10: policy[1].colour: is not a known key (accepted: name, match, key, mode, on_store_failure, replaces, tiers, algorithm, limit, window_seconds, burst, lease_seconds, period, time_zone)
    t.toml:40:13: override[0].client_id: is "" (accepted: a string of 1 to 512 bytes)
    t.toml:41:10: override[0].policy: is "nope" (accepted: the name of a [[policy]] of this file)
    "#);
}

#[test]
fn tables_of_the_wrong_shape_are_reported() {
    assert_snapshot!(mistakes("http = 1\npolicy = 'x'\noverride = [1]\nstore.url = 'x'\n[[limits]]\n"), @r#"
    t.toml:1:8: http: is a number (accepted: a table: [http])
    t.toml:2:10: policy: is a string (accepted: a list of tables, each under [[policy]])
    t.toml:3:13: override[0]: is "1" (accepted: a table)
    t.toml:4:1: store: is a table (accepted: "memory" or a URL: redis://, redis-sentinel://, redis-cluster:// (rediss... for TLS), postgres://)
    t.toml:5:1: limits: is a list (accepted: a table: [limits])
    "#);
}

#[test]
fn syntax_is_reported_with_its_place() {
    assert_snapshot!(mistakes("[http]\nlisten = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"\n[http\n\n= 3\nx = \"é"), @r#"
    t.toml:3:1: duplicate key (accepted: TOML 1.1, with texts in quotes)
    t.toml:4:6: unclosed table, expected `]` (accepted: TOML 1.1, with texts in quotes)
    t.toml:6:1: unquoted keys cannot be empty, expected letters, numbers, `-`, `_` (accepted: TOML 1.1, with texts in quotes)
    t.toml:7:1: x: is not a known key (accepted: store, control, data_dir, on_no_match, http, grpc, resp, gateway, acme, access_log, edge, intake, admin, memory, shared, node, limits, log, telemetry, runtime, policy, override, attributes, token, upstream, route)
    "#);
}

#[test]
fn entries_that_clash_are_reported() {
    let text = r#"
resp.listen = "127.0.0.1:4000"
[[policy]]
name = "a"
limit = 1
window_seconds = 1
[[policy]]
name = "a"
limit = 2
window_seconds = 1
[[override]]
client_id = "x"
policy = "a"
limit = 3
[[override]]
client_id = "x"
policy = "a"
limit = 4
[[override]]
client_id = "x"
limit = 5
[[override]]
client_id = "y"
policy = "a"
limit = 5
key = ["ip"]
"#;
    assert_snapshot!(mistakes(text), @r#"
    t.toml:2:15: resp.listen: is 127.0.0.1:4000, as is http.listen (accepted: an address of its own)
    t.toml:8:8: policy[1].name: is "a", as is policy[0] (accepted: a name of its own)
    t.toml:15:1: override[1]: is for the same client and policy as override[0] (accepted: one override for each client and policy)
    t.toml:19:1: override[2].policy: is "default" (accepted: the name of a [[policy]] of this file)
    t.toml:26:7: override[3].key: is not a known key (accepted: algorithm, limit, window_seconds, burst, lease_seconds, period, time_zone)
    "#);
}

#[test]
fn policies_and_overrides_are_read() {
    let text = r#"
[[policy]]
name = "api"
algorithm = "token_bucket"
limit = 100
window_seconds = 60
burst = 20
[[override]]
client_id = "partner"
policy = "api"
limit = 1000
"#;
    let config = load_file(text).expect("the file is good").config;
    assert_eq!(&*config.layer.policies[0].name, "api");
    let expected = ("partner".to_owned(), "api".to_owned(), serde_json::json!({ "limit": 1000 }));
    assert_eq!(config.layer.overrides, [expected]);

    let built_in =
        load_file("[[override]]\nclient_id = 'partner'\nlimit = 7").expect("it is of the built-in policy");
    assert_eq!(built_in.config.layer.overrides[0].1, "default");
}

#[test]
fn settings_of_a_full_file_arrive_typed() {
    let text = "store = 'rediss://h:1/0'\n[memory]\nmax_bytes = 0x40_0000\nsnapshot = false\nsnapshot_interval = '90 s'\n[limits]\nbody_bytes = '2 MiB'\ndrain_deadline = '0s'";
    let settings = load_file(text).expect("the file is good").config.settings;
    assert_eq!(settings.memory.max_bytes, Bytes(4 << 20));
    assert_eq!(settings.memory.snapshot_interval, Duration::from_secs(90));
    assert!(!settings.memory.snapshot);
    assert_eq!(
        (settings.limits.body_bytes, settings.limits.drain_deadline),
        (Bytes(2 << 20), Duration::ZERO)
    );
    let defaults = load_file("# nothing").expect("a comment is a good file").config.settings;
    assert_eq!(
        settings.differences(&defaults),
        [
            "store rediss://h:1/0 -> memory",
            "memory.max_bytes 4 MiB -> 1 GiB",
            "memory.snapshot false -> true",
            "memory.snapshot_interval 90s -> 1m",
            "limits.body_bytes 2 MiB -> 1 MiB",
            "limits.drain_deadline 0ms -> 30s"
        ]
    );
}

#[test]
fn fault_45_a_public_bind_without_a_token_is_refused() {
    for address in ["0.0.0.0:4000", "[::]:4000", "10.0.0.1:4000"] {
        let text = format!("http.listen = '{address}'");
        let refused = mistakes(&text);
        assert!(
            refused.starts_with("t.toml:1:15: http.listen: is ") && refused.contains("admin.token"),
            "{refused}"
        );
        load_file(&format!("{text}\nadmin.token = '{CANARY}'")).expect("a token makes it good");
        let short = mistakes(&format!("{text}\nadmin.token = 'short'"));
        assert!(short.starts_with("t.toml:2:15: admin.token") && !short.contains('\n'), "{short}");
    }
    load_file("http.listen = '[::1]:4000'").expect("loopback needs no token");
    for (listen, secret) in [
        ("http.listen", "admin.token"),
        ("grpc.listen", "grpc.token"),
        ("resp.listen", "resp.password"),
        ("edge.api_listen", "edge.api_token"),
    ] {
        let refused = mistakes(&format!("{listen} = '0.0.0.0:1'\n{secret} = ''"));
        assert!(refused.contains("there is no") && !refused.contains('\n'), "{secret}: {refused}");
    }
}

#[test]
fn fault_52_secrets_are_in_no_message_and_no_dump() {
    let good = format!("store = 'redis://u:{CANARY}@h/0'\nadmin.token = '{CANARY}'");
    let loaded = load_file(&good).expect("the file is good");
    let token = loaded.config.settings.admin.token.as_ref().expect("the token is there");
    assert_eq!(token.expose(), CANARY);
    let told = format!("{}{loaded:?}{loaded:#?}", loaded.explain());
    assert!(!told.contains(CANARY), "{told}");
    let bad = format!("store = 'mysql://u:{CANARY}@h/0'\nadmin.token = '{CANARY} {CANARY}'");
    let told = mistakes(&bad);
    assert!(told.lines().count() == 2 && !told.contains(CANARY), "{told}");
}

#[test]
fn files_that_are_blank_too_large_or_not_text_are_refused() {
    assert_snapshot!(mistakes(""), @r#"t.toml:1:1: the file is blank (accepted: at least one setting or a comment; for defaults, start without a file)"#);
    assert_snapshot!(mistakes(" \n\t\n"), @r#"t.toml:1:1: the file is blank (accepted: at least one setting or a comment; for defaults, start without a file)"#);
    assert_snapshot!(mistakes(&"#".repeat(MAX_FILE_BYTES + 1)), @r#"t.toml:1:1: the file has 4194305 bytes (accepted: at most 4194304 bytes)"#);
    load_file(&"#".repeat(MAX_FILE_BYTES)).expect("a file of exactly the limit is read");
    let file = File { name: "t.toml", bytes: b"# \xc3\xa9\nstore = '\xff'" };
    let refused = load(Some(file), &Environment::default(), &Flags::default());
    assert_snapshot!(refused.expect_err("it is not UTF-8").to_string(), @r#"t.toml:2:10: invalid UTF-8 (accepted: TOML 1.1, with texts in quotes)"#);
}

#[test]
fn a_flood_of_mistakes_is_cut_and_counted() {
    let text: String = (0..5_000).map(|number| format!("x{number} = 1\n")).collect();
    let refused = load_file(&text).expect_err("no key is known");
    assert_eq!((refused.list().len(), refused.count()), (MAX_MISTAKES, 5_000));
    assert!(refused.to_string().ends_with("\nand 4000 more"));
}

#[test]
fn deep_nesting_is_refused_without_a_crash() {
    for (open, close) in [("[", "]"), ("{a=", "}"), ("a.", "")] {
        let text = format!("x = {}1{}", open.repeat(20_000), close.repeat(20_000));
        assert!(load_file(&text).is_err());
    }
    assert!(load_file(&format!("{}b = 1", "a.".repeat(20_000))).is_err());
    assert!(load_file(&format!("[{}b]", "a.".repeat(20_000))).is_err());
}

#[test]
fn sources_of_attributes_are_checked_with_their_places() {
    let good = load_file(
        "[attributes.check]\nclient_id = { header = 'X-Api-Key' }\n[attributes.grpc]\nproxy = 'address'\n",
    )
    .expect("it is good");
    let sources = &good.config.layer.sources;
    assert_eq!(sources.check.of("client_id"), Some(&Source::Header("x-api-key".to_owned())));
    assert_eq!(sources.grpc.of("proxy"), Some(&Source::Address));
    for (file, expected) in [
        (
            "attributes = 1\n",
            "t.toml:1:14: attributes: is \"1\" (accepted: [attributes.check], [attributes.grpc], [attributes.gateway])",
        ),
        (
            "[attributes.chek]\na = 'address'\n",
            "t.toml:1:1: attributes.chek: is not a protocol with sources of its own (accepted: [attributes.check], \
             [attributes.grpc], [attributes.gateway])",
        ),
        (
            "[attributes.grpc]\na = { cookie = 'c' }\n",
            "t.toml:2:5: attributes.grpc.a: is { cookie = \"c\" } (accepted: { header = \"x-api-key\" }, \"address\", \"tls_name\")",
        ),
    ] {
        assert_eq!(mistakes(file), expected);
    }
}

#[test]
fn lists_of_the_intake_are_checked_with_their_places() {
    let text = "[[intake.alert]]\nname = 'cpu'\nmetric = 'cpu.usage'\nabove = 'x'\n\
                [[intake.alert]]\nname = 'cpu'\nmetric = 'b'\nabove = 1\nbelow = 2\n\
                [[intake.forward]]\nname = 'a'\nto = 'pigeon'\n\
                [[intake.forward]]\nname = 'b'\nto = 'otlp'\nurl = 'http://user:canary-7f3a-canary@b/'\n\
                [[intake.forward]]\nname = 'c'\nto = 'kafka'\nurl = 'http://user:canary-7f3a-canary@b/'\n\
                [intake]\nstatsd_listen = '0.0.0.0:8125'\nalert_webhook = 'here'\nseries_per_client = -1\n";
    let said = mistakes(text);
    for part in [
        "t.toml:4:9: intake.alert[0].above: is \"x\"",
        "t.toml:8:9: intake.alert[1].above: is there beside below",
        "t.toml:12:6: intake.forward[0].to: is \"pigeon\"",
        "t.toml:16:7: intake.forward[1].url: is no such URL",
        "t.toml:20:7: intake.forward[2].url: does not belong here",
        "t.toml:22:17: intake.statsd_listen: is 0.0.0.0:8125",
        "t.toml:23:17: intake.alert_webhook",
        "t.toml:24:21: intake.series_per_client",
    ] {
        assert!(said.contains(part), "{part} in\n{said}");
    }
    let without = "t.toml:19:6: intake.forward[2].to: is \"kafka\", and this build of tidegate has no Kafka";
    assert_eq!(said.contains(without), !cfg!(feature = "kafka"), "{said}");
    assert!(!said.contains(CANARY), "{said}");
    let good = "[[intake.alert]]\nname = 'cpu'\nmetric = 'cpu.usage'\nabove = 80\nfor_seconds = 60\n\
                [[intake.alert]]\nname = 'disk'\nmetric = 'disk.free'\nbelow = 0.1\n\
                [[intake.forward]]\nname = 'other'\nto = 'otlp'\nurl = 'https://b.example/v1/metrics'\n\
                [intake]\nstatsd_listen = '0.0.0.0:8125'\nstatsd_allowed = ['10.0.0.0/8']\n";
    let loaded = load_file(good).expect("it is good");
    assert_eq!((loaded.config.intake.alerts.len(), loaded.config.intake.forwards.len()), (2, 1));
    assert!(
        loaded.warnings.iter().any(|warning| warning.contains("intake.alert_webhook")),
        "{:?}",
        loaded.warnings
    );
    let twice = good.replace("'disk'", "'cpu'");
    assert!(mistakes(&twice).contains("is \"cpu\", as is intake.alert[0]"));
}
