//! The built binary: `check`, `config`, and that the committed reference is what it prints.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn tidegate(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env_clear().envs(environment.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn check_prints_every_mistake_and_exits_with_2() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    let name = path.to_str().unwrap();
    fs::write(&path, "[limits]\nconnections = 0\n[http]\nlisten = '0.0.0.0:4000'\n").unwrap();
    let bad = tidegate(&["check", name], &[]);
    assert_eq!(bad.status.code(), Some(2));
    let lines: Vec<_> = text(&bad.stdout).lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with(&format!("{name}:2:15: limits.connections: is \"0\" (accepted: ")),
        "{}",
        lines[0]
    );
    assert!(lines[1].starts_with(&format!("{name}:4:10: http.listen: ")), "{}", lines[1]);

    fs::write(&path, "http.listen = '0.0.0.0:4000'\n").unwrap();
    let token = [("TIDEGATE_ADMIN_TOKEN", "0123456789abcdef")];
    let good = tidegate(&["check", name], &token);
    assert_eq!(
        (good.status.code(), text(&good.stdout)),
        (Some(0), &*format!("{name}: good (policies: 0, overrides: 0)\n"))
    );

    let absent = tidegate(&["check", "/nowhere/t.toml"], &[]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(
        text(&absent.stdout).starts_with("/nowhere/t.toml:1:1: No such file"),
        "{}",
        text(&absent.stdout)
    );
}

#[test]
fn fault_58_check_shows_which_policies_a_request_meets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    let name = path.to_str().unwrap();
    let policies = "[[policy]]\nname = 'pay'\nmatch = { path = '/pay*' }\nlimit = 1\nwindow_seconds = 60\n\
        [[policy]]\nname = 'vip'\nkey = []\nmatch = { plan = 'vip' }\nlimit = 9\nwindow_seconds = 60\nreplaces = ['pay']\n";
    fs::write(&path, format!("http.proxy_headers = 'original'\n{policies}")).unwrap();
    let requests = [
        "--request",
        "client_id=a",
        "path=//pay/x",
        "--request",
        "client_id=a",
        "--request",
        "path=/%2f",
        "--request",
        "path=/pay",
        "client_id=a",
        "plan=vip",
    ];
    let checked = tidegate(&[&["check", name], &requests[..]].concat(), &[]);
    let lines: Vec<_> = text(&checked.stdout).lines().collect();
    assert_eq!(
        lines,
        [
            &*format!("{name}: good (policies: 2, overrides: 0)"),
            "client_id=\"a\" path=\"//pay/x\": pay applies, counted by client_id",
            "client_id=\"a\": no policy applies, so it is allowed (on_no_match = \"allow\"): pay needs \"path\"; \
             vip needs \"plan\"",
            "path=\"/%2f\": no policy applies, so it is allowed (on_no_match = \"allow\"): pay matches other values of \
             \"path\"; vip needs \"plan\"",
            "path=\"/pay\" client_id=\"a\" plan=\"vip\": vip applies, counted all together",
        ]
    );
    assert_eq!(checked.status.code(), Some(0));
}

