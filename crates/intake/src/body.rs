//! A request's body without its compression, within a bound on what comes out (faults 29, 76).
//!
//! The bound is checked while bytes come out, so that a gigabyte of zeros in a megabyte of gzip takes no more memory
//! than a good body. Bytes behind the end of the compressed ones are refused: they would be lost silently.

use std::io::{self, Read};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use http::{HeaderMap, header};
use thiserror::Error;

/// The largest window of zstd that is decoded, as a power of two: 8 MiB, which RFC 9659 bounds it to over HTTP.
const MAX_WINDOW_LOG: u32 = 23;

/// Why a body is not taken.
#[derive(Debug, Error)]
pub(crate) enum EncodingError {
    /// It is compressed in a way that is not known here.
    #[error("the content-encoding must be gzip, zstd, snappy or identity")]
    Unknown,
    /// It is not what its encoding says, or it is cut.
    #[error("the body is not valid {0}, or it is cut")]
    Malformed(&'static str),
    /// More comes out than a body may have.
    #[error("the body is larger than {0} bytes without its compression")]
    TooLarge(usize),
}

/// How a body is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Zstd,
    /// A block of snappy, without frames.
    Snappy,
}

impl Encoding {
    /// What the request says of its body.
    pub(crate) fn of(fields: &HeaderMap) -> Result<Self, EncodingError> {
        let mut values = fields.get_all(header::CONTENT_ENCODING).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            let none = fields.get(header::CONTENT_ENCODING).is_none();
            return if none { Ok(Self::Identity) } else { Err(EncodingError::Unknown) };
        };
        match value.as_bytes().trim_ascii().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => Ok(Self::Identity),
            b"gzip" | b"x-gzip" => Ok(Self::Gzip),
            b"zstd" => Ok(Self::Zstd),
            b"snappy" => Ok(Self::Snappy),
            _ => Err(EncodingError::Unknown),
        }
    }

    /// The body's own bytes, at most `limit` of them.
    pub(crate) fn decode(self, body: Bytes, limit: usize) -> Result<Bytes, EncodingError> {
        let (name, decoded) = match self {
            Self::Identity => return Ok(body),
            Self::Gzip => ("gzip", read_bounded(MultiGzDecoder::new(&*body), limit)),
            Self::Zstd => ("zstd", decode_zstd(&body, limit)),
            Self::Snappy => return decode_snappy(&body, limit),
        };
        match decoded {
            Ok(bytes) if bytes.len() > limit => Err(EncodingError::TooLarge(limit)),
            Ok(bytes) => Ok(bytes.into()),
            Err(_) => Err(EncodingError::Malformed(name)),
        }
    }
}

/// A body of remote write whose request does not say how it is compressed: snappy, for which Prometheus takes it, or else
/// nothing. Bytes of one are not good as the other, but by chance in a message of a few bytes.
pub(crate) fn decode_unstated(body: Bytes, limit: usize) -> Result<Bytes, EncodingError> {
    match decode_snappy(&body, limit) {
        Err(EncodingError::Malformed(_)) => Ok(body),
        decoded => decoded,
    }
}

fn decode_zstd(body: &[u8], limit: usize) -> io::Result<Vec<u8>> {
    if body.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
    decoder.window_log_max(MAX_WINDOW_LOG)?;
    read_bounded(decoder, limit)
}

/// A block says how long it is without its compression, before anything is decoded.
fn decode_snappy(body: &[u8], limit: usize) -> Result<Bytes, EncodingError> {
    let malformed = |_| EncodingError::Malformed("snappy");
    let length = snap::raw::decompress_len(body).map_err(malformed)?;
    if length > limit {
        return Err(EncodingError::TooLarge(limit));
    }
    snap::raw::Decoder::new().decompress_vec(body).map(Bytes::from).map_err(malformed)
}

/// What comes out of `decoder`, and one byte more than `limit` at most.
fn read_bounded(decoder: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(encoding: Encoding, body: &[u8]) -> Result<Bytes, EncodingError> {
        encoding.decode(Bytes::copy_from_slice(body), LIMIT)
    }

    #[test]
    fn a_body_comes_out_as_it_went_in() {
        let body = b"{\"metrics\":[]}".repeat(1_000);
        assert_eq!(decode(Encoding::Gzip, &gzip(&body)).unwrap(), body);
        assert_eq!(decode(Encoding::Zstd, &zstd::encode_all(&*body, 3).unwrap()).unwrap(), body);
        let snappy = snap::raw::Encoder::new().compress_vec(&body).unwrap();
        assert_eq!(decode(Encoding::Snappy, &snappy).unwrap(), body);
        assert_eq!(decode(Encoding::Identity, &body).unwrap(), body);
    }

    #[test]
    fn fault_76_a_bomb_is_refused_at_the_bound() {
        let zeros = vec![0; LIMIT + 1];
        for (encoding, bomb) in
            [(Encoding::Gzip, gzip(&zeros)), (Encoding::Zstd, zstd::encode_all(&*zeros, 19).unwrap())]
        {
            assert!(bomb.len() < LIMIT / 100);
            assert!(matches!(decode(encoding, &bomb), Err(EncodingError::TooLarge(LIMIT))), "{encoding:?}");
        }
        let bomb = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
        assert!(matches!(decode(Encoding::Snappy, &bomb), Err(EncodingError::TooLarge(LIMIT))));
        let liar = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
        assert!(matches!(decode(Encoding::Snappy, &liar), Err(EncodingError::TooLarge(LIMIT))));
        assert_eq!(decode(Encoding::Gzip, &gzip(&zeros[..LIMIT])).unwrap().len(), LIMIT);
    }

    #[test]
    fn fault_29_a_cut_body_is_refused_wherever_it_is_cut() {
        let body = b"{\"metrics\":[{\"name\":\"a\",\"value\":1}]}";
        for (encoding, whole) in
            [(Encoding::Gzip, gzip(body)), (Encoding::Zstd, zstd::encode_all(&body[..], 3).unwrap())]
        {
            for end in 0..whole.len() {
                let cut = decode(encoding, &whole[..end]);
                assert!(matches!(cut, Err(EncodingError::Malformed(_))), "{encoding:?} cut after {end}");
            }
            let more = [whole.as_slice(), b"more"].concat();
            assert!(matches!(decode(encoding, &more), Err(EncodingError::Malformed(_))), "{encoding:?}");
        }
    }

    #[test]
    fn what_the_header_says_is_read_in_one_way() {
        let of = |values: &[&'static str]| {
            let mut fields = HeaderMap::new();
            for value in values {
                fields.append(header::CONTENT_ENCODING, http::HeaderValue::from_static(value));
            }
            Encoding::of(&fields).ok()
        };
        assert_eq!(of(&[]), Some(Encoding::Identity));
        assert_eq!(of(&["GZip"]), Some(Encoding::Gzip));
        assert_eq!(of(&["zstd"]), Some(Encoding::Zstd));
        assert_eq!(of(&["identity"]), Some(Encoding::Identity));
        for other in [&["br"][..], &["gzip, gzip"], &["gzip", "gzip"], &["deflate"]] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }
}
