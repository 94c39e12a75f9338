//! A point of any kind, and writing its lines.

use std::borrow::Cow;

use super::attributes::Attributes;
use super::{Fields, Malformed};
use crate::metrics::{EXPORTED, Kind, LineWriter, Metric, MetricError, Number};
use crate::protobuf::FieldValue;

/// The flag of a point that says that there is no value.
const NO_RECORDED_VALUE: u64 = 1;
/// Most buckets or quantiles of a point; more is as malformed as a cut message.
const MAX_PARTS: usize = 10_000;

/// Which message a point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Number,
    Histogram,
    ExponentialHistogram,
    Summary,
}

/// What a point says. The numbers of fields differ between kinds.
#[derive(Debug, Default)]
pub(super) struct Point<'a> {
    attributes: Attributes<'a>,
    /// The attributes of its scope and its resource.
    around: Option<&'a Attributes<'a>>,
    millis: Option<i64>,
    pub(super) value: Option<Number>,
    pub(super) count: u64,
    pub(super) sum: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) buckets: Vec<u64>,
    pub(super) bounds: Vec<f64>,
    pub(super) quantiles: Vec<(f64, f64)>,
    /// Quantiles that are NaN: nothing was observed lately.
    pub(super) empty_quantiles: usize,
    pub(super) exemplars: usize,
    pub(super) has_no_value: bool,
}

impl<'a> Point<'a> {
    pub(super) fn read(message: &'a [u8], data: Data, around: &'a Attributes<'a>) -> Result<Self, Malformed> {
        let mut point = Self { around: Some(around), ..Self::default() };
        for field in Fields::of(message) {
            let (number, value) = field?;
            if number == 3 {
                let FieldValue::Fixed64(nanos) = value else { return Err(Malformed) };
                point.millis = (nanos > 0).then(|| i64::try_from(nanos / 1_000_000).unwrap_or(i64::MAX));
                continue;
            }
            match data {
                Data::Number => point.read_number(number, value)?,
                Data::Histogram => point.read_histogram(number, value)?,
                Data::ExponentialHistogram => point.read_exponential(number, value)?,
                Data::Summary => point.read_summary(number, value)?,
            }
        }
        Ok(point)
    }

    fn read_number(&mut self, number: u64, value: FieldValue<'a>) -> Result<(), Malformed> {
        match number {
            4 => self.value = Some(value.double()?.into()),
            5 => self.exemplars += 1,
            6 => self.value = Some(fixed(value)?.cast_signed().into()),
            7 => self.attributes.add(value.bytes()?)?,
            8 => self.read_flags(value)?,
            _ => {}
        }
        Ok(())
    }

    fn read_histogram(&mut self, number: u64, value: FieldValue<'a>) -> Result<(), Malformed> {
        match number {
            4 => self.count = fixed(value)?,
            5 => self.sum = Some(value.double()?),
            6 => fixed_numbers(value, &mut self.buckets, |bits| bits)?,
            7 => fixed_numbers(value, &mut self.bounds, f64::from_bits)?,
            8 => self.exemplars += 1,
            9 => self.attributes.add(value.bytes()?)?,
            10 => self.read_flags(value)?,
            11 => self.min = Some(value.double()?),
            12 => self.max = Some(value.double()?),
            _ => {}
        }
        Ok(())
    }

    fn read_exponential(&mut self, number: u64, value: FieldValue<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.attributes.add(value.bytes()?)?,
            4 => self.count = fixed(value)?,
            5 => self.sum = Some(value.double()?),
            10 => self.read_flags(value)?,
            11 => self.exemplars += 1,
            12 => self.min = Some(value.double()?),
            13 => self.max = Some(value.double()?),
            _ => {}
        }
        Ok(())
    }

    fn read_summary(&mut self, number: u64, value: FieldValue<'a>) -> Result<(), Malformed> {
        match number {
            4 => self.count = fixed(value)?,
            5 => self.sum = Some(value.double()?),
            6 => {
                let (mut quantile, mut at) = (0.0, 0.0);
                for field in Fields::of(value.bytes()?) {
                    match field? {
                        (1, field) => quantile = field.double()?,
                        (2, field) => at = field.double()?,
                        _ => {}
                    }
                }
                if at.is_nan() {
                    self.empty_quantiles += 1;
                } else {
                    push(&mut self.quantiles, (quantile, at))?;
                }
            }
            7 => self.attributes.add(value.bytes()?)?,
            8 => self.read_flags(value)?,
            _ => {}
        }
        Ok(())
    }

    fn read_flags(&mut self, value: FieldValue<'_>) -> Result<(), Malformed> {
        self.has_no_value = value.unsigned()? & NO_RECORDED_VALUE != 0;
        Ok(())
    }

    /// Whether all of its attributes are there, those around it included.
    pub(super) fn is_whole(&self) -> bool {
        !self.attributes.is_cut() && self.around.is_none_or(|around| !around.is_cut())
    }

    /// Writes a line with the point's tags, and `more`.
    pub(super) fn write<'m, T>(
        &'m self,
        writer: &mut LineWriter,
        name: &str,
        kind: Kind,
        value: Number,
        more: T,
    ) -> Result<(), MetricError>
    where
        T: IntoIterator<Item = (&'m str, &'m str), IntoIter: Clone>,
    {
        let more = more.into_iter();
        let around = self.around.into_iter().flat_map(Attributes::iter);
        let around = around.filter(|(name, _)| !self.attributes.has(name));
        let own = around.chain(self.attributes.iter()).map(|(name, value)| {
            let is_ours = more.clone().any(|(other, _)| other == name);
            (if is_ours { Cow::Owned(format!("{EXPORTED}{name}")) } else { Cow::Borrowed(name) }, value)
        });
        let ours = more.clone().map(|(name, value)| (Cow::Borrowed(name), value));
        let tags: Vec<(Cow<'_, str>, &str)> = own.chain(ours).collect();
        let tags = tags.iter().map(|(name, value)| (&**name, *value));
        writer.write(&Metric { name, value, kind, millis: self.millis, tags })
    }
}

/// A number of a packed or single field of 64 bits.
fn fixed_numbers<T>(
    value: FieldValue<'_>,
    numbers: &mut Vec<T>,
    read: fn(u64) -> T,
) -> Result<(), Malformed> {
    match value {
        FieldValue::Fixed64(bits) => push(numbers, read(bits)),
        FieldValue::Bytes(bytes) => {
            let (chunks, rest) = bytes.as_chunks::<8>();
            if !rest.is_empty() {
                return Err(Malformed);
            }
            chunks.iter().try_for_each(|chunk| push(numbers, read(u64::from_le_bytes(*chunk))))
        }
        FieldValue::Varint(_) | FieldValue::Fixed32(_) => Err(Malformed),
    }
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), Malformed> {
    if list.len() == MAX_PARTS {
        return Err(Malformed);
    }
    list.push(item);
    Ok(())
}

fn fixed(value: FieldValue<'_>) -> Result<u64, Malformed> {
    if let FieldValue::Fixed64(number) = value { Ok(number) } else { Err(Malformed) }
}
