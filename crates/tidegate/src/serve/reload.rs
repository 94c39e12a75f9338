//! Putting a configuration that was loaded again in force.
//!
//! What a service declares changes at once, and the service says in the log what changed; so do tokens, what the
//! edge's listeners do with connections, the intake's alert rules, webhook and forwards, and the listeners of the decision and
//! admin APIs, of gRPC, of RESP, of the intake, of the gateway and of the edge, with their TLS ([`super::listeners`]). Other settings
//! are read once, at start: a changed one is named in the log, with both values, and the advice to restart. Where registrations
//! and names are served is decided at the start, too: whoever asks for them by a first listener of the edge is told so.
//!
//! What can fail comes first, and changes nothing: addresses are bound, files of TLS are read, documents are compared with what
//! is stored.
//!
//! Tokens are judged by the listeners that are to be open and by those that are: connections of one that closes go on for a
//! while, and a file that would leave one of them to everybody is refused.

use std::net::SocketAddr;

use tidegate_algorithms::policy::Mistake;

use super::App;
use crate::config::{
    Access, Config, Settings, Unguarded, WebhookUrl, bound_addresses, listen_addresses, unguarded,
};

/// Settings that are tokens.
const TOKENS: [&str; 4] = ["admin.token", "grpc.token", "resp.password", "edge.api_token"];

/// The setting that says who is told of the intake's alerts.
const WEBHOOK: &str = "intake.alert_webhook";

/// Puts what `config` declares for the services in force, its tokens and its listeners: all of it or nothing.
///
/// # Errors
/// If it does not go with what is stored, an address or the files of TLS cannot be had, or a listener would be left to
/// everybody; what was in force stays then.
pub async fn apply(app: &App, started_with: &Config, config: &Config) -> Result<(), Vec<Mistake>> {
    let access = Access::new(&config.settings, &config.tokens);
    let in_force = app.listeners.settings();
    let listened = listening(&in_force, &config.settings);
    expect_guarded(&app.listeners.served(), &listened, &access)?;
    let ready = app.listeners.prepare(&Config { settings: listened, ..config.clone() }).await?;
    app.configuration().replace_file(config.layers()).await?;
    app.tokens().replace(access);
    app.listeners.commit(ready, &app.cores);
    if let Some(intake) = &app.intake {
        let webhook = config.settings.intake.alert_webhook.clone().map(|WebhookUrl(url)| url);
        intake.replace(&config.intake, webhook);
    }
    for setting in waiting(started_with, config) {
        tracing::warn!(
            setting,
            "nothing needed this address when the process began: it is opened at the next start"
        );
    }
    let is_in_force = |change: &String| {
        change.split(' ').next().is_some_and(|path| TOKENS.contains(&path) || path == WEBHOOK)
    };
    let settled = listening(&started_with.settings, &config.settings);
    let changes = settled.differences(&config.settings).into_iter();
    let restart = changes.filter(|change| !is_in_force(change));
    for change in restart {
        tracing::warn!(change, "this setting takes effect at the next start");
    }
    Ok(())
}

/// The settings in force, with those of `wanted` that listeners are opened by without a restart. Whether the admin API has
/// a listener of its own, and whether there is an intake, stays as it is.
fn listening(in_force: &Settings, wanted: &Settings) -> Settings {
    let mut next = in_force.clone();
    let (http, admin) = (&wanted.http, &wanted.admin);
    next.http.listen = http.listen;
    next.http.tls = http.tls.clone();
    let (grpc, resp, intake) = (&wanted.grpc, &wanted.resp, &wanted.intake);
    if next.admin.listen.is_some() && admin.listen.is_some() {
        (next.admin.listen, next.admin.tls) = (admin.listen, admin.tls.clone());
    }
    if next.intake.listen.is_some() && intake.listen.is_some() {
        (next.intake.listen, next.intake.tls) = (intake.listen, intake.tls.clone());
    }
    (next.grpc.listen, next.grpc.tls) = (grpc.listen, grpc.tls.clone());
    (next.resp.listen, next.resp.tls) = (resp.listen, resp.tls.clone());
    next
}

