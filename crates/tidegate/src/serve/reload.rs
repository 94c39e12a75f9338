//! Putting a configuration that was loaded again in force.
//!
//! What a service declares changes at once, and the service says in the log what changed; so do tokens, what the
//! edge's listeners do with connections, and the intake's alert rules, webhook and forwards. Other settings are read once,
//! at start: a changed one is named in the log, with both values, and the advice to restart.
//!
//! Tokens are judged by the listeners that are open, not by those that the file asks for at the next start: a
//! file that would leave one of them to everybody is refused.

use tidegate_algorithms::policy::Mistake;
use tidegate_edge::config::ListenerConfig;

use super::App;
use crate::config::{Access, Config, WebhookUrl, unguarded};

/// Settings that are tokens.
const TOKENS: [&str; 4] = ["admin.token", "grpc.token", "resp.password", "edge.api_token"];

/// The setting that says who is told of the intake's alerts.
const WEBHOOK: &str = "intake.alert_webhook";

/// Puts what `config` declares for the services in force, and its tokens: all of it or nothing.
///
/// # Errors
/// If it does not go with what is stored, or a listener would be left to everybody; what was in force stays
/// then.
pub async fn apply(app: &App, started_with: &Config, config: &Config) -> Result<(), Vec<Mistake>> {
    let access = Access::new(&config.settings, &config.tokens);
    let open = unguarded(&started_with.settings, &access);
    if !open.is_empty() {
        let mistakes = open.into_iter().map(|listener| Mistake {
            pointer: format!("/{}", listener.path.replace('.', "/")),
            problem: listener.problem(),
            accepted: listener.accepted(),
        });
        return Err(mistakes.collect());
    }
    app.configuration().replace_file(config.layers()).await?;
    app.tokens().replace(access);
    if let Some(intake) = &app.intake {
        let webhook = config.settings.intake.alert_webhook.clone().map(|WebhookUrl(url)| url);
        intake.replace(&config.intake, webhook);
    }
    if started_with.listeners != config.listeners {
        tracing::warn!("the changed [[gateway.listener]] take effect at the next start");
    }
    if !are_open(&started_with.edge_listeners, &config.edge_listeners) {
        tracing::warn!(
            "[[edge.listener]]: one whose address, proxies in front or TLS changed stays as it was until the next start"
        );
    }
    let is_in_force = |change: &String| {
        change.split(' ').next().is_some_and(|path| TOKENS.contains(&path) || path == WEBHOOK)
    };
    let changes = started_with.settings.differences(&config.settings).into_iter();
    let restart = changes.filter(|change| !is_in_force(change));
    for change in restart {
        tracing::warn!(change, "this setting takes effect at the next start");
    }
    Ok(())
}

/// Whether the listeners that are open are those of `config`, but for what they do with connections. A listener on
/// port 0 is not recognised.
fn are_open(open: &[ListenerConfig], config: &[ListenerConfig]) -> bool {
    let is_open = |open: &ListenerConfig, listener: &ListenerConfig| {
        open == listener || (listener.listen.port() != 0 && open.has_socket_of(listener))
    };
    open.len() == config.len() && open.iter().all(|one| config.iter().any(|other| is_open(one, other)))
}
