//! One order, from the account to the certificate.
//!
//! ```text
//!   account --> order --> each authorization: challenge shown --ready--> valid? --CSR--> certificate
//! ```
//!
//! The key is made here and never leaves but into the control store.

use std::time::Duration;

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::acme::Acme;
use crate::challenge::Challenge;
use crate::entry::Issued;
use crate::error::{OrderError, said};

/// How long the authority is waited for at each of two steps: until it has asked, and until it has signed.
const STEP: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(45));

/// How long other nodes may take to learn what the authority is to be shown.
const HEARD_BY_ALL: Duration = Duration::from_secs(3);

/// The secret that is the account at a directory.
pub(crate) fn account_name(directory: &str) -> String {
    format!("acme-account {directory}")
}

impl Acme {
    /// A certificate for `name`, whose lease this node has.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn order(&self, name: &str) -> Result<Issued, OrderError> {
        let identifiers = [Identifier::Dns(name.to_owned())];
        let wanted = NewOrder::new(&identifiers);
        let mut order = match self.account(false).await?.new_order(&wanted).await.map_err(Into::into) {
            // A directory that was set up anew.
            Err(OrderError::NoAccount) => self.account(true).await?.new_order(&wanted).await?,
            order => order?,
        };
        self.prove(&mut order, name).await?;
        if order.poll_ready(&STEP).await? != OrderStatus::Ready {
            return Err(reason(&mut order).await);
        }
        let (csr, key) = signing_request(name)?;
        order.finalize_csr(&csr).await?;
        let certificate = order.poll_certificate(&STEP).await?;
        let issued = Issued { certificate, key };
        issued.pair()?;
        Ok(issued)
    }

    /// Shows the authority what it asks for, and tells it so.
    async fn prove(&self, order: &mut Order, name: &str) -> Result<(), OrderError> {
        let kind = self.config.challenge;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let challenge = authorization.challenge(kind.into());
            let mut challenge = challenge.ok_or(OrderError::NoChallenge(kind.word()))?;
            let key_authorization = challenge.key_authorization().as_str().to_owned();
            self.show(name, Challenge { kind, token: challenge.token.clone(), key_authorization }).await?;
            if self.control.is_shared() {
                tokio::time::sleep(HEARD_BY_ALL).await;
            }
            challenge.set_ready().await?;
        }
        Ok(())
    }

    /// The account at the directory; a new one if there is none, or if `anew`.
    async fn account(&self, anew: bool) -> Result<Account, OrderError> {
        let secret = account_name(&self.config.directory);
        let stored = self.control.run(|control| control.secrets()).await?;
        let stored = stored.into_iter().find(|found| found.name == secret);
        let version = stored.as_ref().map_or(0, |stored| stored.version);
        let builder = || Account::builder_with_http(Box::new(self.directory.clone()));
        let known = stored.and_then(|stored| serde_json::from_str::<AccountCredentials>(&stored.body).ok());
        if let Some(credentials) = known.filter(|_| !anew) {
            return Ok(builder().from_credentials(credentials).await?);
        }
        let contact: Vec<String> = self.config.contact.iter().map(|it| format!("mailto:{it}")).collect();
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let wanted =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let (account, credentials) = builder().create(&wanted, self.config.directory.clone(), None).await?;
        let body = serde_json::to_string(&credentials).map_err(|error| OrderError::Unusable(said(&error)))?;
        // If another node was first, this account serves for this order.
        let stored = self.control.run(move |control| control.put_secret(&secret, &body, version)).await;
        match stored {
            Ok(_) | Err(tidegate_control::Error::Moved { .. }) => {
                tracing::info!(directory = self.config.directory, "an ACME account was made");
                Ok(account)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Why an order is invalid, as its authorizations say.
async fn reason(order: &mut Order) -> OrderError {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            return OrderError::Refused(said(problem));
        }
    }
    OrderError::Refused("the order is invalid".to_owned())
}

/// A request for a certificate of `name`, in DER, and its new key, in PEM.
fn signing_request(name: &str) -> Result<(Vec<u8>, String), OrderError> {
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate()?;
    let request = params.serialize_request(&key)?;
    Ok((request.der().to_vec(), key.serialize_pem()))
}
