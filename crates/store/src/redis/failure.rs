//! Errors of Redis: whether the charge was made all the same, and whether to try again.
//!
//! | reply | was it charged? | what is done |
//! |---|---|---|
//! | `NOSCRIPT` | no | load the script, repeat once |
//! | `READONLY`, `MASTERDOWN`, `NOREPLICAS`, `LOADING`, `CLUSTERDOWN`, `MOVED`, `ASK`, `TRYAGAIN` | no | drop the connection, resolve again, repeat once |
//! | the script's own error, `WRONGTYPE`: a key holds what no version of it wrote | no: the script writes only at its end | the batch is taken apart ([`crate::batch`]) |
//! | `OOM`, `MISCONF`, `BUSY`, any other reply | no: the script writes only at its end | an error, never a denial |
//! | connection lost, no answer in time | unknown | an error, never repeated |

use redis::RedisError;

use crate::batch::Failure;

/// Classifies the error of a command that was sent.
pub(super) fn classify(error: &RedisError) -> Failure {
    if error.is_timeout() {
        return Failure::Timeout;
    }
    let Some(code) = error.code() else { return Failure::Lost(error.to_string()) };
    match code {
        "NOSCRIPT" => Failure::NoScript,
        "READONLY" | "MASTERDOWN" | "NOREPLICAS" | "LOADING" | "CLUSTERDOWN" | "MOVED" | "ASK"
        | "TRYAGAIN" => Failure::Elsewhere(error.to_string()),
        // Which script's error it is, Redis adds to the text.
        "ERR" | "WRONGTYPE" if error.detail().is_some_and(|detail| detail.contains("script: ")) => {
            Failure::Unreadable(error.to_string())
        }
        _ => Failure::Refused(error.to_string()),
    }
}
