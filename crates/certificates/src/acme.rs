//! ACME at one node: names whose certificates are due, turns among nodes, and the certificates in force here.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tidegate_control::{Control, Error, Secret};
use tidegate_net::tls::{Named, NamedCertificates};
use tidegate_upstream::tls::TlsError;
use tokio::time::{sleep, timeout};

use crate::challenge::{Challenge, ChallengeKind, HttpChallenges};
use crate::directory::Directory;
use crate::entry::{Issued, LEASE, ORDER, StoredName, least_interval, now, renewed_at};
use crate::error::OrderError;
use crate::known::{KnownName, earlier, secret_name};

/// How often a node looks for what others have stored, and for names that are due.
const LOOK: Duration = Duration::from_secs(1);

/// How often a certificate that was had is given to the control store before it is given up.
const STORE_ATTEMPTS: usize = 20;

/// What is ordered, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The authority's directory, a URL of `https://`.
    pub directory: String,
    /// Whom the authority writes to, as mail addresses.
    pub contact: Vec<String>,
    /// The names, in lower case: a certificate each.
    pub names: Vec<Box<str>>,
    /// How the authority is shown that they are this server's.
    pub challenge: ChallengeKind,
    /// Whom to trust as the directory, in PEM; `None`: the system's authorities.
    pub authorities: Option<Box<[u8]>>,
}

impl AcmeConfig {
    /// Whether the directory could be spoken to with it.
    ///
    /// # Errors
    /// When there is no certificate among the authorities.
    pub fn check(&self) -> Result<(), TlsError> {
        Directory::new(self.authorities.clone()).map(drop)
    }
}

/// How the certificate of a name fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// The name.
    pub name: Box<str>,
    /// Seconds for which its certificate is still good; `None`: there is none.
    pub seconds_left: Option<u64>,
    /// The last second of that certificate, since 1970.
    pub not_after: Option<u64>,
    /// Orders that failed since the last that did not.
    pub failures: u32,
    /// What is wrong, and what comes next.
    pub trouble: Option<String>,
}

/// Orders of this node since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderCounts {
    /// Orders that ended with a certificate.
    pub issued: u64,
    /// Those that did not.
    pub failed: u64,
}

/// Orders the certificates of the configuration's names, and puts them in force.
pub struct Acme {
    pub(crate) config: AcmeConfig,
    pub(crate) control: Control,
    pub(crate) directory: Directory,
    named: NamedCertificates,
    http: HttpChallenges,
    known: Mutex<BTreeMap<Box<str>, KnownName>>,
    /// Held while what is stored is put in force, so that the older of two looks never comes last.
    refreshing: tokio::sync::Mutex<()>,
    issued: AtomicU64,
    failed: AtomicU64,
}

impl fmt::Debug for Acme {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Acme").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Acme {
    /// Puts what is stored in force at the listeners that `named` is for. Blocks.
    ///
    /// # Errors
    /// When there is no certificate among the authorities.
    pub fn start(
        config: AcmeConfig,
        control: Control,
        named: NamedCertificates,
    ) -> Result<Arc<Self>, TlsError> {
        let known = config.names.iter().map(|name| (name.clone(), KnownName::default())).collect();
        let acme = Self {
            directory: Directory::new(config.authorities.clone())?,
            config,
            control,
            named,
            http: HttpChallenges::default(),
            known: Mutex::new(known),
            refreshing: tokio::sync::Mutex::default(),
            issued: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        };
        match acme.control.secrets() {
            Ok(stored) => acme.take_over(&stored),
            Err(error) => tracing::error!(%error, "the stored certificates cannot be read"),
        }
        Ok(Arc::new(acme))
    }

    /// The directory of the authority that it orders from.
    #[must_use]
    pub fn directory(&self) -> &str {
        &self.config.directory
    }

    /// What an authority is answered that asks by HTTP.
    #[must_use]
    pub fn http_challenges(&self) -> HttpChallenges {
        self.http.clone()
    }

