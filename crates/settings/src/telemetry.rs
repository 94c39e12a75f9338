//! The types of the settings for a collector, and the variables by which OpenTelemetry's own programs are told the same.
//!
//! What a variable says is put into the setting's words once, when the environment is read; from there on it is checked
//! like any other value, behind `TIDEGATE_...` and before the file.

use std::collections::BTreeMap;
use std::fmt;

use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde_json::{Value as Json, json};

use crate::list::Item;
use crate::value::{MAX_TEXT, TomlType, Value};

/// OpenTelemetry's variables, and the setting that each stands for.
const STANDARD: [(&str, &str); 9] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "telemetry.endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "telemetry.headers"),
    ("OTEL_SERVICE_NAME", "telemetry.service_name"),
    ("OTEL_RESOURCE_ATTRIBUTES", "telemetry.resource"),
    (TRACES_EXPORTER, "telemetry.traces"),
    (METRICS_EXPORTER, "telemetry.metrics"),
    (SAMPLER, "telemetry.sample_ratio"),
    ("OTEL_BSP_SCHEDULE_DELAY", "telemetry.span_delay"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "telemetry.metrics_interval"),
];
const TRACES_EXPORTER: &str = "OTEL_TRACES_EXPORTER";
const METRICS_EXPORTER: &str = "OTEL_METRICS_EXPORTER";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
/// What is read beside these.
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const DISABLED: &str = "OTEL_SDK_DISABLED";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";

/// What is spoken.
const SPOKEN: &str = "http/protobuf";

/// Most header fields of an export.
const MAX_FIELDS: usize = 16;
/// Longest name of a service, in bytes.
const MAX_NAME: usize = 255;

/// Fields that address or frame a message.
pub const FRAMING_FIELDS: [HeaderName; 6] = [
    http::header::CONNECTION,
    http::header::CONTENT_LENGTH,
    http::header::HOST,
    http::header::TE,
    http::header::TRANSFER_ENCODING,
    http::header::UPGRADE,
];

/// What a list of pairs has in another form.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b',').add(b'%').add(b'"').add(b'\\');

/// Variables, `None` where they are not UTF-8.
type Variables = BTreeMap<String, Option<String>>;

/// The variable of OpenTelemetry's that stands for a setting, if there is one.
pub(crate) fn standard_variable(path: &str) -> Option<&'static str> {
    STANDARD.iter().find(|(_, setting)| *setting == path).map(|(variable, _)| *variable)
}

/// What a variable accepts, where that is not in the setting's words.
pub(crate) fn accepted(variable: &str) -> Option<&'static str> {
    match variable {
        TRACES_EXPORTER | METRICS_EXPORTER => Some("otlp, none"),
        SAMPLER => Some(
            "parentbased_always_on, parentbased_always_off, or parentbased_traceidratio with a number from 0 to 1 in OTEL_TRACES_SAMPLER_ARG",
        ),
        _ => None,
    }
}

/// Whether a variable says something here.
pub(crate) fn is_standard(variable: &str) -> bool {
    let beside = [SAMPLER_ARGUMENT, DISABLED, PROTOCOL];
    beside.contains(&variable) || STANDARD.iter().any(|(standard, _)| *standard == variable)
}

/// Puts what OpenTelemetry's variables say into the words of the settings. A value without such a word stays as it is,
/// and its setting refuses it.
pub(crate) fn in_our_words(variables: &mut Variables) {
    let argument = variables.remove(SAMPLER_ARGUMENT).flatten();
    let is_disabled = variables.remove(DISABLED).flatten().is_some_and(|it| it.eq_ignore_ascii_case("true"));
    for (variable, setting) in STANDARD {
        let Some(Some(said)) = variables.get_mut(variable) else { continue };
        let ours = match (setting, said.as_str()) {
            ("telemetry.traces" | "telemetry.metrics", "otlp") => "true".to_owned(),
            ("telemetry.traces" | "telemetry.metrics", "none") => "false".to_owned(),
            ("telemetry.sample_ratio", "parentbased_always_on") => "1".to_owned(),
            ("telemetry.sample_ratio", "parentbased_always_off") => "0".to_owned(),
            ("telemetry.sample_ratio", "parentbased_traceidratio") => {
                argument.clone().unwrap_or_else(|| "1".to_owned())
            }
            ("telemetry.span_delay" | "telemetry.metrics_interval", millis) => format!("{millis}ms"),
            _ => continue,
        };
        *said = ours;
    }
    if is_disabled {
        variables.insert(STANDARD[0].0.to_owned(), Some(String::new()));
    }
}

