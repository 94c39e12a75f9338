//! HTTP/2 by prior knowledge on a connection that may also speak HTTP/1.1 (RFC 9113, 3.3).

/// What a client that speaks HTTP/2 says first.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Whether these first bytes of a connection may still become a preface. No request of HTTP/1.1 is held
/// up by that: they all differ from it in the first four bytes.
pub(super) fn may_become_preface(first: &[u8]) -> bool {
    PREFACE.starts_with(first)
}
