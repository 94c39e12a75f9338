//! One command to a Redis, and its reply as text.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends one command to a Redis on the loopback address and returns its reply, arrays by line.
///
/// # Panics
/// If the server does not answer within two minutes.
pub fn command(port: u16, words: &[&str]) -> String {
    try_command(port, words).expect("redis answers within two minutes")
}

/// The same, where the server may hang up.
///
/// # Errors
/// When there is no connection, or it ends, or nothing comes for two minutes.
pub(crate) fn try_command(port: u16, words: &[&str]) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes())?;
    let mut reply = String::new();
    read_reply(&mut BufReader::new(stream), &mut reply)?;
    Ok(reply)
}

fn read_reply(stream: &mut BufReader<TcpStream>, reply: &mut String) -> io::Result<()> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let (kind, rest) = line.trim_end().split_at_checked(1).ok_or(io::ErrorKind::UnexpectedEof)?;
    let length = || rest.parse::<usize>().map_err(io::Error::other);
    match kind {
        "$" if rest != "-1" => {
            let mut bytes = vec![0; length()? + 2];
            stream.read_exact(&mut bytes)?;
            reply.push_str(&String::from_utf8_lossy(&bytes[..bytes.len() - 2]));
            reply.push('\n');
        }
        "*" if rest != "-1" => {
            for _ in 0..length()? {
                read_reply(stream, reply)?;
            }
        }
        _ => {
            reply.push_str(rest);
            reply.push('\n');
        }
    }
    Ok(())
}
