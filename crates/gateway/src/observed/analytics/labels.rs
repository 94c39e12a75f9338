//! Labels of counts: by these requests are counted apart, in memory and in the store.

use std::sync::Arc;

use tidegate_upstream::backend::Target;

/// As a request has them: most are shared with the configuration in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Labels {
    pub(super) route: Option<Arc<str>>,
    /// The id of its API key.
    pub(super) key: Option<Box<str>>,
    pub(super) upstream: Option<Arc<str>>,
    pub(super) server: Option<Target>,
    pub(super) status: u16,
    /// There was no room to count it apart.
    pub(super) is_other: bool,
}

/// As they are stored, and asked for: a list, in this order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LabelNames {
    pub(super) route: Option<String>,
    pub(super) key: Option<String>,
    pub(super) upstream: Option<String>,
    pub(super) server: Option<String>,
    pub(super) status: u16,
    pub(super) is_other: bool,
}

type ListedLabels = (Option<String>, Option<String>, Option<String>, Option<String>, u16, bool);

impl Labels {
    /// The labels of a request that there is no room to count apart.
    pub(super) fn of_others(&self) -> Self {
        Self { status: self.status, is_other: true, ..Self::default() }
    }

    pub(super) fn names(&self) -> LabelNames {
        LabelNames {
            route: self.route.as_deref().map(str::to_owned),
            key: self.key.as_deref().map(str::to_owned),
            upstream: self.upstream.as_deref().map(str::to_owned),
            server: self.server.as_ref().map(Target::to_string),
            status: self.status,
            is_other: self.is_other,
        }
    }
}

impl LabelNames {
    pub(super) fn written(self) -> String {
        // A list of texts, a number and a truth always serialises.
        serde_json::to_string(&ListedLabels::from(self)).unwrap_or_default()
    }

    /// What was written; `others` where it cannot be read, so that its requests are still counted.
    pub(super) fn read(text: &str) -> Self {
        let listed = serde_json::from_str::<ListedLabels>(text);
        listed.map_or_else(|_| Self { is_other: true, ..Self::default() }, Self::from)
    }
}

impl From<LabelNames> for ListedLabels {
    fn from(names: LabelNames) -> Self {
        let LabelNames { route, key, upstream, server, status, is_other } = names;
        (route, key, upstream, server, status, is_other)
    }
}

impl From<ListedLabels> for LabelNames {
    fn from((route, key, upstream, server, status, is_other): ListedLabels) -> Self {
        Self { route, key, upstream, server, status, is_other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written_and_what_is_none_is_others() {
        let labels = Labels { route: Some("a\0 \"b\"".into()), status: 503, ..Labels::default() };
        let text = labels.names().written();
        assert_eq!(text, r#"["a\u0000 \"b\"",null,null,null,503,false]"#);
        assert_eq!(LabelNames::read(&text), labels.names());
        assert_eq!(LabelNames::read(&labels.of_others().names().written()), labels.of_others().names());
        for text in ["", "[]", "[1]"] {
            assert!(LabelNames::read(text).is_other, "{text}");
        }
    }
}
