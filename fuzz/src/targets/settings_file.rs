//! Any file gives settings or mistakes with places, and what is shown of a setting is read as the same (fault 19).
//!
//! The table has a setting of each type that is shown in one way only.
#![allow(unreachable_pub, reason = "a table is public wherever it is declared")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_algorithms::balance::round_trip::TierBounds;
use tidegate_settings::document::Document;
use tidegate_settings::list::{NodeName, RegionName, WebOrigin};
use tidegate_settings::mistake::{Mistakes, Origin};
use tidegate_settings::resolve::{Environment, FlagValues, Resolver};
use tidegate_settings::secret::Secret;
use tidegate_settings::telemetry::Ratio;
use tidegate_settings::unknown::KnownKeys;
use tidegate_settings::value::Bytes;

/// The list of tables that is no setting.
const LIST: &str = "entry";

tidegate_settings::settings! {
    {
        /// A folder.
        folder: PathBuf = "./data", ();
    }

    /// One of each.
    sample: Sample {
        /// A listener's address.
        address: Option<SocketAddr> = "off", ();
        /// A size.
        size: Bytes = "1 MiB", Bytes(1)..=Bytes(1 << 40);
        /// A time.
        time: Duration = "10s", Duration::ZERO..=Duration::from_secs(86_400);
        /// A number.
        count: u32 = "1", 0..=1_000;
        /// A switch.
        switch: bool = "false", ();
        /// A share.
        share: Ratio = "1", ();
        /// A name of a node.
        node: Option<NodeName> = "", ();
        /// A name of a region.
        region: Option<RegionName> = "", ();
        /// A list.
        origins: Vec<WebOrigin> = "", ();
        /// A list of three.
        tiers: Option<TierBounds> = "", ();
        /// A secret.
        secret: Option<Secret> = "", 1;
    }
}

pub(super) fn run(bytes: &[u8]) {
    let document = Document::parse(bytes);
    let environment = Environment::default();
    let none = FlagValues::new();
    let mut resolver = Resolver::new(TABLE, &document, &environment, &none);
    let settings = Settings::resolve(&mut resolver);
    let Resolver { origins, mut found, .. } = resolver;
    assert_eq!(origins.len(), TABLE.len());

    document.find_unknown_keys(KnownKeys { settings: TABLE, groups: GROUPS, tables: &[LIST] }, &mut found);
    match document.entries(LIST) {
        Ok(entries) => {
            let mut pointers = entries.inexpressible.iter();
            assert!(pointers.all(|(pointer, _)| matches!(document.locate(pointer), Origin::File(_))));
        }
        Err(mistake) => found.push(mistake),
    }
    found.add_syntax(document.syntax);
    match Mistakes::new("fuzz.toml", found) {
        Some(mistakes) => assert!(mistakes.count() > 0 && !mistakes.to_string().is_empty()),
        None => is_read_as_shown(&settings),
    }
}

/// Gives what is shown of every setting back as flags. A secret is not shown, and an absent value has no text.
fn is_read_as_shown(settings: &Settings) {
    let is_text = |(path, text): &(&'static str, String)| {
        *path != "sample.secret" && (*path == "folder" || text != "(none)")
    };
    let flags: FlagValues = settings.show().into_iter().filter(is_text).collect();
    let (document, environment) = (Document::default(), Environment::default());
    let mut resolver = Resolver::new(TABLE, &document, &environment, &flags);
    let again = Settings::resolve(&mut resolver);
    assert!(resolver.found.list().is_empty(), "{:?}", resolver.found);
    let mut differences = settings.differences(&again);
    differences.retain(|difference| !difference.starts_with("sample.secret "));
    assert!(differences.is_empty(), "{differences:?}");
}
