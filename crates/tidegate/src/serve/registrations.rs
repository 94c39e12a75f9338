//! The edge's registration API in a process with a control store: who may register, and where that is kept.

use std::sync::Arc;

use serde_json::Value;
use tidegate_access::tokens::{Scope, TokensInForce};
use tidegate_control::{Author, Change, ChangeError, Configuration};
use tidegate_edge::documents::REGISTRATION;
use tidegate_edge::registration::{Admission, RegistrationStore, StoreError, Stored, Unadmitted};
use tidegate_net::clock::wall;

/// Registrations as documents of the configuration.
#[derive(Debug)]
pub(super) struct ControlStore(pub(super) Configuration);

impl ControlStore {
    async fn change(
        &self,
        actor: &str,
        edit: impl Fn(&tidegate_control::Parts) -> Option<Change> + Send + 'static,
    ) -> Result<(), StoreError> {
        let author = Author { actor: actor.to_owned(), at: wall() };
        let changed = self.0.edit(author, move |parts| Ok(edit(parts))).await;
        changed.map(drop).map_err(|error| match error {
            ChangeError::Mistakes(mistakes) => StoreError::Refused(mistakes),
            other => StoreError::Unavailable(other.to_string()),
        })
    }
}

impl RegistrationStore for ControlStore {
    fn put<'a>(&'a self, name: &'a str, document: Value, actor: &'a str) -> Stored<'a> {
        let (name, body): (Arc<str>, Arc<str>) = (name.into(), document.to_string().into());
        Box::pin(self.change(actor, move |parts| {
            let stored = parts.documents().get(REGISTRATION, &name);
            // Who registers again as it is only says that it is there, which is no change.
            let is_same = stored.is_some_and(|stored| stored.body == body);
            (!is_same).then(|| Change::put(REGISTRATION, Arc::clone(&name), Arc::clone(&body)))
        }))
    }

    fn remove<'a>(&'a self, name: &'a str, actor: &'a str) -> Stored<'a> {
        let name: Arc<str> = name.into();
        Box::pin(self.change(actor, move |parts| {
            let is_stored = parts.documents().get(REGISTRATION, &name).is_some();
            is_stored.then(|| Change::delete(REGISTRATION, Arc::clone(&name)))
        }))
    }
}

/// The tokens that are good at the registration API.
#[derive(Debug)]
pub(super) struct ByToken(pub(super) TokensInForce);

impl Admission for ByToken {
    fn admit(&self, changes: bool, secret: Option<&[u8]>) -> Result<Option<Arc<str>>, Unadmitted> {
        let scope = if changes { Scope::Configure } else { Scope::Read };
        match self.0.load().admit(scope, secret) {
            Ok(token) => Ok(token.map(|token| token.name().into())),
            Err(_) => Err(Unadmitted),
        }
    }
}
