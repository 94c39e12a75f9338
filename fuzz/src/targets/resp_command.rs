//! Any bytes give the same commands, and the same error, whole and in two pieces; no command passes the limits.

use tidegate_wire::resp::{CommandError, CommandLimits, Scanner};

pub(super) fn run(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first_chunk() else { return };
    let cut = usize::from(u16::from_le_bytes(*cut)).min(bytes.len());
    for limits in [CommandLimits::OPEN, CommandLimits::BEFORE_AUTH] {
        assert_eq!(read(&[&bytes[..cut], &bytes[cut..]], &limits), read(&[bytes], &limits));
    }
}

fn read(pieces: &[&[u8]], limits: &CommandLimits) -> (Vec<Vec<Vec<u8>>>, Option<CommandError>) {
    let (mut scanner, mut input, mut commands) = (Scanner::default(), Vec::new(), Vec::new());
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let command = match scanner.scan(&input, limits) {
                Ok(Some(command)) => command,
                Ok(None) => break,
                Err(error) => return (commands, Some(error)),
            };
            let length = command.length();
            assert!(length <= limits.command_bytes && command.arguments() <= limits.arguments);
            commands.push(
                (0..command.arguments()).filter_map(|at| command.argument(at)).map(<[u8]>::to_vec).collect(),
            );
            input.drain(..length);
        }
    }
    (commands, None)
}
