//! Who may do what at each listener: the file's `[[token]]` entries, and the tokens of the settings.

use tidegate_access::tokens::{Credential, Scope, Tokens};
use tidegate_settings::secret::Secret;

use super::settings::Settings;

/// The tokens that are good at each listener.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) http: Tokens,
    pub(crate) grpc: Tokens,
    pub(crate) resp: Tokens,
    pub(crate) intake: Tokens,
    /// At the edge's registration API.
    pub(crate) edge: Tokens,
}

impl Access {
    /// `tokens` are the file's.
    pub(crate) fn new(settings: &Settings, tokens: &[Credential]) -> Self {
        let own = |name: &str, scopes: &[Scope], secret: &Option<Secret>| {
            secret.as_ref().map(|secret| Credential::new(name, scopes.iter().copied(), secret.expose()))
        };
        let operator = [Scope::Refund, Scope::Read, Scope::Configure];
        let admin = own("admin", &operator, &settings.admin.token);
        let grpc = own("grpc", &[Scope::Decide], &settings.grpc.token);
        let resp = own("default", &[Scope::Decide], &settings.resp.password);
        let edge = own("edge", &[Scope::Read, Scope::Configure], &settings.edge.api_token);
        let with =
            |own: Vec<Option<Credential>>| tokens.iter().cloned().chain(own.into_iter().flatten()).collect();
        let (http, intake) = (with(vec![admin.clone()]), with(vec![admin.clone()]));
        let edge = with(vec![admin, edge]);
        Self { http, grpc: with(vec![grpc]), resp: with(vec![resp]), intake, edge }
    }
}
