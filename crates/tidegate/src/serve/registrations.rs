//! The edge's registration API in a process with a control store: who may register, and where that is kept.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tidegate_access::tokens::{Scope, TokensInForce};
use tidegate_control::{Author, Change, ChangeError, Configuration};
use tidegate_edge::documents::{self, REGISTRAR, REGISTRATION};
use tidegate_edge::registration::{Admission, By, RegistrationStore, StoreError, Stored, Unadmitted};
use tidegate_net::clock::wall;

/// Registrations as documents of the configuration.
#[derive(Debug)]
pub(super) struct ControlStore(pub(super) Configuration);

impl ControlStore {
    async fn change(
        &self,
        by: &By,
        edit: impl Fn(&tidegate_control::Parts) -> Option<Change> + Send + 'static,
    ) -> Result<(), StoreError> {
        let from = by.from.map(|address| address.to_string().into());
        let author = Author { actor: by.name.as_ref().to_owned(), at: wall(), from };
        let changed = self.0.edit(author, move |parts| Ok(edit(parts))).await;
        changed.map(drop).map_err(|error| match error {
            ChangeError::Mistakes(mistakes) => StoreError::Refused(mistakes),
            other => StoreError::Unavailable(other.to_string()),
        })
    }
}

impl RegistrationStore for ControlStore {
    fn put<'a>(&'a self, name: &'a str, mut document: Value, by: &'a By) -> Stored<'a> {
        let own = self.own();
        if own != 0 {
            document[REGISTRAR] = own.into();
        }
        let (name, body): (Arc<str>, Arc<str>) = (name.into(), document.to_string().into());
        Box::pin(self.change(by, move |parts| {
            let stored = parts.documents().get(REGISTRATION, &name);
            // A backend that registers again unchanged only says that it is there, which is no change.
            let is_same = stored.is_some_and(|stored| stored.body == body);
            (!is_same).then(|| Change::put(REGISTRATION, Arc::clone(&name), Arc::clone(&body)))
        }))
    }

    fn remove<'a>(&'a self, name: &'a str, registrar: Option<u32>, by: &'a By) -> Stored<'a> {
        let name: Arc<str> = name.into();
        Box::pin(self.change(by, move |parts| {
            let stored = parts.documents().get(REGISTRATION, &name)?;
            // Invariant: what is stored was written as JSON; anything else names no node.
            let at = || documents::registrar(&serde_json::from_str(&stored.body).unwrap_or_default());
            let is_meant = registrar.is_none_or(|registrar| registrar == at());
            is_meant.then(|| Change::delete(REGISTRATION, Arc::clone(&name)))
        }))
    }

    fn own(&self) -> u32 {
        self.0.control().node()
    }

    fn nodes(&self) -> Option<Arc<HashSet<u32>>> {
        self.0.control().nodes_present()
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
