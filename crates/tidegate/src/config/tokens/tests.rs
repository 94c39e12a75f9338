//! Tokens, the listeners that they guard, and the lists beside them, through the loader.

use insta::assert_snapshot;

use crate::config::{Environment, File, Flags, Loaded, Mistakes, load};

const CANARY: &str = "canary-7f3a-canary";

fn load_file(text: &str) -> Result<Loaded, Mistakes> {
    let file = File { name: "t.toml", bytes: text.as_bytes() };
    load(Some(file), &Environment::default(), &Flags::default())
}

fn mistakes(text: &str) -> String {
    load_file(text).map(|loaded| loaded.explain()).expect_err("the file has mistakes").to_string()
}

const DIGEST: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn token(name: &str, scopes: &str) -> String {
    format!("[[token]]\nname = '{name}'\nscopes = {scopes}\nsha256 = '{DIGEST}'\n")
}

#[test]
fn fault_45_every_public_listener_needs_a_credential_that_guards_it() {
    let decide = token("envoy", "['decide']");
    let configure = token("ops", "['configure']");
    for (listener, own, tls) in [("grpc", "token", true), ("resp", "password", true), ("http", "", false)] {
        let public = format!("{listener}.listen = '0.0.0.0:1'\n");
        let refused = mistakes(&public);
        assert!(
            refused.starts_with(&format!("t.toml:1:{}: {listener}.listen: is 0.0.0.0:1, which", 15)),
            "{refused}"
        );
        assert_eq!(refused.lines().count(), 1, "{refused}");
        load_file(&format!("{public}{decide}")).expect("a token for decisions guards it");
        let others = load_file(&format!("{public}{configure}"));
        assert_eq!(others.is_ok(), listener == "http", "a token for the configuration guards that alone");
        if !own.is_empty() {
            load_file(&format!("{public}{listener}.{own} = '{CANARY}'")).expect("its own secret guards it");
            let short = mistakes(&format!("{public}{listener}.{own} = 'short'"));
            assert!(!short.contains(".listen"), "what is wrong is said once: {short}");
        }
        if tls {
            let files = ["tls_certificate", "tls_key", "tls_client_ca"]
                .map(|file| format!("{listener}.{file} = 'x'\n"))
                .concat();
            load_file(&format!("{public}{files}")).expect("client certificates guard it");
        }
        load_file(&format!("{listener}.listen = '127.0.0.2:1'")).expect("loopback needs nothing");
    }
}

#[test]
fn fault_45_a_public_intake_needs_a_token_that_may_send_metrics() {
    let public = "intake.listen = '0.0.0.0:1'\n";
    let refused = mistakes(public);
    assert!(
        refused.starts_with("t.toml:1:17: intake.listen: is 0.0.0.0:1, which others can reach"),
        "{refused}"
    );
    assert_eq!(refused.lines().count(), 1, "{refused}");
    assert!(load_file(&format!("{public}{}", token("a", "['decide', 'read']"))).is_err());
    load_file(&format!("{public}{}", token("a", "['ingest']"))).expect("a token for metrics guards it");
    let files = ["certificate", "key", "client_ca"].map(|file| format!("intake.tls_{file} = 'x'\n")).concat();
    load_file(&format!("{public}{files}")).expect("client certificates guard it");
    load_file("intake.listen = 'off'").expect("what does not listen needs nothing");
}

#[test]
fn tokens_are_checked_and_what_was_written_for_a_digest_is_not_repeated() {
    let good =
        load_file(&(token("a", "['decide', 'refund']") + &token("b", "['read']"))).expect("both are good");
    assert_eq!(good.config.tokens.iter().map(|token| token.name()).collect::<Vec<_>>(), ["a", "b"]);
    let text = format!(
        "{}{}[[token]]\nname = 'B'\nscopes = ['decide', 'everything']\nsha256 = '{CANARY}'\ntoken = '{CANARY}'\n\
         [[token]]\nscopes = []\nsha256 = 7\n",
        token("a", "['decide']"),
        token("a", "['read']") + &token("admin", "'read'"),
    );
    assert_snapshot!(mistakes(&text), @r#"
    t.toml:6:8: token[1].name: is "a" (accepted: 1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter, and no other token's)
    t.toml:10:8: token[2].name: is "admin" (accepted: 1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter, and no other token's)
    t.toml:11:10: token[2].scopes: is "read" (accepted: a list of some of "decide", "refund", "read", "configure", "ingest")
    t.toml:14:8: token[3].name: is "B" (accepted: 1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter, and no other token's)
    t.toml:15:10: token[3].scopes: is "[\"decide\",\"everything\"]" (accepted: a list of some of "decide", "refund", "read", "configure", "ingest")
    t.toml:16:10: token[3].sha256: is not acceptable (18 characters) (accepted: 64 hexadecimal digits: printf %s "$TOKEN" | sha256sum)
    t.toml:17:9: token[3].token: is not a known key (accepted: name, scopes, sha256)
    t.toml:18:1: token[4].name: is missing (accepted: 1 to 64 of a-z, 0-9, '-', '_', '.', starting with a letter, and no other token's)
    t.toml:19:10: token[4].scopes: is "[]" (accepted: a list of some of "decide", "refund", "read", "configure", "ingest")
    t.toml:20:10: token[4].sha256: is missing, or no string (accepted: 64 hexadecimal digits: printf %s "$TOKEN" | sha256sum)
    "#);
}

#[test]
fn lists_are_read_from_the_file_and_from_the_environment() {
    let file =
        File { name: "t.toml", bytes: b"http.cors_origins = ['https://a.example', 'http://b.example:3000']" };
    let hosts: Environment =
        [("TIDEGATE_HTTP_ALLOWED_HOSTS", "limits.example,LIMITS.example:8443")].into_iter().collect();
    let http = load(Some(file), &hosts, &Flags::default()).expect("both are good").config.settings.http;
    let origins: Vec<String> = http.cors_origins.iter().map(ToString::to_string).collect();
    assert_eq!(origins, ["https://a.example", "http://b.example:3000"]);
    let hosts: Vec<String> = http.allowed_hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["limits.example", "limits.example:8443"]);
    assert_snapshot!(mistakes("[http]\ncors_origins = ['*']\nallowed_hosts = [1, 2]"), @r#"
    t.toml:2:16: http.cors_origins: is "*" (accepted: a list of up to 64, with commas between them in a text: origins, as in "https://console.example" or "http://127.0.0.1:3000")
    t.toml:3:17: http.allowed_hosts: is " , " (accepted: a list of up to 64, with commas between them in a text: hosts, as in "limits.example" or "limits.example:8443")
    "#);
}
