//! The table of settings, as a program writes it down, and the settings of a listener's TLS, which several groups have.
//!
//! From one table come the checked values, the names of environment variables and flags, the known keys, the reference page
//! and the JSON schema, so they cannot differ.

use std::path::PathBuf;

pub use tidegate_wire::tls_version::TlsVersion;

use crate::resolve::Resolver;

/// What each listener that can have TLS says of it: the files, all or none, and the oldest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The certificate, and after it those up to its authority.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// The authorities of clients' certificates.
    pub client_ca: Option<PathBuf>,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
}

impl TlsSettings {
    /// The values of the four settings with these paths.
    #[must_use]
    pub fn resolve(
        resolver: &mut Resolver<'_>,
        [certificate, key, client_ca, min_version]: [&'static str; 4],
    ) -> Self {
        let [certificate, key, client_ca] =
            [certificate, key, client_ca].map(|path| resolver.value(path, "", &()));
        Self { certificate, key, client_ca, min_version: resolver.value(min_version, "1.2", &()) }
    }

    /// The files, in the order of the table.
    #[must_use]
    pub fn files(&self) -> [&Option<PathBuf>; 3] {
        [&self.certificate, &self.key, &self.client_ca]
    }
}

/// Declares the table of a program's settings: from its rows come `Settings`, with a struct for each group, `TABLE` and `GROUPS`.
///
/// A row is `name: Type = "default", range;` under its documentation. In a group, `tls { ... }` stands for the settings of a listener's TLS; what follows them is in the braces.
#[macro_export]
macro_rules! settings {
    (
        { $($(#[doc = $top_doc:literal])+ $top:ident: $Top:ty = $top_default:literal, $top_range:expr;)+ }
        $(
            $(#[doc = $group_doc:literal])+
            $group:ident: $Group:ident {
                $($(#[doc = $doc:literal])+ $field:ident: $Type:ty = $default:literal, $range:expr;)+
            }
            $($tls:ident {
                $($(#[doc = $doc_2:literal])+ $field_2:ident: $Type_2:ty = $default_2:literal, $range_2:expr;)*
            })?
        )+
    ) => {
        /// Every setting, checked.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $($(#[doc = $top_doc])+ pub $top: $Top,)+
            $($(#[doc = $group_doc])+ pub $group: $Group,)+
        }

        $(
            $(#[doc = $group_doc])+
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $Group {
                $($(#[doc = $doc])+ pub $field: $Type,)+
                $(
                    /// The listener's TLS.
                    pub $tls: $crate::table::TlsSettings,
                    $($(#[doc = $doc_2])+ pub $field_2: $Type_2,)*
                )?
            }
        )+

        /// All settings, in the order of the reference page.
        pub static TABLE: &[$crate::setting::Setting] = &[
            $($crate::settings!(@row $Top, stringify!($top), concat!($($top_doc),+), $top_default, $top_range),)+
            $(
                $($crate::settings!(
                    @row $Type, concat!(stringify!($group), ".", stringify!($field)), concat!($($doc),+), $default, $range
                ),)+
                $(
                    $crate::settings!(
                        @file concat!(stringify!($group), ".", stringify!($tls), "_certificate"),
                        " PEM file with the certificate that this listener shows, followed by those up to its authority. Clients must then speak TLS. Read again on SIGHUP and when it changes."
                    ),
                    $crate::settings!(
                        @file concat!(stringify!($group), ".", stringify!($tls), "_key"),
                        " PEM file with the private key of `tls_certificate`, not encrypted."
                    ),
                    $crate::settings!(
                        @file concat!(stringify!($group), ".", stringify!($tls), "_client_ca"),
                        " PEM file with authorities. Each client then has to show a certificate that one of them has signed (mTLS). It opens the listener and gives no right beyond that."
                    ),
                    $crate::settings!(
                        @row $crate::table::TlsVersion, concat!(stringify!($group), ".", stringify!($tls), "_min_version"),
                        " Oldest version of TLS that clients may speak. With `\"1.3\"`, a client that speaks TLS 1.2 at most is refused in the handshake.",
                        "1.2", ()
                    ),
                    $($crate::settings!(
                        @row $Type_2, concat!(stringify!($group), ".", stringify!($field_2)), concat!($($doc_2),+),
                        $default_2, $range_2
                    ),)*
                )?
            )+
        ];

        /// The tables of the file that hold settings, with what they are about.
        pub static GROUPS: &[(&str, &str)] = &[$((stringify!($group), concat!($($group_doc),+)),)+];

        impl Settings {
            /// The value of every setting, from the highest layer that has it.
            #[must_use]
            pub fn resolve(resolver: &mut $crate::resolve::Resolver<'_>) -> Self {
                Self {
                    $($top: resolver.value(stringify!($top), $top_default, &$top_range),)+
                    $($group: $Group {
                        $($field: resolver.value(
                            concat!(stringify!($group), ".", stringify!($field)), $default, &$range
                        ),)+
                        $(
                            $tls: $crate::table::TlsSettings::resolve(resolver, [
                                concat!(stringify!($group), ".", stringify!($tls), "_certificate"),
                                concat!(stringify!($group), ".", stringify!($tls), "_key"),
                                concat!(stringify!($group), ".", stringify!($tls), "_client_ca"),
                                concat!(stringify!($group), ".", stringify!($tls), "_min_version"),
                            ]),
                            $($field_2: resolver.value(
                                concat!(stringify!($group), ".", stringify!($field_2)), $default_2, &$range_2
                            ),)*
                        )?
                    },)+
                }
            }

            /// Path and value of every setting, secrets redacted, in the table's order.
            #[must_use]
            pub fn show(&self) -> Vec<(&'static str, String)> {
                let mut shown = Vec::with_capacity(TABLE.len());
                $(shown.push($crate::value::Value::show(&self.$top));)+
                $(
                    $(shown.push($crate::value::Value::show(&self.$group.$field));)+
                    $(
                        shown.extend(self.$group.$tls.files().map($crate::value::Value::show));
                        shown.push($crate::value::Value::show(&self.$group.$tls.min_version));
                        $(shown.push($crate::value::Value::show(&self.$group.$field_2));)*
                    )?
                )+
                TABLE.iter().map(|setting| setting.path).zip(shown).collect()
            }

            /// The settings that differ, with both values: `log.level info -> debug`. Of secrets, that they do.
            #[must_use]
            pub fn differences(&self, other: &Self) -> Vec<String> {
                let shown = |settings: &Self, path: &str| {
                    let found = settings.show().into_iter().find(|(shown, _)| *shown == path);
                    found.map(|(_, value)| value).unwrap_or_default()
                };
                let differing = self.differing(other).into_iter();
                differing.map(|path| format!("{path} {} -> {}", shown(self, path), shown(other, path))).collect()
            }

            fn differing(&self, other: &Self) -> Vec<&'static str> {
                let mut differs = Vec::with_capacity(TABLE.len());
                $(differs.push(self.$top != other.$top);)+
                $(
                    $(differs.push(self.$group.$field != other.$group.$field);)+
                    $(
                        let files = self.$group.$tls.files().into_iter().zip(other.$group.$tls.files());
                        differs.extend(files.map(|(own, other)| own != other));
                        differs.push(self.$group.$tls.min_version != other.$group.$tls.min_version);
                        $(differs.push(self.$group.$field_2 != other.$group.$field_2);)*
                    )?
                )+
                let paths = TABLE.iter().map(|setting| setting.path).zip(differs);
                paths.filter_map(|(path, differs)| differs.then_some(path)).collect()
            }
        }
    };
    (@file $path:expr, $doc:expr) => { $crate::settings!(@row ::std::option::Option<::std::path::PathBuf>, $path, $doc, "", ()) };
    (@row $Type:ty, $path:expr, $doc:expr, $default:expr, $range:expr) => {
        $crate::setting::Setting {
            path: $path,
            doc: $doc,
            default: $default,
            flag: <$Type as $crate::value::Value>::FLAG,
            types: <$Type as $crate::value::Value>::TYPES,
            accepted: || <$Type as $crate::value::Value>::accepted(&$range),
            schema: || <$Type as $crate::value::Value>::schema(&$range),
        }
    };
}
