//! The tokens in force at each listener.

use tidegate_access::tokens::TokensInForce;

use crate::config::Access;

/// One list for each listener, since each may have a token of its own beside those of all.
#[derive(Clone, Debug)]
pub struct ListenerTokens {
    pub(super) http: TokensInForce,
    pub(super) grpc: TokensInForce,
    pub(super) resp: TokensInForce,
    pub(super) intake: TokensInForce,
    pub(super) edge: TokensInForce,
}

impl ListenerTokens {
    pub(super) fn new(Access { http, grpc, resp, intake, edge }: Access) -> Self {
        let [http, grpc, resp, intake, edge] = [http, grpc, resp, intake, edge].map(TokensInForce::new);
        Self { http, grpc, resp, intake, edge }
    }

    /// Puts others in force, for every request from now on.
    pub(super) fn replace(&self, Access { http, grpc, resp, intake, edge }: Access) {
        self.http.replace(http);
        self.grpc.replace(grpc);
        self.resp.replace(resp);
        self.intake.replace(intake);
        self.edge.replace(edge);
    }
}
