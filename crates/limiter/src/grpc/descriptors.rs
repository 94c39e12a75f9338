//! The services and messages of the gRPC listener, as reflection describes them.
//!
//! Written as tables in the files that the originals stand in, with the fields that are read or written
//! here. The messages themselves are derived in `wire::rls` and beside their handlers; a test calls the
//! service with messages that a client made from these tables, so the two cannot differ unseen.
//!
//! Reference: google/protobuf/descriptor.proto.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, MethodDescriptorProto, OneofDescriptorProto, ServiceDescriptorProto,
};

/// Files by name, each encoded, with what its symbols need.
#[derive(Debug)]
pub(super) struct Descriptors {
    files: Vec<FileDescriptorProto>,
    /// The place of the file that defines each symbol.
    symbols: BTreeMap<String, usize>,
    services: Vec<String>,
}

impl Default for Descriptors {
    fn default() -> Self {
        let files = vec![rls(), ratelimit(), unit(), duration(), wrappers(), health(), reflection()];
        let (mut symbols, mut services) = (BTreeMap::new(), Vec::new());
        for (index, file) in files.iter().enumerate() {
            for message in &file.message_type {
                add_message(&mut symbols, file.package(), message, index);
            }
            for name in file.enum_type.iter().map(EnumDescriptorProto::name) {
                symbols.insert(format!("{}.{name}", file.package()), index);
            }
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                for method in &service.method {
                    symbols.insert(format!("{name}.{}", method.name()), index);
                }
                services.push(name.clone());
                symbols.insert(name, index);
            }
        }
        Self { files, symbols, services }
    }
}

fn add_message(symbols: &mut BTreeMap<String, usize>, scope: &str, message: &DescriptorProto, index: usize) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        add_message(symbols, &name, nested, index);
    }
    for nested in &message.enum_type {
        symbols.insert(format!("{name}.{}", nested.name()), index);
    }
    symbols.insert(name, index);
}

impl Descriptors {
    /// The names of all services.
    pub(super) fn services(&self) -> impl Iterator<Item = &str> {
        self.services.iter().map(String::as_str)
    }

    /// The file called `name` and, after it, those that it imports.
    pub(super) fn file(&self, name: &str) -> Option<Vec<Vec<u8>>> {
        let mut needed = vec![self.files.iter().find(|file| file.name() == name)?];
        let mut at = 0;
        while let Some(file) = needed.get(at) {
            let imports = file.dependency.iter();
            let imports = imports.filter_map(|name| self.files.iter().find(|file| file.name() == name));
            let new: Vec<_> =
                imports.filter(|file| !needed.iter().any(|it| it.name() == file.name())).collect();
            needed.extend(new);
            at += 1;
        }
        Some(needed.into_iter().map(Message::encode_to_vec).collect())
    }

    /// As [`Descriptors::file`], by the full name of something that the file defines.
    pub(super) fn file_of(&self, symbol: &str) -> Option<Vec<Vec<u8>>> {
        self.file(self.files[*self.symbols.get(symbol)?].name())
    }
}