#[test]
fn fault_58_check_warns_of_an_attribute_that_nothing_supplies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    let name = path.to_str().unwrap();
    let policy = |key: &str, matched: &str| {
        format!("[[policy]]\nname = 'p'\nkey = [{key}]\nmatch = {matched}\nlimit = 1\nwindow_seconds = 60\n")
    };
    let warnings = |text_of_file: String, arguments: &[&str]| {
        fs::write(&path, text_of_file).unwrap();
        let checked = tidegate(&[&["check", name], arguments].concat(), &[]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
        text(&checked.stdout)
            .lines()
            .filter(|line| line.starts_with("warning: "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let misspelt = warnings(policy("'clientid'", "{ resource = 'api' }"), &[]);
    assert_eq!(misspelt.len(), 1, "{misspelt:?}");
    assert!(misspelt[0].contains("policy \"p\" looks at the attribute \"clientid\""), "{misspelt:?}");
    assert!(misspelt[0].contains("did you mean \"client_id\"?"), "{misspelt:?}");
    let by_path = policy("'client_id'", "{ path = '/v1/*' }");
    assert_eq!(warnings(by_path.clone(), &[]).len(), 1);
    for (file, arguments) in [
        (format!("http.proxy_headers = 'forwarded'\n{by_path}"), &[][..]),
        (format!("{by_path}[attributes.check]\npath = {{ header = 'x-path' }}\n"), &[]),
        (by_path, &["--request", "path=/v1/a"]),
        (policy("'user'", "{ domain = 'shop', descriptor_keys = 'user' }"), &[]),
        ("log.level = 'info'\n".to_owned(), &[]),
    ] {
        assert_eq!(warnings(file.clone(), arguments), Vec::<String>::new(), "{file}");
    }
}

/// A policy p with this key, and another one.
fn policy(key: &str) -> String {
    let limit = "limit = 1\nwindow_seconds = 60\n";
    format!("[[policy]]\nname = 'p'\nkey = [{key}]\n{limit}[[policy]]\nname = 'q'\n{limit}")
}

/// A route that lists a policy and has these lines, too.
fn route(listed: &str, more: &str) -> String {
    format!(
        "[[gateway.listener]]\nlisten = '127.0.0.1:0'\n[[upstream]]\nname = 'u'\nservers = ['127.0.0.1:9']\n\
         [[route]]\nname = 'r'\nupstream = 'u'\npolicies = ['{listed}']\n{more}"
    )
}

/// A listener of the edge that lists the policy p.
fn edge(lists: &str) -> String {
    format!("[[edge.listener]]\nlisten = '127.0.0.1:0'\napp = 'a'\n{lists} = ['p']\n")
}

/// What a route or a listener of the edge knows of its requests is known to the policies that it lists, and to no others.
#[test]
fn fault_58_check_knows_what_routes_and_listeners_supply() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    let name = path.to_str().unwrap();
    let looked_at = |file: &str| -> Vec<String> {
        fs::write(&path, file).unwrap();
        let checked = tidegate(&["check", name], &[]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
        let warnings =
            text(&checked.stdout).lines().filter_map(|line| line.split_once("looks at the attribute "));
        warnings.map(|(_, rest)| rest.split('"').nth(1).unwrap().to_owned()).collect()
    };
    let key = "auth = 'key'\n";
    let jwt = "auth = 'jwt'\njwt.keys_url = 'https://id.example/keys'\njwt.issuer = 'i'\njwt.attributes = { plan = 'plan' }\n";
    let forward = "auth = 'forward'\nforward_auth.upstream = 'u'\n\
                   forward_auth.attributes = { plan = 'x-plan' }\n";
    let tiered = "[[policy]]\nname = 'p'\nkey = ['client_id']\nlimit = 1\nwindow_seconds = 60\ntiers = { pro = { limit = 9 } }\n\
                  [[policy]]\nname = 'q'\nlimit = 1\nwindow_seconds = 60\n";
    let own = "'route', 'method', 'host', 'path', 'ip', 'client_id'";
    for (file, missing) in [
        (policy(own) + &route("p", ""), &[][..]),
        (policy(own) + &route("q", ""), &["host", "method", "path", "route"]),
        (
            policy("'tenant'") + &route("p", "") + "[attributes.gateway]\ntenant = { header = 'x-tenant' }\n",
            &[],
        ),
        (policy("'api_key', 'consumer', 'tier'") + &route("p", key), &[]),
        (policy("'api_key', 'consumer', 'plan'") + &route("p", jwt), &["api_key", "consumer"]),
        (policy("'plan'") + &route("p", forward), &[]),
        (policy("'plan'") + &route("p", ""), &["plan"]),
        // Tiers of keys and of tokens; who a token is for, where nothing says what else is taken from it.
        (tiered.to_owned() + &route("p", key), &[]),
        (tiered.to_owned() + &route("p", &jwt.replace("plan =", "tier =")), &[]),
        (tiered.to_owned() + &route("p", ""), &["tier"]),
        (
            policy("'consumer', 'route'")
                + &route("p", &jwt.replace("jwt.attributes = { plan = 'plan' }\n", "")),
            &[],
        ),
        // What a network before it, or a caller's metadata, says.
        (
            policy("'country', 'client_id'") + "[attributes.check]\ncountry = { header = 'cf-ipcountry' }\n",
            &[],
        ),
        (policy("'tenant'") + "[attributes.grpc]\ntenant = { header = 'x-tenant' }\n", &[]),
        // What an application sends with POST /v1/decisions, whether or not there is a gateway that does not list the policy.
        (policy("'tenant', 'client_id'"), &[]),
        (policy("'tenant', 'resource'") + &route("q", ""), &[]),
        (tiered.to_owned() + &route("q", key), &[]),
        // A route that lists it has no application that sends it, nor a proxy that asks for decisions.
        (policy("'tenant'") + &route("p", ""), &["tenant"]),
        (
            policy("'tenant'") + &route("p", "") + "[attributes.check]\ntenant = { header = 'x-tenant' }\n",
            &["tenant"],
        ),
        (policy("'resource', 'client_id'") + &route("p", ""), &["resource"]),
        (policy("'tenant', 'app'") + &edge("policies"), &["tenant"]),
        (policy("'app', 'client_id'") + &route("p", "") + &edge("policies"), &[]),
        (
            policy("'listener', 'app', 'server_name', 'country', 'region', 'client_id'") + &edge("policies"),
            &[],
        ),
        (policy("'app', 'host'") + &edge("byte_policies"), &["host"]),
    ] {
        assert_eq!(looked_at(&file), missing, "{file}");
    }
}

/// Decision 0361: what could limit nothing is refused, by `check` and at a start.
#[test]
fn a_concurrency_limit_where_no_permit_is_given_back_is_a_mistake() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    let policy = "[[policy]]\nname = 'jobs'\nalgorithm = 'concurrency'\nlimit = 1\nlease_seconds = 60\n";
    let edge = "[[edge.listener]]\nlisten = '127.0.0.1:0'\napp = 'a'\n";
    for (file, said) in [
        (format!("{policy}{edge}byte_policies = ['jobs']\n"), "edge.listener[0].byte_policies[0]"),
        (format!("[intake]\npolicies = ['jobs']\n{policy}"), "intake.policies[0]"),
        (format!("{policy}match = {{ descriptor_keys = 'user' }}\n"), "policy[0].algorithm"),
    ] {
        fs::write(&path, &file).unwrap();
        for arguments in [&["check"][..], &["serve", "--config"]] {
            let refused = tidegate(&[arguments, &[path.to_str().unwrap()]].concat(), &[]);
            let output = text(&refused.stdout).to_owned() + text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{output}");
            assert!(output.contains(said), "{output}");
        }
    }
}

#[test]
fn check_says_where_a_concurrency_limit_applies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    let name = path.to_str().unwrap();
    let policy = "[[policy]]\nname = 'jobs'\nalgorithm = 'concurrency'\nlimit = 1\nlease_seconds = 60\n";
    let route = "[[gateway.listener]]\nlisten = '127.0.0.1:0'\n[[upstream]]\nname = 'u'\nservers = ['127.0.0.1:9']\n\
                 [[route]]\nname = 'r'\nupstream = 'u'\npolicies = ['jobs']\n";
    let edge = "[[edge.listener]]\nlisten = '127.0.0.1:0'\napp = 'a'\n";
    let note = "note: policy \"jobs\" limits what is held at one time, and no route";
    for (file, said) in [
        (policy.to_owned(), &[note][..]),
        (format!("{policy}{route}"), &[]),
        (format!("{policy}{edge}policies = ['jobs']\n"), &[]),
        // Whoever asks for a permit says what it is for.
        (format!("{policy}match = {{ domain = 'shop' }}\n"), &[note]),
        (format!("{policy}match = {{ descriptor_keys = 'user' }}\n{route}"), &[]),
    ] {
        fs::write(&path, &file).unwrap();
        let checked = tidegate(&["check", name], &[]);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
        let lines: Vec<_> = text(&checked.stdout).lines().filter(|line| line.contains("\"jobs\"")).collect();
        let lines: Vec<_> =
            lines.into_iter().filter(|line| !line.contains("looks at the attribute")).collect();
        assert_eq!(lines.len(), said.len(), "{file}{lines:?}");
        assert!(lines.iter().zip(said).all(|(line, said)| line.contains(said)), "{file}{lines:?}");
    }
}

#[test]
fn explain_follows_flag_environment_and_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.toml");
    fs::write(&path, "log.level = 'debug'\n").unwrap();
    let name = path.to_str().unwrap();
    let environment = [("TIDEGATE_CONFIG", name), ("TIDEGATE_STORE", "redis://:canary@h/0")];
    let output = tidegate(&["config", "explain", "--http-listen", "127.0.0.1:9"], &environment);
    assert_eq!(output.status.code(), Some(0));
    let rows: Vec<Vec<_>> =
        text(&output.stdout).lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(rows.contains(&vec!["store", "redis://(redacted)@h/0", "environment", "TIDEGATE_STORE"]));
    assert!(rows.contains(&vec!["http.listen", "127.0.0.1:9", "flag", "--http-listen"]));
    assert!(rows.contains(&vec!["log.level", "debug", &format!("{name}:1:13")]));
    assert!(rows.contains(&vec!["log.format", "text", "default"]));
}

#[test]
fn the_committed_reference_is_what_the_binary_prints() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (file, words) in [
        ("configuration.md", &["config", "reference"][..]),
        ("tidegate.schema.json", &["config", "schema"]),
        ("commands.md", &["command-reference"]),
    ] {
        let printed = tidegate(words, &[]).stdout;
        let committed = fs::read(docs.join(file)).unwrap_or_default();
        assert!(
            committed == printed,
            "docs/{file} is out of date: cargo run -p tidegate -- {} > docs/{file}",
            words.join(" ")
        );
    }
}

/// A flag that one command of the tester has is called so in the other.
#[test]
fn load_and_saturate_call_the_same_things_alike() {
    let helps = ["load", "saturate"].map(|command| tidegate(&[command, "--help"], &[]).stdout);
    for help in helps.each_ref().map(|help| text(help)) {
        for flag in ["--step-seconds", "--warmup-seconds", "--timeout-seconds", "--connection-per-request"] {
            assert!(help.contains(flag), "{flag} is not in\n{help}");
        }
        assert!(!help.contains("--duration-s ") && !help.contains("timeout-ms"), "{help}");
    }
}
