//! Any bytes, as a request of each protocol that carries metrics, give an error or lines that are JSON, one for each
//! fact, and that are told from torn ones.

use std::hash::RandomState;

use tidegate_wire::metrics::line_protocol::{Precision, read_points};
use tidegate_wire::metrics::remote_write::Version;
use tidegate_wire::metrics::{
    BatchLimits, LineWriter, describe, forward, otlp, read_batch, read_line, remote_write, statsd,
};

const LIMIT: usize = 1 << 16;

pub(super) fn run(data: &[u8]) {
    let decoders: [fn(&[u8], &mut LineWriter) -> bool; 8] = [
        |data, writer| read_batch(data, BatchLimits { metrics: 100, partial: false }, writer).is_ok(),
        |data, writer| read_batch(data, BatchLimits { metrics: 100, partial: true }, writer).is_ok(),
        |data, writer| remote_write::read_request(Version::V1, data, writer).is_ok(),
        |data, writer| remote_write::read_request(Version::V2, data, writer).is_ok(),
        |data, writer| otlp::read_request(data, writer).is_ok(),
        |data, writer| {
            otlp::from_json(data).is_ok_and(|message| otlp::read_request(&message, writer).is_ok())
        },
        |data, writer| read_points(data, Precision::Nanoseconds, writer).is_ok(),
        |data, writer| {
            let counts = statsd::read_metrics(data, writer, &mut |_, _, _| Some(0.0));
            counts.values == writer.count()
        },
    ];
    for decode in decoders {
        let mut writer = LineWriter::new("a client", 0, LIMIT);
        if !decode(data, &mut writer) {
            continue;
        }
        let lines = writer.finish();
        let mut found = lines.bytes.split_inclusive(|byte| *byte == b'\n');
        for fact in &lines.facts {
            let line = found.next().expect("there is a line for each fact");
            assert_eq!(line.len(), fact.length);
            let described = describe(line).expect("a line that was written is whole");
            assert_eq!((described.millis, &described.name), (fact.millis, &lines.name(fact)));
            assert!(describe(&line[..line.len() - 2]).is_none(), "a cut line is not whole");
            let kept = read_line(line).expect("a line that was written is read");
            assert_eq!((kept.millis, &kept.name), (fact.millis, &lines.name(fact)));
            let mut sums = forward::Sums::new(RandomState::new());
            let sent = forward::remote_write::encode([line].into_iter(), &mut sums).bytes;
            let mut again = LineWriter::new("a client", 0, LIMIT);
            let counts = remote_write::read_request(Version::V1, &sent, &mut again).expect("it was encoded");
            // The client's label or a longer name may be one too many for another intake.
            // A delta has a zero before it.
            let sent = counts.samples + counts.rejected;
            let is_delta = kept.tag("temporality") == Some("delta");
            assert!(sent == 1 || is_delta && sent == 2, "what is kept is sent on");
            assert_eq!(counts.not_finite, 0);
        }
        assert!(found.next().is_none(), "there is a fact for each line");
    }
    let _described = describe(data);
}