/// A field: its name, its number, its type.
type FieldDescription = (&'static str, i32, FieldKind);

#[derive(Clone, Copy)]
enum FieldKind {
    Plain(Type),
    Message(&'static str),
    Enum(&'static str),
    Messages(&'static str),
    ListOf(Type),
    /// A field of the message's only `oneof`.
    OneOf(Type),
    OneOfMessages(&'static str),
}

fn field((name, number, kind): FieldDescription) -> FieldDescriptorProto {
    let (label, of, type_name, one_of) = match kind {
        FieldKind::Plain(of) => (Label::Optional, of, None, None),
        FieldKind::ListOf(of) => (Label::Repeated, of, None, None),
        FieldKind::OneOf(of) => (Label::Optional, of, None, Some(0)),
        FieldKind::Message(name) => (Label::Optional, Type::Message, Some(name), None),
        FieldKind::OneOfMessages(name) => (Label::Optional, Type::Message, Some(name), Some(0)),
        FieldKind::Messages(name) => (Label::Repeated, Type::Message, Some(name), None),
        FieldKind::Enum(name) => (Label::Optional, Type::Enum, Some(name), None),
    };
    FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(label.into()),
        r#type: Some(of.into()),
        type_name: type_name.map(str::to_owned),
        oneof_index: one_of,
        ..FieldDescriptorProto::default()
    }
}

fn message(name: &str, fields: &[FieldDescription]) -> DescriptorProto {
    let one_of =
        fields.iter().any(|(_, _, kind)| matches!(kind, FieldKind::OneOf(_) | FieldKind::OneOfMessages(_)));
    let group = OneofDescriptorProto { name: Some("one_of".to_owned()), options: None };
    DescriptorProto {
        name: Some(name.to_owned()),
        field: fields.iter().copied().map(field).collect(),
        oneof_decl: if one_of { vec![group] } else { Vec::new() },
        ..DescriptorProto::default()
    }
}

/// An enum whose numbers count from 0.
fn numbered(name: &str, values: &[&str]) -> EnumDescriptorProto {
    let value = |(name, number): (&&str, i32)| EnumValueDescriptorProto {
        name: Some((*name).to_owned()),
        number: Some(number),
        options: None,
    };
    EnumDescriptorProto {
        name: Some(name.to_owned()),
        value: values.iter().zip(0..).map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}

/// A method: its name, what it takes and gives, whether each is a stream.
fn method(
    name: &str,
    (input, inputs): (&str, bool),
    (output, outputs): (&str, bool),
) -> MethodDescriptorProto {
    MethodDescriptorProto {
        name: Some(name.to_owned()),
        input_type: Some(input.to_owned()),
        output_type: Some(output.to_owned()),
        client_streaming: Some(inputs),
        server_streaming: Some(outputs),
        options: None,
    }
}

fn service(name: &str, methods: Vec<MethodDescriptorProto>) -> ServiceDescriptorProto {
    ServiceDescriptorProto { name: Some(name.to_owned()), method: methods, options: None }
}

fn file(name: &str, package: &str, imports: &[&str], messages: Vec<DescriptorProto>) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        package: Some(package.to_owned()),
        dependency: imports.iter().map(|import| (*import).to_owned()).collect(),
        message_type: messages,
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    }
}

const UNITS: [&str; 8] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];
const RATELIMIT: &str = "envoy/extensions/common/ratelimit/v3/ratelimit.proto";
const UNIT: &str = "envoy/type/v3/ratelimit_unit.proto";
const DURATION: &str = "google/protobuf/duration.proto";
const WRAPPERS: &str = "google/protobuf/wrappers.proto";

fn rls() -> FileDescriptorProto {
    let descriptor = FieldKind::Messages(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor");
    let request = message(
        "RateLimitRequest",
        &[
            ("domain", 1, FieldKind::Plain(Type::String)),
            ("descriptors", 2, descriptor),
            ("hits_addend", 3, FieldKind::Plain(Type::Uint32)),
        ],
    );
    let code = FieldKind::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.Code");
    let limit = DescriptorProto {
        enum_type: vec![numbered("Unit", &UNITS)],
        ..message(
            "RateLimit",
            &[
                ("requests_per_unit", 1, FieldKind::Plain(Type::Uint32)),
                ("unit", 2, FieldKind::Enum(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.Unit")),
                ("name", 3, FieldKind::Plain(Type::String)),
            ],
        )
    };
    let status = message(
        "DescriptorStatus",
        &[
            ("code", 1, code),
            (
                "current_limit",
                2,
                FieldKind::Message(".envoy.service.ratelimit.v3.RateLimitResponse.RateLimit"),
            ),
            ("limit_remaining", 3, FieldKind::Plain(Type::Uint32)),
            ("duration_until_reset", 4, FieldKind::Message(".google.protobuf.Duration")),
        ],
    );
    let statuses = FieldKind::Messages(".envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus");
    let response = DescriptorProto {
        nested_type: vec![limit, status],
        enum_type: vec![numbered("Code", &["UNKNOWN", "OK", "OVER_LIMIT"])],
        ..message("RateLimitResponse", &[("overall_code", 1, code), ("statuses", 2, statuses)])
    };
    let call = method(
        "ShouldRateLimit",
        (".envoy.service.ratelimit.v3.RateLimitRequest", false),
        (".envoy.service.ratelimit.v3.RateLimitResponse", false),
    );
    let messages = vec![request, response];
    let name = "envoy/service/ratelimit/v3/rls.proto";
    FileDescriptorProto {
        service: vec![service("RateLimitService", vec![call])],
        ..file(name, "envoy.service.ratelimit.v3", &[RATELIMIT, DURATION], messages)
    }
}

fn ratelimit() -> FileDescriptorProto {
    let entry = message(
        "Entry",
        &[("key", 1, FieldKind::Plain(Type::String)), ("value", 2, FieldKind::Plain(Type::String))],
    );
    let own = message(
        "RateLimitOverride",
        &[
            ("requests_per_unit", 1, FieldKind::Plain(Type::Uint32)),
            ("unit", 2, FieldKind::Enum(".envoy.type.v3.RateLimitUnit")),
        ],
    );
    let descriptor = DescriptorProto {
        nested_type: vec![entry, own],
        ..message(
            "RateLimitDescriptor",
            &[
                (
                    "entries",
                    1,
                    FieldKind::Messages(".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry"),
                ),
                (
                    "limit",
                    2,
                    FieldKind::Message(
                        ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride",
                    ),
                ),
                ("hits_addend", 3, FieldKind::Message(".google.protobuf.UInt64Value")),
                ("is_negative_hits", 4, FieldKind::Plain(Type::Bool)),
            ],
        )
    };
    file(RATELIMIT, "envoy.extensions.common.ratelimit.v3", &[UNIT, WRAPPERS], vec![descriptor])
}

fn unit() -> FileDescriptorProto {
    let enum_type = vec![numbered("RateLimitUnit", &UNITS)];
    FileDescriptorProto { enum_type, ..file(UNIT, "envoy.type.v3", &[], Vec::new()) }
}

fn duration() -> FileDescriptorProto {
    let fields = [("seconds", 1, FieldKind::Plain(Type::Int64)), ("nanos", 2, FieldKind::Plain(Type::Int32))];
    file(DURATION, "google.protobuf", &[], vec![message("Duration", &fields)])
}

fn wrappers() -> FileDescriptorProto {
    let value = message("UInt64Value", &[("value", 1, FieldKind::Plain(Type::Uint64))]);
    file(WRAPPERS, "google.protobuf", &[], vec![value])
}

fn health() -> FileDescriptorProto {
    let status = FieldKind::Enum(".grpc.health.v1.HealthCheckResponse.ServingStatus");
    let statuses = numbered("ServingStatus", &["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"]);
    let request = message("HealthCheckRequest", &[("service", 1, FieldKind::Plain(Type::String))]);
    let response = DescriptorProto {
        enum_type: vec![statuses],
        ..message("HealthCheckResponse", &[("status", 1, status)])
    };
    let call = |name, stream| {
        let (takes, gives) = (".grpc.health.v1.HealthCheckRequest", ".grpc.health.v1.HealthCheckResponse");
        method(name, (takes, false), (gives, stream))
    };
    FileDescriptorProto {
        service: vec![service("Health", vec![call("Check", false), call("Watch", true)])],
        ..file("grpc/health/v1/health.proto", "grpc.health.v1", &[], vec![request, response])
    }
}

/// Version v1; v1alpha is served as well, and has the same messages.
fn reflection() -> FileDescriptorProto {
    const REQUEST: &str = ".grpc.reflection.v1.ServerReflectionRequest";
    const RESPONSE: &str = ".grpc.reflection.v1.ServerReflectionResponse";
    let text = FieldKind::Plain(Type::String);
    let messages = vec![
        message(
            "ServerReflectionRequest",
            &[
                ("host", 1, text),
                ("file_by_filename", 3, FieldKind::OneOf(Type::String)),
                ("file_containing_symbol", 4, FieldKind::OneOf(Type::String)),
                (
                    "file_containing_extension",
                    5,
                    FieldKind::OneOfMessages(".grpc.reflection.v1.ExtensionRequest"),
                ),
                ("all_extension_numbers_of_type", 6, FieldKind::OneOf(Type::String)),
                ("list_services", 7, FieldKind::OneOf(Type::String)),
            ],
        ),
        message(
            "ExtensionRequest",
            &[("containing_type", 1, text), ("extension_number", 2, FieldKind::Plain(Type::Int32))],
        ),
        message(
            "ServerReflectionResponse",
            &[
                ("valid_host", 1, text),
                ("original_request", 2, FieldKind::Message(REQUEST)),
                (
                    "file_descriptor_response",
                    4,
                    FieldKind::OneOfMessages(".grpc.reflection.v1.FileDescriptorResponse"),
                ),
                (
                    "list_services_response",
                    6,
                    FieldKind::OneOfMessages(".grpc.reflection.v1.ListServiceResponse"),
                ),
                ("error_response", 7, FieldKind::OneOfMessages(".grpc.reflection.v1.ErrorResponse")),
            ],
        ),
        message("FileDescriptorResponse", &[("file_descriptor_proto", 1, FieldKind::ListOf(Type::Bytes))]),
        message(
            "ListServiceResponse",
            &[("service", 1, FieldKind::Messages(".grpc.reflection.v1.ServiceResponse"))],
        ),
        message("ServiceResponse", &[("name", 1, text)]),
        message(
            "ErrorResponse",
            &[("error_code", 1, FieldKind::Plain(Type::Int32)), ("error_message", 2, text)],
        ),
    ];
    let call = method("ServerReflectionInfo", (REQUEST, true), (RESPONSE, true));
    FileDescriptorProto {
        service: vec![service("ServerReflection", vec![call])],
        ..file("grpc/reflection/v1/reflection.proto", "grpc.reflection.v1", &[], messages)
    }
}