/// What these variables ask for and do not get, although they are no mistake.
pub(crate) fn warning(variables: &Variables) -> Option<String> {
    let asked = variables.get(PROTOCOL)?.as_deref().filter(|asked| *asked != SPOKEN)?;
    let shown = asked.escape_debug();
    Some(format!(
        "environment {PROTOCOL} is {shown}: spans and metrics are sent as {SPOKEN}, which collectors take on port 4318"
    ))
}

/// `name=value`, with `%20` for what cannot stand in a value.
fn pair(text: &str) -> Option<(&str, String)> {
    let (name, value) = text.split_once('=')?;
    let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
    Some((name.trim(), value.into_owned()))
}

/// Part of something, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    bits: u64,
}

impl Ratio {
    /// As a number.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from_bits(self.bits)
    }
}

impl Value for Ratio {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::Float, TomlType::Integer];

    fn parse(text: &str, (): &()) -> Option<Self> {
        let number: f64 = text.parse().ok()?;
        // No "-0".
        (0.0..=1.0).contains(&number).then(|| Self { bits: number.abs().to_bits() })
    }

    fn accepted((): &()) -> String {
        "a number from 0 to 1".to_owned()
    }

    fn schema((): &()) -> Json {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }

    fn show(&self) -> String {
        self.value().to_string()
    }
}

/// The name of a service, which may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName(pub String);

impl Value for ServiceName {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];

    fn parse(text: &str, (): &()) -> Option<Self> {
        let is_name = !text.is_empty() && text.len() <= MAX_NAME && !text.chars().any(char::is_control);
        is_name.then(|| Self(text.to_owned()))
    }

    fn accepted((): &()) -> String {
        format!("a text of up to {MAX_NAME} bytes")
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "maxLength": MAX_NAME })
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// Something that is said of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceAttribute {
    /// What it is called.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl fmt::Display for ResourceAttribute {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, utf8_percent_encode(&self.value, ENCODED))
    }
}

impl Item for ResourceAttribute {
    const ACCEPTED: &'static str =
        "name=value with %20 for a blank, as in \"deployment.environment.name=production\"";

    fn parse(text: &str) -> Option<Self> {
        let (name, value) = pair(text)?;
        let is_good = !name.is_empty() && !name.contains('%') && !value.chars().any(char::is_control);
        is_good.then(|| Self { name: name.to_owned(), value })
    }
}

/// Header fields of each request to a collector. They may hold a secret, so nothing shows them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExportFields(Vec<(HeaderName, HeaderValue)>);

impl ExportFields {
    /// Name and value of each.
    #[must_use]
    pub fn fields(&self) -> &[(HeaderName, HeaderValue)] {
        &self.0
    }
}

impl fmt::Debug for ExportFields {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(redacted)")
    }
}

impl Value for ExportFields {
    type Range = ();
    const TYPES: &'static [TomlType] = &[TomlType::String];
    const SECRET: bool = true;
    const FLAG: bool = false;

