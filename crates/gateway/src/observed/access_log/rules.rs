//! Rules of the access log: the share of requests that get a line, by route and status.

use std::fmt;
use std::str::FromStr;

/// The share of some requests that is logged: `ROUTE/STATUS=PERCENT`, as in `health/2xx=0`, `*/5xx=100`, `*/*=0.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRule {
    /// The route's name; `None`: any, and requests without one.
    route: Option<Box<str>>,
    status: StatusClass,
    /// Of [`ALL`].
    share: u32,
}

/// A share of all, so that a thousandth of a percent is 1.
const ALL: u32 = 100_000;

/// Some statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// All.
    Any,
    /// Statuses that begin with this digit.
    Class(u16),
    /// One.
    One(u16),
}

impl SampleRule {
    /// Whether it is about a request.
    pub(super) fn fits(&self, route: Option<&str>, status: u16) -> bool {
        let fits_status = match self.status {
            StatusClass::Any => true,
            StatusClass::Class(class) => status / 100 == class,
            StatusClass::One(one) => status == one,
        };
        fits_status && self.route.as_deref().is_none_or(|wanted| route == Some(wanted))
    }

    /// Whether a request is among its share, by a number from 0 to below 1.
    pub(super) fn draws(&self, drawn: f64) -> bool {
        drawn * f64::from(ALL) < f64::from(self.share)
    }
}

/// It is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no rule")]
pub struct RuleError;

impl FromStr for SampleRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (place, percent) = text.split_once('=').ok_or(RuleError)?;
        let (route, status) = place.rsplit_once('/').ok_or(RuleError)?;
        let route = match route {
            "*" => None,
            name if is_name(name) => Some(Box::from(name)),
            _ => return Err(RuleError),
        };
        let class = status.strip_suffix("xx").and_then(|class| class.parse().ok());
        let status = match (status, class, status.parse()) {
            ("*", ..) => StatusClass::Any,
            _ if status.len() != 3 => return Err(RuleError),
            (_, Some(class @ 1..=5), _) => StatusClass::Class(class),
            (_, None, Ok(one @ 100..=599)) => StatusClass::One(one),
            _ => return Err(RuleError),
        };
        let percent: f64 = percent.parse().map_err(|_| RuleError)?;
        let share = percent * f64::from(ALL) / 100.0;
        let is_share = (0.0..=f64::from(ALL)).contains(&share) && (share.round() - share).abs() < 1e-6;
        if !is_share {
            return Err(RuleError);
        }
        Ok(Self { route, status, share: share.round() as u32 })
    }
}

impl fmt::Display for SampleRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/", self.route.as_deref().unwrap_or("*"))?;
        match self.status {
            StatusClass::Any => write!(out, "*")?,
            StatusClass::Class(class) => write!(out, "{class}xx")?,
            StatusClass::One(one) => write!(out, "{one}")?,
        }
        write!(out, "={}", f64::from(self.share) * 100.0 / f64::from(ALL))
    }
}

/// Whether a route may have this name.
fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_shown_or_refused() {
        for text in ["*/*=100", "*/5xx=100", "health/2xx=0", "a.b-c_1/404=12.5", "*/499=0.001"] {
            let rule: SampleRule = text.parse().expect("a rule");
            assert_eq!(rule.to_string(), text);
        }
        for text in [
            "",
            "*",
            "*/*",
            "*=1",
            "/200=1",
            "A/*=1",
            "*/6xx=1",
            "*/0xx=1",
            "*/99=1",
            "*/600=1",
            "*/2x=1",
            "*/*=101",
            "*/*=-1",
            "*/*=NaN",
            "*/*=0.0001",
            "*/*=",
            "a/b/200=1",
            "*/+2xx=1",
        ] {
            assert_eq!(text.parse::<SampleRule>(), Err(RuleError), "{text}");
        }
    }

    #[test]
    fn a_rule_is_about_its_route_and_status() {
        let rule: SampleRule = "app/5xx=50".parse().expect("a rule");
        for (route, status, fits) in [
            (Some("app"), 503, true),
            (Some("app"), 200, false),
            (Some("apps"), 503, false),
            (None, 503, false),
        ] {
            assert_eq!(rule.fits(route, status), fits, "{route:?} {status}");
        }
        assert!(rule.draws(0.0) && rule.draws(0.499) && !rule.draws(0.5));
        let all: SampleRule = "*/*=100".parse().expect("a rule");
        let none: SampleRule = "*/*=0".parse().expect("a rule");
        assert!(all.fits(None, 404) && all.draws(0.999_999) && !none.draws(0.0));
    }
}
