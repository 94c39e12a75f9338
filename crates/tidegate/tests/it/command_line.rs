//! What all commands have in common: how they ask a server, how times are written, what is said of a file that is not read.

use std::fs;
use std::process::Output;

use crate::support::{Tidegate, binary};
use tidegate_testkit::certificates::{Certificates, Pair};

const SECRET: &str = "the-first-secret-of-checkout";
const DIGEST: &str = "a9a52cc7c54c85d407b68ba3f815dacc0fd31d0a8ad43d24786326325014d5d4";

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    binary().args(arguments).envs(environment.iter().copied()).output().unwrap()
}

/// Both streams.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// A service and an intake by TLS, with a gateway that counts; a token is demanded for all that commands ask.
fn secured(pair: &Pair) -> Tidegate {
    let (certificate, key) = (&pair.certificate, &pair.key);
    let file = format!(
        "http.tls_certificate = {certificate:?}\nhttp.tls_key = {key:?}\n\
         intake.tls_certificate = {certificate:?}\nintake.tls_key = {key:?}\n\
         gateway.listener = [{{ listen = \"127.0.0.1:0\" }}]\n\
         route = [{{ name = \"hello\", respond = {{ body = \"hello\" }} }}]\n\
         [[token]]\nname = \"ops\"\nscopes = [\"decide\", \"read\", \"configure\"]\nsha256 = \"{DIGEST}\"\n"
    );
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tidegate.toml"), file).unwrap();
    fs::write(folder.path().join("token"), format!("{SECRET}\n")).unwrap();
    Tidegate::start_in(folder, &["--config", "tidegate.toml"], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")])
}

#[test]
fn every_command_asks_a_server_by_tls_with_a_token_from_a_file_or_the_environment() {
    let certificates = Certificates::make();
    let service = secured(&certificates.issue("server"));
    let server = format!("https://{}", service.http);
    let intake = format!("https://{}", service.intake.unwrap());
    let (ca, token) = (certificates.authority(), service.path().join("token"));
    let (ca, token) = (ca.to_str().unwrap(), token.to_str().unwrap());
    let slashed = format!("{server}/");
    let limits = "{\"limit\":5,\"window_seconds\":60}";
    let commands: [(&[&str], &str, i32, &str); 11] = [
        (&["decide", "client_id=a"], &server, 0, "\"allowed\": true"),
        (&["keys", "issue", "--consumer", "acme", "--days", "12h"], &server, 0, "\"consumer\":\"acme\""),
        (&["keys", "list"], &server, 0, "\"consumer\":\"acme\""),
        (&["keys", "list"], &slashed, 0, "\"consumer\":\"acme\""),
        (&["explain", "route", "host=a", "path=/"], &server, 0, "\"hello\""),
        (&["explain", "decision", "client_id=a", "--limits", limits], &server, 0, "\"decide\": true"),
        (&["top", "--times", "1", "--every", "2s"], &server, 0, ""),
        (&["revert", "4000000"], &server, 1, "has not been yet"),
        (&["certificates", "--json"], &server, 0, "\"origin\":\"file\""),
        (&["intake", "tail"], &intake, 0, ""),
        (&["intake", "query", "a", "--last", "5m"], &intake, 0, "no lines of this name"),
    ];
    for (command, server, code, text) in commands {
        let variable = if command[0] == "intake" { "TIDEGATE_INTAKE_SERVER" } else { "TIDEGATE_SERVER" };
        for (arguments, environment) in [
            (&["--server", server, "--ca", ca, "--token-file", token][..], &[][..]),
            (&["--ca", ca], &[(variable, server), ("TIDEGATE_TOKEN", SECRET)]),
        ] {
            let output = run(&[command, arguments].concat(), environment);
            assert_eq!(output.status.code(), Some(code), "{command:?} {}", said(&output));
            assert!(said(&output).contains(text), "{command:?} {}", said(&output));
        }
        // Who is not trusted is not shown the token.
        let output = run(&[command, &["--server", server, "--token-file", token]].concat(), &[]);
        assert_eq!(output.status.code(), Some(1), "{command:?} {}", said(&output));
        assert!(said(&output).contains("invalid peer certificate"), "{command:?} {}", said(&output));
        assert!(said(&output).contains("--ca FILE"), "{command:?} {}", said(&output));
        // The token is of use.
        let output = run(&[command, &["--server", server, "--ca", ca]].concat(), &[]);
        assert_eq!(output.status.code(), Some(1), "{command:?} {}", said(&output));
        assert!(said(&output).contains("401"), "{command:?} {}", said(&output));
    }
    // What a gateway's server says is no answer of its admin API, even if it is 200.
    let gateway = format!("http://{}", service.gateway[0]);
    let output = run(&["revert", "1", "--server", &gateway], &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("--server names another"), "{}", said(&output));
    let health = run(&["health", "--server", &server, "--ca", ca], &[]);
    assert!(health.status.success(), "{}", said(&health));
}

#[test]
fn a_certificate_that_signed_itself_is_trusted_by_its_own_file() {
    let certificates = Certificates::make();
    let pair = certificates.self_signed("own");
    let service = secured(&pair);
    let server = format!("https://localhost:{}", service.http.port());
    let certificate = pair.certificate.to_str().unwrap();
    let environment = [("TIDEGATE_TOKEN", SECRET)];
    let long = service.path().join("long.pem");
    fs::write(&long, vec![b'\n'; (1 << 20) + 1]).unwrap();
    let output = run(&["decide", "a=b", "--server", &server, "--ca", certificate], &environment);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    for (arguments, expected) in [
        (["--server", &server, "--ca", pair.key.to_str().unwrap()], "holds no certificate"),
        (["--server", &server, "--ca", "/absent"], "--ca /absent: No such file"),
        // A file that is cut would lack authorities, and nothing would say so.
        (["--server", &server, "--ca", long.to_str().unwrap()], "larger than 1048576 bytes"),
        (["--server", &server, "--token-file", "/absent"], "--token-file /absent: there is no such file"),
        (
            ["--server", &service.url(""), "--ca", certificate],
            "does it speak TLS? then its URL begins with https://",
        ),
    ] {
        let output = run(&[&["decide", "a=b"], &arguments[..]].concat(), &environment);
        assert!(output.status.code() == Some(1) && said(&output).contains(expected), "{}", said(&output));
    }
}

#[test]
fn what_is_no_url_is_no_server() {
    for command in [
        &["decide", "a=b"][..],
        &["keys", "list"],
        &["revert", "1"],
        &["certificates"],
        &["top"],
        &["explain", "route", "a=b"],
        &["explain", "decision", "a=b"],
        &["explain", "edge", "--client-ip", "::1"],
        &["intake", "tail"],
        &["intake", "query", "a"],
        &["health"],
    ] {
        for bad in ["foo", "127.0.0.1:4000", "ftp://a", "http://a:99999"] {
            let output = run(&[command, &["--server", bad]].concat(), &[]);
            assert_eq!(output.status.code(), Some(2), "{command:?} {}", said(&output));
            assert!(said(&output).contains("expected http://HOST:PORT"), "{command:?} {}", said(&output));
        }
    }
    let output = run(&["saturate", "http://127.0.0.1:1", "--metrics", "foo"], &[]);
    assert!(output.status.code() == Some(2) && said(&output).contains("--metrics"), "{}", said(&output));
}

#[test]
fn times_have_units() {
    // Nobody listens there, which is found out after the flags were read.
    let url = "http://127.0.0.1:1/";
    let few = "--max-connections=8";
    for (arguments, is_good) in [
        (&["load", url, "-d", "2s", "-w", "500ms", "--timeout-seconds", "1m"][..], true),
        (&["load", url, "-d", "2", "-w", "0.5", "--timeout-seconds", "1"], true),
        (&["load", url, "-d", "2 seconds"], false),
        (
            &["saturate", url, few, "-d", "2s", "-w", "500ms", "--max-minutes", "90s", "--think-ms", "1s"],
            true,
        ),
        (&["saturate", url, "-d", "2x"], false),
        (&["compare", "--interleave", url, url, "-d", "2s", "-w", "0"], true),
        (&["compare", "--interleave", url, url, "-w", "x"], false),
        (&["stub", "192.0.2.1:1", "--delay-ms", "1s", "--stall-ms", "10s:500", "--freeze-ms", "5:2s"], true),
        (&["stub", "192.0.2.1:1", "--stall-ms", "10s"], false),
        (&["top", "--times", "1", "--every", "2s", "--server", url], true),
        (&["top", "--times", "1", "--every", "10ms", "--server", url], false),
        (&["keys", "rotate", "a", "--overlap", "90m", "--server", url], true),
        (&["keys", "rotate", "a", "--overlap", "soon", "--server", url], false),
    ] {
        let output = run(arguments, &[]);
        let expected = if is_good { Some(1) } else { Some(2) };
        assert_eq!(output.status.code(), expected, "{arguments:?} {}", said(&output));
        assert_eq!(said(&output).contains("invalid value"), !is_good, "{arguments:?} {}", said(&output));
    }
}

/// Who writes a file and starts the server beside it expects that it is read.
#[test]
fn a_file_that_is_here_and_not_read_is_named() {
    let line = "tidegate.toml is here and not read: --config tidegate.toml reads it";
    let folder = tempfile::tempdir().unwrap();
    let write = || fs::write(folder.path().join("tidegate.toml"), "log.format = \"text\"\n").unwrap();
    let explain = |more: &[&str]| {
        let mut command = binary();
        command.current_dir(folder.path()).args(["config", "explain"]).args(more);
        said(&command.output().unwrap())
    };
    assert!(!explain(&[]).contains(line));
    write();
    assert!(explain(&[]).contains(&format!("warning: {line}\n")), "{}", explain(&[]));
    assert!(!explain(&["--config", "tidegate.toml"]).contains(line));
    let service = Tidegate::start_in(folder, &[], &[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:0")]);
    service.signal("TERM");
    let output = service.wait().output;
    assert_eq!(output.matches(line).count(), 1, "{output}");
}

fn help(arguments: &[&str]) -> String {
    String::from_utf8(run(arguments, &[]).stdout).unwrap()
}

#[test]
fn help_has_the_commands_in_groups_and_is_short_where_that_is_asked() {
    let (short, long) = (help(&["-h"]), help(&["--help"]));
    for group in ["Serve:", "Configure:", "Ask a running server:", "Measure:", "Other:", "Options:"] {
        for help in [&short, &long] {
            assert_eq!(help.lines().filter(|line| *line == group).count(), 1, "{group} {help}");
        }
    }
    // Whoever adds a command puts it into a group.
    let other = short.split_once("Other:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let other: Vec<_> = other.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(other, ["completions", "version"]);
    assert!(long.contains("Examples:\n") && !short.contains("Examples:"), "{short}");
    assert!(short.lines().count() < 45 && short.lines().all(|line| line.chars().count() <= 90), "{short}");
    for command in ["serve", "doctor", "decide", "load", "saturate", "stub"] {
        let (short, long) = (help(&[command, "-h"]), help(&[command, "--help"]));
        assert!(short.lines().count() <= 80, "{short}");
        assert!(long.lines().count() > short.lines().count(), "{long}");
        assert!(long.contains("Examples:\n") && !short.contains("Examples:"), "{short}");
    }
    let serve = help(&["serve", "-h"]);
    assert!(serve.contains("Every setting is a flag") && !serve.contains("--http-listen"), "{serve}");
    assert!(help(&["serve", "--help"]).contains("--http-listen"));
}

/// What stands before `--help` is read as it would be without it.
#[test]
fn each_command_has_examples_that_it_takes() {
    let page = help(&["command-reference"]);
    let mut examples = 0;
    for section in page.split("\n## ").skip(1) {
        let name = section.split('`').nth(1).unwrap();
        let is_leaf = section.contains(&format!("```text\n{name}"));
        let shown =
            section.split_once("Examples:\n\n```text\n").map(|(_, rest)| rest.split_once("\n```").unwrap().0);
        assert_eq!(is_leaf, shown.is_some(), "{name} has no example");
        for example in shown.into_iter().flat_map(str::lines) {
            assert!(example.starts_with(name), "{name}: {example}");
            let rest = example.strip_prefix("tidegate ").unwrap();
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("exec \"$0\" {rest} --help")]).arg(binary().get_program());
            let output = shell.output().unwrap();
            assert!(output.status.success(), "{example}: {}", said(&output));
            assert!(said(&output).contains("Usage:"), "{example}: {}", said(&output));
            examples += 1;
        }
    }
    assert!(examples > 40, "{examples}");
}
