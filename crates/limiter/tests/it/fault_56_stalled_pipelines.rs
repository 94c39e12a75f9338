//! Fault 56 on real sockets: pipelines that stall, and threads that overtake each other between reading the
//! clock and deciding. Neither gives back a unit that was spent.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::support::start;
use tidegate_limiter::resp::RespConfig;
use tidegate_net::clock::monotonic;

/// Sends `pipeline`, of `commands` throttle commands under a limit of `quota`. How many were allowed.
fn allowed(stream: &mut TcpStream, pipeline: &[u8], commands: usize, quota: u64) -> u64 {
    stream.write_all(pipeline).unwrap();
    let (mut replies, mut piece) = (Vec::new(), [0; 4_096]);
    // Each reply has six lines.
    while replies.iter().filter(|byte| **byte == b'\n').count() < 6 * commands {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "the server closed");
        replies.extend_from_slice(&piece[..read]);
    }
    let replies = String::from_utf8(replies).unwrap();
    assert_eq!(replies.matches(&format!("\r\n:{quota}\r\n")).count(), commands, "{replies:.200}");
    replies.matches("*5\r\n:0\r\n").count() as u64
}

/// The most that a bucket admits in this time.
fn most(at_once: u64, per_second: u64, elapsed: Duration) -> u64 {
    at_once + u64::try_from(elapsed.as_micros()).unwrap() * per_second / 1_000_000 + 1
}

/// Five clients send long pipelines, read slowly, and only look at what remains. A sixth takes all it gets.
#[test]
fn fault_56_pipelines_that_stall_give_nothing_back() {
    const AT_ONCE: u64 = 10_000;
    const PER_SECOND: u64 = 100_000;
    const QUANTITY: u64 = 200;
    const COMMANDS: usize = 50;
    // Replies of a client that are read in a round: a small part of what one read of its commands makes.
    const READ: usize = 16 << 10;

    let service = start(None, RespConfig::default());
    let throttle =
        |quantity| format!("CL.THROTTLE k {} {PER_SECOND} 1 {quantity}\r\n", AT_ONCE - 1).into_bytes();
    let look = [b"COMMAND\r\n".repeat(60), throttle(0)].concat().repeat(100);
    let mut slow: Vec<TcpStream> = (0..5).map(|_| service.connect()).collect();
    thread::scope(|scope| {
        for client in &slow {
            let (mut client, look) = (client.try_clone().unwrap(), &look);
            // As long as the test goes on, however quick the machine is: it fails when the client leaves.
            scope.spawn(move || while client.write_all(look).is_ok() {});
        }
        let mut fast = service.connect();
        let take = throttle(QUANTITY).repeat(COMMANDS);
        let (mut taken, mut replies) = (0, vec![0; READ]);
        let begun = monotonic();
        while begun.elapsed() < Duration::from_secs(2) {
            taken += QUANTITY * allowed(&mut fast, &take, COMMANDS, AT_ONCE);
            for client in &mut slow {
                client.read_exact(&mut replies).unwrap();
            }
        }
        let elapsed = begun.elapsed();
        let most = most(AT_ONCE, PER_SECOND, elapsed);
        for client in &slow {
            client.shutdown(std::net::Shutdown::Both).unwrap();
        }
        assert!(taken <= most, "{taken} of at most {most} units in {elapsed:?}");
        assert!(taken > AT_ONCE, "the limit was never reached: {taken}");
    });
}

/// More clients than cores: one is often overtaken by another that read the clock after it.
#[test]
fn fault_56_clients_side_by_side_get_no_more_than_the_rate() {
    const AT_ONCE: u64 = 20;
    const PER_SECOND: u64 = 20_000;
    const COMMANDS: usize = 16;

    let service = start(None, RespConfig::default());
    let pipeline = format!("CL.THROTTLE k {} {PER_SECOND} 1\r\n", AT_ONCE - 1).repeat(COMMANDS);
    let begun = monotonic();
    let taken: u64 = thread::scope(|scope| {
        let client = || {
            let (mut stream, pipeline) = (service.connect(), pipeline.as_bytes());
            scope.spawn(move || {
                let mut taken = 0;
                while begun.elapsed() < Duration::from_secs(1) {
                    taken += allowed(&mut stream, pipeline, COMMANDS, AT_ONCE);
                }
                taken
            })
        };
        let clients: Vec<_> = (0..4).map(|_| client()).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let elapsed = begun.elapsed();
    let most = most(AT_ONCE, PER_SECOND, elapsed);
    assert!(taken <= most, "{taken} of at most {most} units in {elapsed:?}");
    assert!(taken > AT_ONCE);
}
