//! Parsers and encoders: bytes in, values out, no input and output of its own.

pub mod http1;