    /// How the certificate of each name fares.
    #[must_use]
    pub fn status(&self) -> Vec<CertificateStatus> {
        let now = now();
        let status = |name: &str, known: &KnownName| {
            let not_after = known.shown().map(|pair| pair.validity.not_after);
            let seconds_left = not_after.map(|end| end.saturating_sub(now));
            let StoredName { failures, problem, retry_at, .. } = &known.entry;
            let trouble = match (failures, seconds_left) {
                (0, Some(_)) => None,
                (0, None) => Some("there is no certificate yet".to_owned()),
                _ => Some(format!("{problem}; tried again in {} s", retry_at.saturating_sub(now))),
            };
            CertificateStatus { name: name.into(), seconds_left, not_after, failures: *failures, trouble }
        };
        self.known().iter().map(|(name, known)| status(name, known)).collect()
    }

    /// What is wrong with any of them, on one line.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let status = self.status();
        let troubles: Vec<String> = status
            .iter()
            .filter_map(|it| {
                let left = match it.seconds_left {
                    Some(0) => "its certificate has ended, and is shown all the same".to_owned(),
                    Some(left) => format!("its certificate is good for {} h", left / 3_600),
                    None => "it has no certificate".to_owned(),
                };
                it.trouble.as_ref().map(|trouble| format!("{}: {trouble}; {left}", it.name))
            })
            .collect();
        (!troubles.is_empty()).then(|| troubles.join(". "))
    }

    /// What became of this node's orders.
    #[must_use]
    pub fn counts(&self) -> OrderCounts {
        OrderCounts { issued: self.issued.load(Relaxed), failed: self.failed.load(Relaxed) }
    }

    /// Orders and renews, and takes over what other nodes have ordered, for as long as it is polled.
    pub async fn run(&self) {
        tokio::join!(self.follow(), self.order_what_is_due());
    }

    async fn follow(&self) {
        while self.control.is_shared() {
            sleep(LOOK).await;
            // The control store says itself when it is away.
            self.refresh().await.unwrap_or_default();
        }
    }

    async fn order_what_is_due(&self) {
        loop {
            while let Some(name) = self.next_due() {
                self.take_turn(&name).await;
            }
            sleep(LOOK).await;
        }
    }

    /// Takes over what is stored by now.
    async fn refresh(&self) -> Result<(), Error> {
        let _turn = self.refreshing.lock().await;
        let stored = self.control.run(|control| control.secrets()).await?;
        self.take_over(&stored);
        Ok(())
    }

    /// Puts what has changed in force.
    fn take_over(&self, stored: &[Secret]) {
        let mut known = self.known();
        let mut has_changed = false;
        for (name, known) in known.iter_mut() {
            let own = secret_name(name, &self.config.directory);
            let found = stored.iter().find(|secret| secret.name == own);
            if known.version != found.map_or(0, |found| found.version) {
                has_changed = true;
                known.replace(name, found);
            }
            if known.shown().is_none() {
                known.earlier = earlier(name, &own, stored);
                has_changed |= known.earlier.is_some();
            }
        }
        if has_changed {
            self.put_in_force(&known);
        }
    }

    fn put_in_force(&self, known: &BTreeMap<Box<str>, KnownName>) {
        let (mut certificates, mut challenges, mut by_token) = (Named::new(), Named::new(), HashMap::new());
        for (name, known) in known {
            certificates.extend(known.shown().cloned().map(|pair| (name.clone(), pair)));
            let Some(challenge) = &known.entry.challenge else { continue };
            match challenge.kind {
                ChallengeKind::Http01 => {
                    by_token.insert(challenge.token.clone(), challenge.key_authorization.as_str().into());
                }
                ChallengeKind::TlsAlpn01 => match challenge.certificate(name) {
                    Ok(pair) => drop(challenges.insert(name.clone(), pair)),
                    Err(error) => tracing::error!(name = &**name, %error, "a challenge cannot be shown"),
                },
            }
        }
        self.named.replace(certificates);
        self.named.replace_challenges(challenges);
        self.http.replace(by_token);
    }

    /// A name that this node may order now.
    fn next_due(&self) -> Option<Box<str>> {
        let now = now();
        let is_due = |name: &str, known: &KnownName| {
            let KnownName { entry, pair, .. } = known;
            let is_good = pair.as_ref().is_some_and(|pair| now < renewed_at(name, pair.validity));
            !is_good && now >= entry.retry_at
        };
        self.known().iter().find(|(name, known)| is_due(name, known)).map(|(name, _)| name.clone())
    }

    /// Orders a certificate for `name`, if no other node is about it.
    async fn take_turn(&self, name: &str) {
        let lease = now() + LEASE.as_secs();
        let began = self.change(name, |entry| (entry.retry_at, entry.challenge) = (lease, None)).await;
        if let Err(error) = began {
            if !matches!(error, Error::Moved { .. }) {
                tracing::warn!(name, %error, "a certificate cannot be ordered, since the control store fails");
            }
            self.refresh().await.unwrap_or_default();
            sleep(LOOK).await;
            return;
        }
        self.directory.take_retry_after();
        match timeout(ORDER, self.order(name)).await.unwrap_or(Err(OrderError::Late)) {
            Ok(issued) => self.succeeded(name, &issued).await,
            Err(error) => self.failed(name, &error).await,
        }
    }

    async fn succeeded(&self, name: &str, issued: &Issued) {
        self.issued.fetch_add(1, Relaxed);
        // A clock that is wrong by months must not order again and again.
        let retry_at = now() + issued.pair().map_or(0, |pair| least_interval(pair.validity));
        let stored = StoredName { issued: Some(issued.clone()), retry_at, ..StoredName::default() };
        for _ in 0..STORE_ATTEMPTS {
            match self.change(name, |entry| *entry = stored.clone()).await {
                Ok(()) => {
                    tracing::info!(name, "a certificate was ordered");
                    return;
                }
                Err(Error::Moved { .. }) => {
                    self.refresh().await.unwrap_or_default();
                    tracing::warn!(name, "a certificate that was ordered is dropped: another node has one");
                    return;
                }
                Err(error) => {
                    tracing::warn!(name, %error, "a certificate that was ordered cannot be stored yet")
                }
            }
            sleep(LOOK).await;
        }
        tracing::error!(name, "a certificate that was ordered could not be stored, and is ordered anew");
    }

    async fn failed(&self, name: &str, error: &OrderError) {
        self.failed.fetch_add(1, Relaxed);
        let failures = self.known().get(name).map_or(0, |known| known.entry.failures).saturating_add(1);
        let wait = error.wait(failures, RandomState::new().hash_one(failures));
        let wait = wait.max(self.directory.take_retry_after());
        tracing::warn!(name, %error, retry_in = ?wait, failures, "no certificate was issued: the one in force stays");
        let retry_at = now() + wait.as_secs().max(1);
        let problem = error.to_string();
        let kept = self.change(name, |entry| {
            entry.challenge = None;
            (entry.failures, entry.problem, entry.retry_at) = (failures, problem.clone(), retry_at);
        });
        if let Err(error) = kept.await {
            tracing::warn!(name, %error, "the failure of an order cannot be stored");
            self.refresh().await.unwrap_or_default();
        }
    }

    /// Has the authority shown `challenge`, by this node and the others.
    pub(crate) async fn show(&self, name: &str, challenge: Challenge) -> Result<(), Error> {
        self.change(name, |entry| entry.challenge = Some(challenge.clone())).await
    }

    /// Stores the entry of `name` with a change, if nobody else has changed it, and puts it in force here.
    async fn change(&self, name: &str, change: impl Fn(&mut StoredName)) -> Result<(), Error> {
        let (mut entry, version) = {
            let known = self.known();
            let found = known.get(name);
            (
                found.map(|known| known.entry.clone()).unwrap_or_default(),
                found.map_or(0, |known| known.version),
            )
        };
        change(&mut entry);
        // Invariant: an entry is a struct of texts and numbers, which always serialises.
        let body = serde_json::to_string(&entry).unwrap_or_default();
        let secret = secret_name(name, &self.config.directory);
        self.control.run(move |control| control.put_secret(&secret, &body, version)).await?;
        self.refresh().await
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Box<str>, KnownName>> {
        // A panic under the lock leaves nothing half done that the next look would not mend.
        self.known.lock()
    }
}
