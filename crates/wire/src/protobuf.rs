//! Reading protobuf's wire format field by field, without a copy.
//!
//! For messages of which most bytes are texts that go into lines: a decoder that builds the message first would
//! allocate for each of them. Unknown fields are handed out like others, and passed over by who asks. Groups, which
//! proto3 does not have, end the reading.

use thiserror::Error;

/// The bytes are no protobuf message, or they are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the body is no protobuf message of the expected type, or it is cut")]
pub struct Malformed;

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl<'a> FieldValue<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(Malformed) }
    }

    /// The text; `None`: its bytes are not UTF-8. Not every sender looks at what it is given.
    pub(super) fn text(self) -> Result<Option<&'a str>, Malformed> {
        Ok(std::str::from_utf8(self.bytes()?).ok())
    }

    pub(super) fn double(self) -> Result<f64, Malformed> {
        if let Self::Fixed64(bits) = self { Ok(f64::from_bits(bits)) } else { Err(Malformed) }
    }

    pub(super) fn unsigned(self) -> Result<u64, Malformed> {
        if let Self::Varint(number) = self { Ok(number) } else { Err(Malformed) }
    }

    pub(super) fn int64(self) -> Result<i64, Malformed> {
        self.unsigned().map(u64::cast_signed)
    }
}

/// The fields of a message, in the order of its bytes.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn field(&mut self) -> Result<(u64, FieldValue<'a>), Malformed> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => FieldValue::Varint(varint(&mut self.0)?),
            1 => FieldValue::Fixed64(u64::from_le_bytes(array(&mut self.0)?)),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).map_err(|_| Malformed)?;
                let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
                self.0 = rest;
                FieldValue::Bytes(bytes)
            }
            5 => FieldValue::Fixed32(u32::from_le_bytes(array(&mut self.0)?)),
            _ => return Err(Malformed),
        };
        Ok((key >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, FieldValue<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// The numbers of a packed field.
#[derive(Clone, Debug)]
pub(super) struct Packed<'a>(pub(super) &'a [u8]);

impl Iterator for Packed<'_> {
    type Item = Result<u64, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let number = varint(&mut self.0);
        if number.is_err() {
            self.0 = &[];
        }
        Some(number)
    }
}

/// Writes a message field by field.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    fn key(&mut self, field: u64, kind: u64) {
        self.varint(field << 3 | kind);
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn unsigned(&mut self, field: u64, number: u64) {
        self.key(field, 0);
        self.varint(number);
    }

    pub(super) fn fixed64(&mut self, field: u64, number: u64) {
        self.key(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, field: u64, number: u32) {
        self.key(field, 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(super) fn double(&mut self, field: u64, number: f64) {
        self.fixed64(field, number.to_bits());
    }
}

/// A number of at most ten bytes, the least significant seven bits first.
fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        if shift == 63 && *byte > 1 {
            return Err(Malformed);
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

fn array<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (array, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    *bytes = rest;
    Ok(*array)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Sample {
        #[prost(double, tag = "1")]
        value: f64,
        #[prost(int64, tag = "2")]
        timestamp: i64,
        #[prost(string, tag = "3")]
        text: String,
        #[prost(uint32, repeated, tag = "4")]
        packed: Vec<u32>,
        #[prost(fixed32, tag = "500")]
        fixed: u32,
    }

    proptest! {
        #[test]
        fn it_reads_what_prost_writes(
            value in any::<f64>().prop_filter("left out", |value| *value != 0.0),
            timestamp in any::<i64>(),
            text in "\\PC{0,20}",
            packed in proptest::collection::vec(any::<u32>(), 0..9),
            fixed in any::<u32>(),
        ) {
            let sample = Sample { value, timestamp, text, packed, fixed };
            let bytes = prost::Message::encode_to_vec(&sample);
            let mut read = Sample::default();
            for field in Fields::of(&bytes) {
                match field.unwrap() {
                    (1, value) => read.value = value.double().unwrap(),
                    (2, value) => read.timestamp = value.int64().unwrap(),
                    (3, value) => read.text = value.text().unwrap().unwrap().to_owned(),
                    (4, value) => {
                        let numbers = Packed(value.bytes().unwrap());
                        read.packed = numbers.map(|it| u32::try_from(it.unwrap()).unwrap()).collect();
                    }
                    (500, FieldValue::Fixed32(fixed)) => read.fixed = fixed,
                    other => panic!("{other:?}"),
                }
            }
            prop_assert_eq!(read.value.to_bits(), sample.value.to_bits());
            prop_assert_eq!((read.timestamp, &read.text, &read.packed, read.fixed), (sample.timestamp, &sample.text, &sample.packed, sample.fixed));
        }

        #[test]
        fn prost_reads_what_it_writes(value in any::<f64>(), timestamp in any::<i64>(), text in "\\PC{0,300}") {
            let mut message = Message::default();
            message.double(1, value);
            message.unsigned(2, timestamp.cast_unsigned());
            message.bytes(3, text.as_bytes());
            let read = <Sample as prost::Message>::decode(&*message.0).unwrap();
            prop_assert_eq!((read.value.to_bits(), read.timestamp, read.text), (value.to_bits(), timestamp, text));
        }

        #[test]
        fn no_bytes_panic_and_reading_ends(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(Fields::of(&bytes).count() <= bytes.len());
            prop_assert!(Packed(&bytes).count() <= bytes.len());
        }
    }
}
