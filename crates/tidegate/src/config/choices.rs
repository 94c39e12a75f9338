//! Settings that are a choice of words.

use tidegate_settings::choice;

choice! {
    /// What a request is answered that no policy applies to.
    OnNoMatch {
        /// Nothing limits it.
        Allow = "allow",
        /// It is denied.
        Deny = "deny",
    }
}

choice! {
    /// What becomes of traffic for which a policy is listed that is not in force.
    OnMissingPolicy {
        /// It is served without it.
        Allow = "allow",
        /// It is not served.
        Deny = "deny",
    }
}

choice! {
    /// What becomes of requests with an API key while nobody can say whether it was revoked.
    OnStaleKeys {
        /// They are served, by the keys that are known.
        Serve = "serve",
        /// They are not.
        Refuse = "refuse",
    }
}

choice! {
    /// The header fields by which a proxy says which request it asks about.
    ProxyHeaders {
        /// None is believed.
        None = "none",
        /// X-Original-URI and X-Original-Method.
        Original = "original",
        /// X-Forwarded-Uri and X-Forwarded-Method.
        Forwarded = "forwarded",
    }
}

choice! {
    /// The header field in which proxies say whose request it is.
    ClientField {
        /// X-Forwarded-For.
        XForwardedFor = "x-forwarded-for",
        /// Forwarded (RFC 7239).
        Forwarded = "forwarded",
    }
}

choice! {
    /// How log lines look.
    LogFormat {
        /// For people.
        Text = "text",
        /// One JSON object per line.
        Json = "json",
    }
}

choice! {
    /// What of the counters survives a crash of the database server.
    Durability {
        /// Nothing.
        Unlogged = "unlogged",
        /// All but the last moments.
        Asynchronous = "asynchronous",
        /// Everything that was answered.
        Synchronous = "synchronous",
    }
}

choice! {
    /// The least severe line that is logged.
    LogLevel {
        /// Nothing at all.
        Off = "off",
        /// Failures.
        Error = "error",
        /// What an operator should look at.
        Warn = "warn",
        /// Starts, stops, changes of configuration.
        Info = "info",
        /// Each request.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

impl From<ClientField> for tidegate_gateway::service::ClientField {
    fn from(field: ClientField) -> Self {
        match field {
            ClientField::XForwardedFor => Self::XForwardedFor,
            ClientField::Forwarded => Self::Forwarded,
        }
    }
}

impl From<OnMissingPolicy> for tidegate_net::limits::MissingPolicy {
    fn from(answer: OnMissingPolicy) -> Self {
        match answer {
            OnMissingPolicy::Allow => Self::Allow,
            OnMissingPolicy::Deny => Self::Deny,
        }
    }
}

impl From<OnNoMatch> for tidegate_limiter::no_match::OnNoMatch {
    fn from(answer: OnNoMatch) -> Self {
        match answer {
            OnNoMatch::Allow => Self::Allow,
            OnNoMatch::Deny => Self::Deny,
        }
    }
}

impl From<ProxyHeaders> for tidegate_limiter::http::ProxyHeaders {
    fn from(believed: ProxyHeaders) -> Self {
        match believed {
            ProxyHeaders::None => Self::None,
            ProxyHeaders::Original => Self::Original,
            ProxyHeaders::Forwarded => Self::Forwarded,
        }
    }
}
