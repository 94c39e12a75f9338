//! Any bytes give a reply or an error, and the same one however they are cut into reads.
//!
//! The first byte is the size of the pieces.

use tidegate_wire::http1::{Limits, Read, ResponseError, ResponseReader, Visit};

#[derive(Default)]
struct BodyBytes(Vec<u8>);

impl Visit for BodyBytes {
    fn body(&mut self, part: &[u8]) {
        self.0.extend_from_slice(part);
    }
}

fn read_in_pieces(bytes: &[u8], piece: usize) -> (Result<Option<usize>, ResponseError>, u16, Vec<u8>) {
    let mut reader = ResponseReader::new(Limits { max_head: 4096, max_body: 4096 });
    let mut body = BodyBytes::default();
    let mut used = 0;
    let mut outcome = Ok(None);
    for part in bytes.chunks(piece) {
        match reader.read(part, &mut body) {
            Ok(Read::More) => used += part.len(),
            Ok(Read::Done(length)) => {
                outcome = Ok(Some(used + length));
                break;
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    (outcome, reader.status(), body.0)
}

pub(super) fn run(data: &[u8]) {
    let Some((piece, bytes)) = data.split_first() else { return };
    let whole = read_in_pieces(bytes, usize::MAX);
    let pieces = read_in_pieces(bytes, usize::from(*piece).max(1));
    match (&whole.0, &pieces.0) {
        // Which of two mistakes is met first may depend on the cut; that there is one may not.
        (Err(_), Err(_)) => {}
        _ => assert_eq!(whole, pieces),
    }
}
