//! Why there is no certificate, and how long to wait before another attempt.

use std::time::Duration;

use tidegate_algorithms::backoff::Backoff;
use tidegate_net::tls::NamedPairError;

/// Longest text of an authority that is kept, in characters.
const MAX_SAID: usize = 300;

/// The account is not known where its orders go: the directory has lost it.
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Why an order came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    /// The authority did not answer, or its answer cannot be understood. Trying again costs nothing but the attempt.
    #[error("the directory cannot be used: {0}")]
    Unreachable(String),
    /// The authority has said no, and counts how often it has to.
    #[error("the authority refuses: {0}")]
    Refused(String),
    /// As [`OrderError::Refused`], because it does not know the account.
    #[error("the authority does not know the account")]
    NoAccount,
    /// It did not come to an end.
    #[error("the order did not come to an end in time")]
    Late,
    /// The authority cannot prove this name in the way that is configured.
    #[error("the authority does not offer the challenge {0}")]
    NoChallenge(&'static str),
    /// What was made for it, or what came back, cannot be served.
    #[error("the certificate cannot be served: {0}")]
    Unusable(String),
    /// The control store.
    #[error("{0}")]
    Store(#[from] tidegate_control::Error),
}

impl OrderError {
    /// How long to wait after so many failures, of which this is one.
    pub(crate) fn wait(&self, failures: u32, seed: u64) -> Duration {
        let (first, longest) = match self {
            // A public authority allows five failed validations of a name in an hour.
            Self::Refused(_) | Self::NoAccount | Self::NoChallenge(_) | Self::Unusable(_) => {
                (Duration::from_secs(20 * 60), Duration::from_secs(12 * 3_600))
            }
            Self::Unreachable(_) | Self::Late | Self::Store(_) => {
                (Duration::from_secs(5), Duration::from_secs(3_600))
            }
        };
        Backoff::new(first, longest, seed).after(failures.saturating_sub(1)).failed()
    }
}

impl From<instant_acme::Error> for OrderError {
    fn from(error: instant_acme::Error) -> Self {
        match error {
            instant_acme::Error::Api(problem) if problem.r#type.as_deref() == Some(NO_ACCOUNT) => {
                Self::NoAccount
            }
            instant_acme::Error::Api(problem) if problem.status.is_some_and(|status| status >= 500) => {
                Self::Unreachable(said(&problem))
            }
            instant_acme::Error::Api(problem) => Self::Refused(said(&problem)),
            instant_acme::Error::Timeout(_) => Self::Late,
            error => Self::Unreachable(said(&error)),
        }
    }
}

impl From<rcgen::Error> for OrderError {
    fn from(error: rcgen::Error) -> Self {
        Self::Unusable(error.to_string())
    }
}

impl From<NamedPairError> for OrderError {
    fn from(error: NamedPairError) -> Self {
        Self::Unusable(error.to_string())
    }
}

/// What another machine said, on one line of bounded length.
pub(crate) fn said(text: &impl ToString) -> String {
    let text = text.to_string();
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_that_refused_is_asked_seldom_and_one_that_is_away_soon() {
        let wait = |error: &OrderError, failures| error.wait(failures, 7).as_secs();
        let (refused, away) = (OrderError::Refused(String::new()), OrderError::Unreachable(String::new()));
        assert!((600..=1_200).contains(&wait(&refused, 1)) && (2..=5).contains(&wait(&away, 1)));
        assert!((1_200..=2_400).contains(&wait(&refused, 2)) && (5..=10).contains(&wait(&away, 2)));
        assert!(wait(&refused, 60) <= 12 * 3_600 && (1_800..=3_600).contains(&wait(&away, 60)));
    }

    #[test]
    fn what_an_authority_says_is_one_short_line() {
        let text = said(&format!("a\nb{}", "x".repeat(1_000)));
        assert!(text.starts_with("a bx") && text.chars().count() == MAX_SAID, "{text}");
    }
}
