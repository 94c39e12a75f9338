//! The RESP server over real sockets: what each command answers, byte by byte, and what is refused.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::{PATIENCE, start, start_within};
use tidegate_limiter::resp::RespConfig;
use tidegate_limiter::tally::TallyCount;
use tidegate_net::buffers::Buffers;
use tidegate_net::clock::monotonic;
use tidegate_net::drain::{DrainTiming, Drained};

const PASSWORD: &str = "sixteen-letters-and-more";

/// Clients have as long to read why they are refused as they need.
fn patient() -> RespConfig {
    RespConfig { linger: PATIENCE, ..RespConfig::default() }
}

/// Sends `bytes` and reads as many as `expected` has.
#[track_caller]
fn exchange(stream: &mut TcpStream, bytes: &[u8], expected: &str) {
    stream.write_all(bytes).unwrap();
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(String::from_utf8_lossy(&reply), expected);
}

/// Sends `bytes` and reads until the server closes.
fn last_words(stream: &mut TcpStream, bytes: &[u8]) -> String {
    stream.write_all(bytes).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

fn integers(numbers: [i64; 5]) -> String {
    let mut text = "*5\r\n".to_owned();
    for number in numbers {
        text.push_str(&format!(":{number}\r\n"));
    }
    text
}

#[test]
fn cl_throttle_answers_as_redis_cell_does() {
    let service = start(None, RespConfig::default());
    let mut client = service.connect();
    // The example of redis-cell's own documentation: 16 at once, one back every 2 s.
    // Commands that come together are decided together, at one instant.
    exchange(
        &mut client,
        b"CL.THROTTLE user123 15 30 60\r\ncl.throttle user123 15 30 60 0\r\n\
          CL.THROTTLE user123 15 30 60 15\r\nCL.THROTTLE user123 15 30 60\r\n",
        &[[0, 16, 15, -1, 2], [0, 16, 15, -1, 2], [0, 16, 0, -1, 32], [1, 16, 0, 2, 32]]
            .map(integers)
            .concat(),
    );
    exchange(&mut client, b"CL.THROTTLE other 15 30 60 17\r\n", &integers([1, 16, 16, -1, 0]));
    for (command, error) in [
        (
            "CL.THROTTLE k 1 2",
            "Cell error: Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
        ),
        ("CL.THROTTLE k x 1 1", "Cell error: Couldn't parse as integer: x"),
        ("CL.THROTTLE k 1 0 1", "Cell error: Zero rates are not supported"),
        ("CL.THROTTLE k 1 1 1 -1", "ERR quantity is negative"),
        ("CL.THROTTLE k 1 9223372036854775807 1", "ERR the count per period must be from 1 to 1000000000"),
        ("CL.THROTTLE k 1 1 1 1000000001", "ERR cost is 1000000001, of at most 1000000000"),
    ] {
        exchange(&mut client, format!("{command}\r\n").as_bytes(), &format!("-{error}\r\n"));
    }
    let tallies = service.engine.tallies().read();
    let (_, counted) = tallies.iter().find(|(name, _)| &**name == "CL.THROTTLE").unwrap();
    assert_eq!(*counted, TallyCount { allowed: 2, denied: 2, ..TallyCount::default() });
}

#[test]
fn fault_12_a_long_key_is_counted_by_its_digest() {
    let service = start(None, RespConfig::default());
    let mut client = service.connect();
    let ask = |key: &str| {
        let key = key.as_bytes();
        let length = format!("*5\r\n$11\r\nCL.THROTTLE\r\n${}\r\n", key.len());
        [length.as_bytes(), key, b"\r\n$1\r\n1\r\n$1\r\n1\r\n$2\r\n60\r\n"].concat()
    };
    let long = "k".repeat(5_000);
    exchange(&mut client, &ask(&long), &integers([0, 2, 1, -1, 60]));
    exchange(&mut client, &ask(&long), &integers([0, 2, 0, -1, 120]));
    exchange(&mut client, &ask(&format!("{long}k")), &integers([0, 2, 1, -1, 60]));
}

#[test]
fn throttle_answers_as_throttlecrab_does() {
    let service = start(None, RespConfig::default());
    let mut client = service.connect();
    exchange(
        &mut client,
        b"THROTTLE k 3 1 60\r\nTHROTTLE k 3 1 60 2\r\nTHROTTLE k 3 1 60\r\n",
        &[[1, 3, 2, 60, 0], [1, 3, 0, 180, 0], [0, 3, 0, 180, 60]].map(integers).concat(),
    );
    exchange(&mut client, b"THROTTLE other 3 1 60 4\r\n", &integers([0, 3, 3, 0, 60]));
    // The same key under the other command is another counter.
    exchange(&mut client, b"CL.THROTTLE k 2 1 60\r\n", &integers([0, 3, 2, -1, 60]));
    for (command, error) in [
        ("THROTTLE k 1 2", "ERR wrong number of arguments for 'throttle' command"),
        ("THROTTLE k x 1 1", "ERR invalid max_burst"),
        ("THROTTLE k 0 1 1", "ERR the burst must be from 1 to 1000000000"),
    ] {
        exchange(&mut client, format!("{command}\r\n").as_bytes(), &format!("-{error}\r\n"));
    }
}

#[test]
fn the_commands_that_clients_begin_with_are_answered() {
    let service = start(None, RespConfig::default());
    let mut client = service.connect();
    exchange(&mut client, b"PING\r\n", "+PONG\r\n");
    exchange(&mut client, b"*2\r\n$4\r\nping\r\n$3\r\na b\r\n", "$3\r\na b\r\n");
    exchange(&mut client, b"\r\n*0\r\nSELECT 0\r\n", "+OK\r\n");
    exchange(&mut client, b"SELECT 1\r\n", "-ERR DB index is out of range\r\n");
    exchange(&mut client, b"CLIENT SETINFO lib-name x\r\nCLIENT SETNAME y\r\n", "+OK\r\n+OK\r\n");
    exchange(&mut client, b"COMMAND COUNT\r\nCOMMAND DOCS\r\n", ":13\r\n*0\r\n");
    exchange(
        &mut client,
        b"COMMAND INFO cl.throttle get\r\n",
        "*2\r\n*6\r\n$11\r\ncl.throttle\r\n:-1\r\n*2\r\n+fast\r\n+write\r\n:1\r\n:1\r\n:1\r\n$-1\r\n",
    );
    exchange(&mut client, b"GET k\r\n", "-ERR unknown command 'GET'\r\n");
    exchange(&mut client, b"SELECT\r\n", "-ERR wrong number of arguments for 'select' command\r\n");
    exchange(&mut client, b"AUTH x\r\n", "-ERR AUTH called without any password");
    let hello = "%7\r\n$6\r\nserver\r\n$8\r\ntidegate\r\n$7\r\nversion\r\n";
    let mut client = service.connect();
    exchange(&mut client, b"HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n");
    exchange(&mut client, b"HELLO 3 SETNAME me\r\n", hello);
    let rest = last_words(&mut client, b"COMMAND INFO get\r\nHELLO 2\r\nQUIT\r\nPING\r\n");
    assert!(rest.contains("*1\r\n_\r\n*14\r\n"), "{rest}");
    assert!(rest.ends_with("*0\r\n+OK\r\n"), "nothing is answered after QUIT: {rest}");
}

#[test]
fn a_pipeline_is_answered_in_order_whatever_the_pieces() {
    let service = start(None, RespConfig::default());
    let commands: Vec<String> = (0..3_000).map(|number| format!("PING {number}\r\n")).collect();
    let expected: String =
        (0..3_000).map(|number: i32| format!("${}\r\n{number}\r\n", number.to_string().len())).collect();
    let bytes = commands.concat().into_bytes();
    exchange(&mut service.connect(), &bytes, &expected);
    let mut client = service.connect();
    for piece in bytes.chunks(7) {
        client.write_all(piece).unwrap();
    }
    exchange(&mut client, b"", &expected);
    let pings = || {
        let routes = service.stats.routes();
        routes.iter().find(|route| &*route.template == "ping").map_or(0, |route| route.by_class[1])
    };
    // A pipeline is counted after its replies were written.
    let start = monotonic();
    while pings() != 6_000 {
        assert!(start.elapsed() < PATIENCE, "{} are counted", pings());
    }
}

#[test]
fn fault_18_one_key_over_many_connections_admits_exactly_its_limit() {
    let service = start(None, RespConfig::default());
    let mut clients: Vec<_> = (0..100).map(|_| service.connect()).collect();
    let pipeline = b"CL.THROTTLE k 999 1 3600\r\n".repeat(50);
    for client in &mut clients {
        client.write_all(&pipeline).unwrap();
    }
    let mut admitted = 0;
    for client in &mut clients {
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let replies = last_words(client, b"");
        assert_eq!(replies.matches("*5\r\n").count(), 50);
        admitted += replies.matches("*5\r\n:0\r\n").count();
    }
    assert_eq!(admitted, 1_000);
}

#[test]
fn fault_55_what_is_too_much_ends_the_connection_before_it_is_buffered() {
    let service = start(None, patient());
    for (bytes, error) in [
        (&b"*1\r\n$1073741824\r\n"[..], "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (&b"*1\r\n".repeat(1_000), "-ERR Protocol error: expected '$', got '*'\r\n"),
        (&vec![b'x'; 1 << 20], "-ERR Protocol error: too big inline request\r\n"),
        (b"PING\r\n*1\r\n:1\r\n", "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n"),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\nCL.THROTTLE k 1 1 1\r\n", "-ERR this is no HTTP server\r\n"),
    ] {
        assert_eq!(last_words(&mut service.connect(), bytes), error);
    }
}

#[test]
fn fault_55_before_auth_the_caps_are_tighter_and_guessing_ends() {
    let service = start(Some(PASSWORD), patient());
    let mut client = service.connect();
    exchange(
        &mut client,
        b"PING\r\nCL.THROTTLE k 1 1 1\r\n",
        &"-NOAUTH Authentication required.\r\n".repeat(2),
    );
    exchange(&mut client, b"HELLO 3\r\n", "-NOAUTH HELLO must be called with AUTH, or after it\r\n");
    exchange(&mut client, format!("AUTH {PASSWORD}\r\nPING\r\n").as_bytes(), "+OK\r\n+PONG\r\n");
    let mut client = service.connect();
    exchange(
        &mut client,
        format!("HELLO 3 AUTH default {PASSWORD}\r\n").as_bytes(),
        "%7\r\n$6\r\nserver\r\n",
    );

    assert_eq!(
        last_words(&mut service.connect(), b"*2\r\n$4\r\nPING\r\n$5000\r\n"),
        "-ERR Protocol error: invalid bulk length\r\n"
    );
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let flood = format!("AUTH other {PASSWORD}\r\nAUTH wrong\r\n").repeat(1_000);
    assert_eq!(last_words(&mut service.connect(), flood.as_bytes()), wrong.repeat(8));
}

#[test]
fn fault_55_each_cap_is_tighter_before_auth_and_that_of_open_clients_after_it() {
    let service = start(Some(PASSWORD), RespConfig::default());
    let argument = |bytes: usize| format!("*2\r\n$4\r\nPING\r\n${bytes}\r\n{}\r\n", "x".repeat(bytes));
    let arguments = |count: usize| format!("*{count}\r\n{}", "$4\r\nPING\r\n".repeat(count));
    let line = |bytes: usize| format!("PING {}\r\n", "x".repeat(bytes));
    let both = |bytes: usize| {
        argument(bytes).replace("*2", "*3") + &format!("${bytes}\r\n{}\r\n", "x".repeat(bytes))
    };
    for (name, command) in [
        ("an argument", argument(4_097)),
        ("arguments", arguments(9)),
        ("a command", both(3_500)),
        ("a line", line(5_200)),
    ] {
        let refused = last_words(&mut service.connect(), command.as_bytes());
        assert!(refused.starts_with("-ERR Protocol error: "), "{name} before: {refused}");
        let mut client = service.connect();
        exchange(&mut client, format!("AUTH {PASSWORD}\r\n").as_bytes(), "+OK\r\n");
        client.write_all(command.as_bytes()).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let taken = last_words(&mut client, b"");
        assert!(!taken.is_empty() && !taken.contains("Protocol error"), "{name} after: {taken:.80}");
    }
}

#[test]
fn fault_55_a_flood_of_auth_on_many_connections_is_cut_and_others_are_served() {
    let service = start(Some(PASSWORD), RespConfig::default());
    let mut good = service.connect();
    exchange(&mut good, format!("AUTH {PASSWORD}\r\n").as_bytes(), "+OK\r\n");
    let flood = "AUTH wrong\r\n".repeat(1_000);
    let guessers: Vec<_> = (0..200)
        .map(|_| {
            let mut guesser = service.connect();
            guesser.write_all(flood.as_bytes()).unwrap();
            guesser
        })
        .collect();
    exchange(&mut good, b"CL.THROTTLE k 1 1 3600\r\n", &integers([0, 2, 1, -1, 3_600]));
    for mut guesser in guessers {
        assert_eq!(last_words(&mut guesser, b"").matches("-WRONGPASS").count(), 8);
    }
    let auth = service.stats.routes().into_iter().find(|route| &*route.template == "auth").unwrap();
    assert!(auth.by_class[3] >= 200 * 7, "what was refused is counted: {:?}", auth.by_class);
    exchange(&mut good, b"PING\r\n", "+PONG\r\n");
}

#[test]
fn who_says_nothing_or_half_a_command_is_cut() {
    // A machine that stands still while the client connects must not make it one that says nothing.
    let config = RespConfig { command_timeout: Duration::from_secs(3), ..RespConfig::default() };
    let service = start(None, config);
    assert_eq!(last_words(&mut service.connect(), b"PING\r\n*1\r\n$4\r\nPI"), "+PONG\r\n");
    assert_eq!(service.stats.totals().cut_header, 1);
    assert_eq!(last_words(&mut service.connect(), b""), "", "long before it would be idle");
    assert_eq!(service.stats.totals().cut_header, 2);

    let config = RespConfig { idle_timeout: Duration::from_secs(2), ..RespConfig::default() };
    let service = start(None, config);
    assert_eq!(last_words(&mut service.connect(), b"PING\r\n"), "+PONG\r\n");
    assert_eq!(last_words(&mut service.connect(), b""), "");
    assert_eq!(service.stats.totals().cut_idle, 2);

    let config = RespConfig { command_timeout: Duration::from_millis(50), ..RespConfig::default() };
    let service = start(Some(PASSWORD), config);
    assert_eq!(last_words(&mut service.connect(), b""), "");
    assert_eq!(service.stats.totals().cut_header, 1);
}

#[test]
fn who_does_not_read_is_cut_and_costs_a_bounded_buffer() {
    let config = RespConfig { write_timeout: Duration::from_millis(50), ..RespConfig::default() };
    let service = start(None, config);
    let mut client = service.connect();
    let payload = vec![b'x'; 60_000];
    let command = [b"*2\r\n$4\r\nPING\r\n$60000\r\n", &payload[..], b"\r\n"].concat();
    // Ends when the server has cut the connection: its replies were never read.
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    while client.write_all(&command).is_ok() {}
    assert_eq!(service.stats.totals().cut_write, 1);
}

#[test]
fn fault_60_what_there_is_no_room_for_ends_its_connection_and_no_other() {
    // Nothing beyond what each connection has free.
    let config = RespConfig { write_timeout: PATIENCE * 10, ..patient() };
    let server = start_within(Buffers::new(0), None, config);
    let mut modest = server.connect();
    let mut transaction = server.connect();
    let throttle = format!("CL.THROTTLE {} 9 10 60\r\n", "k".repeat(500));
    transaction.write_all(b"MULTI\r\n").unwrap();
    // It fails when the server has said its last word.
    drop(transaction.write_all(throttle.repeat(900).as_bytes()));
    let mut replies = Vec::new();
    drop(transaction.read_to_end(&mut replies));
    let replies = String::from_utf8(replies).unwrap();
    assert!(replies.contains("QUEUED") && replies.ends_with("try again\r\n"), "{replies}");

    let mut unread = server.connect();
    while unread.write_all(&b"COMMAND\r\n".repeat(1_000)).is_ok() {}
    assert!(server.buffers.refused() >= 2);
    exchange(&mut modest, b"PING\r\n", "+PONG\r\n");
    assert_eq!(server.buffers.taken(), 0);
}

#[test]
fn fault_22_a_drain_answers_what_was_sent_and_closes_between_commands() {
    let mut service = start(None, RespConfig::default());
    let mut idle = service.connect();
    exchange(&mut idle, b"PING\r\n", "+PONG\r\n");
    let mut busy = service.connect();
    busy.write_all(&b"PING\r\n".repeat(1_000)).unwrap();
    let all = DrainTiming::with_deadline(PATIENCE);
    let timing = DrainTiming { grace: Duration::ZERO, idle_linger: Duration::from_secs(2), ..all };
    assert_eq!(service.drain(timing), Drained { aborted: 0 });
    assert_eq!(last_words(&mut idle, b""), "");
    assert_eq!(last_words(&mut busy, b""), "+PONG\r\n".repeat(1_000));
}
