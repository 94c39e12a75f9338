//! A small table of settings, read from a file, an environment and flags.
#![allow(unreachable_pub, reason = "a table is public wherever it is declared")]

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_settings::document::Document;
use tidegate_settings::list::WebOrigin;
use tidegate_settings::mistake::{Mistakes, Origin, Position};
use tidegate_settings::reference::{properties, sections};
use tidegate_settings::resolve::{Environment, FlagValues, Resolver};
use tidegate_settings::secret::Secret;
use tidegate_settings::table::TlsVersion;
use tidegate_settings::unknown::KnownKeys;

tidegate_settings::settings! {
    {
        /// Whether anything is done.
        active: bool = "true", ();
    }

    /// What is listened on.
    door: Door {
        /// The address.
        listen: Option<SocketAddr> = "off", ();
    }
    tls {
        /// How long a client may take.
        patience: Duration = "10s", Duration::from_millis(100)..=Duration::from_secs(600);
        /// Whose pages may ask.
        origins: Vec<WebOrigin> = "", ();
        /// What clients send.
        token: Option<Secret> = "", 8;
    }
}

/// The settings, and where each came from.
type Resolved = (Settings, Vec<(&'static str, Origin)>);

/// Reads the sources: the settings with the origins of all, or the mistakes as they are printed.
fn read(
    file: &str,
    environment: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Result<Resolved, String> {
    let document = Document::parse(file.as_bytes());
    let environment: Environment = environment.iter().copied().collect();
    let flags: FlagValues = flags.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
    let mut resolver = Resolver::new(TABLE, &document, &environment, &flags);
    let settings = Settings::resolve(&mut resolver);
    let Resolver { origins, mut found, .. } = resolver;
    document.find_unknown_keys(
        KnownKeys { settings: TABLE, groups: GROUPS, tables: &["entry", "door.list"] },
        &mut found,
    );
    found.add_syntax(document.syntax);
    Mistakes::new("t.toml", found).map_or(Ok((settings, origins)), |mistakes| Err(mistakes.to_string()))
}

const FILE: &str =
    "active = false\n[door]\nlisten = '127.0.0.1:1'\npatience = '1m'\n[[door.list]]\n[[entry]]\n";

#[test]
fn the_highest_layer_wins_and_says_where_it_is() {
    let variable = "TIDEGATE_DOOR_PATIENCE";
    let environment = [(variable, "2m"), ("TIDEGATE_DOOR_LISTEN", "127.0.0.1:2")];
    let (settings, origins) = read(FILE, &environment, &[("door.patience", "3m")]).unwrap();
    let origin =
        |path: &str| origins.iter().find(|(other, _)| *other == path).map(|(_, origin)| origin.clone());
    assert_eq!(settings.door.patience, Duration::from_secs(180));
    assert_eq!(origin("door.patience"), Some(Origin::Flag("--door-patience".to_owned())));
    assert_eq!(settings.door.listen, Some(SocketAddr::from(([127, 0, 0, 1], 2))));
    assert_eq!(origin("door.listen"), Some(Origin::Environment("TIDEGATE_DOOR_LISTEN".to_owned())));
    assert!(!settings.active);
    assert_eq!(origin("active"), Some(Origin::File(Position { line: 1, column: 10 })));
    assert_eq!(settings.door.tls.files(), [&None, &None, &None]);
    assert_eq!(settings.door.tls.min_version, TlsVersion::Tls12);
    assert_eq!(origin("door.tls_key"), Some(Origin::Default));
    assert_eq!(origins.len(), TABLE.len());
}

#[test]
fn a_mistake_in_a_hidden_layer_is_found_and_a_secret_is_not_repeated() {
    let environment = [("TIDEGATE_DOOR_PATIENCE", "0s"), ("TIDEGATE_DOOR_TOKEN", "canary")];
    let said = read("door.patience = 10", &environment, &[("door.patience", "3m")]).unwrap_err();
    assert_eq!(
        said,
        "t.toml:1:17: door.patience: is a number (accepted: a time from \"100ms\" to \"10m\" in ms, s, m, h or d)\n\
         environment TIDEGATE_DOOR_PATIENCE: door.patience: is \"0s\" (accepted: a time from \"100ms\" to \"10m\" in ms, s, m, h or d)\n\
         environment TIDEGATE_DOOR_TOKEN: door.token: is not acceptable (6 characters) \
         (accepted: 8 to 4096 printable ASCII characters without spaces)"
    );
}

#[test]
fn a_key_that_nothing_reads_is_refused_a_quoted_path_too() {
    for (file, path) in [
        ("colour = 1", "colour"),
        ("[door]\nlisen = 1", "door.lisen"),
        ("\"door.listen\" = '127.0.0.1:1'", "door.listen"),
        ("\"door.list\" = []", "door.list"),
        ("door = 1", "door"),
    ] {
        let said = read(file, &[], &[]).unwrap_err();
        assert!(said.contains(&format!(": {path}: ")), "{file}: {said}");
    }
    let environment: Environment = [("TIDEGATE_DOOR_LISEN", "1")].into_iter().collect();
    assert!(environment.unknown_variables(TABLE)[0].ends_with("did you mean TIDEGATE_DOOR_LISTEN?"));
}

#[test]
fn what_differs_is_told_and_a_secret_only_that_it_does() {
    let (before, _) = read(FILE, &[], &[]).unwrap();
    let environment = [("TIDEGATE_DOOR_TOKEN", "canary-1"), ("TIDEGATE_ACTIVE", "true")];
    let (after, _) = read(FILE, &environment, &[("door.tls_min_version", "1.3")]).unwrap();
    assert_eq!(before.differences(&before), Vec::<String>::new());
    let told = ["active false -> true", "door.tls_min_version 1.2 -> 1.3", "door.token (none) -> (redacted)"];
    assert_eq!(before.differences(&after), told);
}

#[test]
fn a_version_of_tls_that_is_none_is_refused_with_those_that_are() {
    for (file, problem) in [("'1.1'", "is \"1.1\""), ("'TLSv1.3'", "is \"TLSv1.3\""), ("1.3", "is a number")]
    {
        let said = read(&format!("door.tls_min_version = {file}"), &[], &[]).unwrap_err();
        let expected = format!("door.tls_min_version: {problem} (accepted: \"1.2\", \"1.3\")");
        assert!(said.ends_with(&expected), "{said}");
    }
    let (settings, _) = read("door.tls_min_version = '1.3'", &[], &[]).unwrap();
    assert_eq!(settings.door.tls.min_version, TlsVersion::Tls13);
}

#[test]
fn a_table_has_a_section_and_a_property_for_each_group() {
    let mut page = String::new();
    sections(&mut page, TABLE, GROUPS);
    assert!(page.contains("## `[door]`\n\nWhat is listened on."), "{page}");
    assert!(page.contains("| `door.patience` | `\"10s\"` | a time from \"100ms\" to \"10m\""), "{page}");
    assert!(page.contains("- `door.tls_key`: PEM file with the private key"), "{page}");
    let properties = properties(TABLE, GROUPS);
    assert_eq!(properties["door"]["properties"]["token"]["minLength"], 8);
    assert_eq!(properties["active"]["default"], true);
}