/// Refuses tokens that would leave to everybody a listener of `listened`, or connections of one that was `served` before.
fn expect_guarded(served: &[Settings], listened: &Settings, access: &Access) -> Result<(), Vec<Mistake>> {
    let mistake = |listener: &Unguarded, problem: String| Mistake {
        pointer: format!("/{}", listener.path.replace('.', "/")),
        problem,
        accepted: listener.accepted(),
    };
    let after = unguarded(listened, access);
    let mut mistakes: Vec<Mistake> = after.iter().map(|it| mistake(it, it.problem())).collect();
    let before: Vec<Unguarded> = served.iter().flat_map(|settings| unguarded(settings, access)).collect();
    let closing = before.iter().filter(|it| !after.iter().any(|after| after.path == it.path));
    mistakes.extend(closing.map(|it| {
        let still = "It is open, or its connections are still: change the address first, and tokens when they have ended";
        mistake(it, format!("{}. {still}", it.problem()))
    }));
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// The listeners that `config` gives something to do, and that were declared and not bound when the process started, by the paths
/// of their settings.
fn waiting(started_with: &Config, config: &Config) -> Vec<&'static str> {
    let bound = bound_addresses(started_with);
    let is_in = |addresses: &[(String, SocketAddr)], path: &str| addresses.iter().any(|(it, _)| it == path);
    let (declared, wanted) = (listen_addresses(started_with), bound_addresses(config));
    let is_waiting = |path: &&str| is_in(&wanted, path) && is_in(&declared, path) && !is_in(&bound, path);
    ["edge.api_listen", "edge.dns_listen"].into_iter().filter(is_waiting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{File, Flags, load};

    const TOKEN: (&str, &str) = ("TIDEGATE_ADMIN_TOKEN", "the-token-of-the-operator");

    fn config(environment: &[(&str, &str)]) -> Config {
        load(None, &environment.iter().copied().collect(), &Flags::default()).unwrap().config
    }

    #[test]
    fn fault_45_a_public_address_and_its_token_are_not_given_up_at_once() {
        let public = config(&[("TIDEGATE_HTTP_LISTEN", "0.0.0.0:4000"), TOKEN]).settings;
        let moved = config(&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:4000"), TOKEN]).settings;
        let bare = config(&[("TIDEGATE_HTTP_LISTEN", "127.0.0.1:4000")]);
        let access = Access::new(&bare.settings, &bare.tokens);
        let refused = |served: &[Settings]| expect_guarded(served, &bare.settings, &access).err();
        let mistakes = refused(std::slice::from_ref(&public)).unwrap();
        assert_eq!((mistakes.len(), &*mistakes[0].pointer), (1, "/http/listen"));
        assert!(mistakes[0].problem.contains("change the address first"), "{mistakes:?}");
        assert!(refused(&[public, moved.clone()]).is_some(), "the public one still drains");
        assert!(refused(&[moved]).is_none());
    }

    #[test]
    fn registrations_and_names_wait_for_the_next_start_if_the_edge_comes_later() {
        let read = |names: &str, listeners: &str| {
            let text = format!("edge.dns_listen = {names:?}\n{listeners}");
            let file = File { name: "t.toml", bytes: text.as_bytes() };
            load(Some(file), &[TOKEN].into_iter().collect(), &Flags::default()).unwrap().config
        };
        let listener = "[[edge.listener]]\nlisten = \"127.0.0.1:0\"\n";
        let (without, with) = (read("127.0.0.1:5300", ""), read("127.0.0.1:5300", listener));
        assert_eq!(waiting(&without, &with), ["edge.api_listen", "edge.dns_listen"]);
        assert!(waiting(&with, &with).is_empty() && waiting(&with, &without).is_empty());
        assert!(waiting(&without, &without).is_empty());
        // That it was turned on is said of it already.
        assert_eq!(waiting(&read("off", ""), &with), ["edge.api_listen"]);
    }

    #[test]
    fn whether_there_is_a_listener_of_the_admin_api_or_an_intake_stays_as_it_is() {
        let without = config(&[("TIDEGATE_INTAKE_LISTEN", "off")]).settings;
        let with = [
            ("TIDEGATE_HTTP_LISTEN", "127.0.0.1:5000"),
            ("TIDEGATE_RESP_LISTEN", "127.0.0.1:5001"),
            ("TIDEGATE_ADMIN_LISTEN", "127.0.0.1:5002"),
            ("TIDEGATE_INTAKE_LISTEN", "127.0.0.1:5003"),
        ];
        let with = config(&with).settings;
        let next = listening(&without, &with);
        let paths = |changes: Vec<String>| -> Vec<String> {
            changes.iter().filter_map(|change| change.split(' ').next().map(str::to_owned)).collect()
        };
        assert_eq!(paths(next.differences(&with)), ["intake.listen", "admin.listen"]);
        // Where they are there, they move.
        let moved =
            [("TIDEGATE_ADMIN_LISTEN", "127.0.0.1:6002"), ("TIDEGATE_INTAKE_LISTEN", "127.0.0.1:6003")];
        let moved = config(&moved).settings;
        assert!(listening(&with, &moved).differences(&moved).is_empty());
    }
}
