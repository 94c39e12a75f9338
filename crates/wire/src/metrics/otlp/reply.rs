//! The reply to a request: all of it was kept, or why nothing was.

use prost::Message;
use serde_json::json;

use super::ExportCounts;

#[derive(Clone, PartialEq, Message)]
struct Exported {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_data_points: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// `google.rpc.Status`
#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

/// `ExportMetricsServiceResponse` in protobuf.
#[must_use]
pub fn exported(counts: &ExportCounts) -> Vec<u8> {
    let partial_success = counts.is_partial().then(|| PartialSuccess {
        rejected_data_points: i64::try_from(counts.left_out()).unwrap_or(i64::MAX),
        error_message: counts.reason(),
    });
    Exported { partial_success }.encode_to_vec()
}

/// The same in JSON.
#[must_use]
pub fn exported_json(counts: &ExportCounts) -> Vec<u8> {
    let reply = if counts.is_partial() {
        // A number of 64 bits is a text there.
        json!({ "partialSuccess": {
            "rejectedDataPoints": counts.left_out().to_string(),
            "errorMessage": counts.reason(),
        }})
    } else {
        json!({})
    };
    reply.to_string().into_bytes()
}

/// Why a request was refused, in protobuf: `code` is gRPC's.
#[must_use]
pub fn refused(code: u16, message: &str) -> Vec<u8> {
    RpcStatus { code: code.into(), message: message.to_owned() }.encode_to_vec()
}

/// The same in JSON.
#[must_use]
pub fn refused_json(code: u16, message: &str) -> Vec<u8> {
    json!({ "code": code, "message": message }).to_string().into_bytes()
}