    fn parse(text: &str, (): &()) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let stated = text.split(',').map(str::trim).filter(|field| !field.is_empty());
        let fields = stated.map(|field| {
            let (name, value) = pair(field)?;
            let name: HeaderName = name.parse().ok()?;
            let mut value = HeaderValue::try_from(value).ok()?;
            value.set_sensitive(true);
            let is_free = name != http::header::CONTENT_TYPE && !FRAMING_FIELDS.contains(&name);
            is_free.then_some((name, value))
        });
        let fields: Vec<_> = fields.collect::<Option<_>>()?;
        (fields.len() <= MAX_FIELDS).then_some(Self(fields))
    }

    fn accepted((): &()) -> String {
        format!(
            "up to {MAX_FIELDS} header fields as name=value, with commas between them and %2C for a comma in a value"
        )
    }

    fn schema((): &()) -> Json {
        json!({ "type": "string", "maxLength": MAX_TEXT, "writeOnly": true })
    }

    fn show(&self) -> String {
        if self.0.is_empty() { "(none)".to_owned() } else { "(redacted)".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        let mut variables =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned()))).collect();
        in_our_words(&mut variables);
        variables
    }

    #[test]
    fn a_ratio_is_a_number_from_0_to_1_and_nothing_else() {
        for (text, shown) in [
            ("0", Some("0")),
            ("-0", Some("0")),
            ("1.0", Some("1")),
            ("0.25", Some("0.25")),
            ("1e-7", Some("0.0000001")),
        ] {
            assert_eq!(Ratio::parse(text, &()).map(|ratio| ratio.show()).as_deref(), shown, "{text}");
        }
        for wrong in ["", "nan", "inf", "-0.1", "1.1", "half", "50%"] {
            assert_eq!(Ratio::parse(wrong, &()), None, "{wrong}");
        }
    }

    #[test]
    fn fault_52_header_fields_are_read_and_shown_nowhere() {
        let parse = |text: &str| <ExportFields as Value>::parse(text, &());
        let fields = parse("Authorization=Bearer%20canary, x-tenant=a%2Cb,").unwrap();
        let read: Vec<_> =
            fields.fields().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(read, [("authorization", "Bearer canary"), ("x-tenant", "a,b")]);
        assert!(!format!("{fields:?}{}", fields.show()).contains("canary"));
        assert_eq!(parse("").unwrap().show(), "(none)");
        for wrong in ["canary", "a b=c", "host=a", "content-type=a", "transfer-encoding=chunked", "a=%0d%0a"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(parse(&"a=b,".repeat(MAX_FIELDS + 1)), None);
    }

    #[test]
    fn what_is_said_of_the_process_is_shown_as_it_is_read() {
        let parse = |text: &str| <Vec<ResourceAttribute> as Value>::parse(text, &());
        let read = parse("deployment.environment.name=a%20b, k=x=y").unwrap();
        assert_eq!((read[0].value.as_str(), read[1].value.as_str()), ("a b", "x=y"));
        assert_eq!(parse(&read.show()), Some(read));
        assert_eq!(parse("=b").or(parse("a")).or(parse("a=%00")), None);
    }

    #[test]
    fn the_variables_of_opentelemetry_are_in_our_words() {
        let said = variables(&[
            ("OTEL_TRACES_EXPORTER", "none"),
            ("OTEL_METRICS_EXPORTER", "console"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "60000"),
        ]);
        for (name, value) in [
            ("OTEL_TRACES_EXPORTER", "false"),
            ("OTEL_METRICS_EXPORTER", "console"),
            ("OTEL_TRACES_SAMPLER", "0.25"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "60000ms"),
        ] {
            assert_eq!(said[name].as_deref(), Some(value), "{name}");
        }
        let not_ours = variables(&[("OTEL_TRACES_SAMPLER", "always_on"), ("OTEL_TRACES_SAMPLER_ARG", "0.5")]);
        assert_eq!(
            not_ours["OTEL_TRACES_SAMPLER"].as_deref(),
            Some("always_on"),
            "it is refused, not obeyed by half"
        );
        let off =
            variables(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"), ("OTEL_SDK_DISABLED", "TRUE")]);
        assert_eq!(off["OTEL_EXPORTER_OTLP_ENDPOINT"].as_deref(), Some(""));
        assert!(warning(&variables(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")])).unwrap().contains("4318"));
        assert_eq!(warning(&variables(&[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")])), None);
        assert!(
            STANDARD
                .iter()
                .all(|(name, setting)| is_standard(name) && standard_variable(setting) == Some(*name))
        );
    }
}
