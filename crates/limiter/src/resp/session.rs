//! A client's session: its credentials, the protocol that it chose, and the answer to each command.
//!
//! Pure in the sense that matters here: bytes in, bytes out. The server owns the socket and its deadlines.

mod transaction;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_access::tokens::{Credential, Denial, Scope};
use tidegate_net::stats::Route;
use tidegate_store::guard::Guard;
use tidegate_wire::resp::{Command, CommandLimits, Encoder, Protocol};

use super::batch::PipelineBatch;
use super::commands::{self, CommandKind, Spec};
use super::outcome::CommandOutcome;
use super::shared::RespState;
use transaction::Transaction;

/// Wrong passwords after which a connection ends.
const MAX_FAILED_AUTH: u32 = 8;

/// The reply to a client that has not authenticated yet.
const UNAUTHENTICATED: &str = "NOAUTH Authentication required.";

/// A client's conversation.
#[derive(Debug)]
pub(super) struct RespSession {
    shared: Arc<RespState>,
    id: i64,
    protocol: Protocol,
    authenticated: bool,
    /// The token that let the client in, if one was needed.
    token: Option<Credential>,
    /// The version of the tokens by which that was judged.
    judged_at: u64,
    failed_auth: u32,
    /// What came since MULTI.
    transaction: Option<Transaction>,
}

impl RespSession {
    pub(super) fn new(shared: Arc<RespState>) -> Self {
        let id = shared.sessions.fetch_add(1, Ordering::Relaxed) + 1;
        let judged_at = shared.tokens.version();
        let authenticated = !shared.tokens.load().demands(Scope::Decide);
        let protocol = Protocol::Resp2;
        Self {
            shared,
            id,
            protocol,
            authenticated,
            token: None,
            judged_at,
            failed_auth: 0,
            transaction: None,
        }
    }

    /// Whether the client must authenticate first.
    pub(super) fn is_closed(&self) -> bool {
        !self.authenticated
    }

    /// The memory that a transaction takes until it is run.
    pub(super) fn bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, Transaction::bytes)
    }

    /// How much the client may send as one command.
    pub(super) fn limits(&self) -> &'static CommandLimits {
        if self.authenticated { &CommandLimits::OPEN } else { &CommandLimits::BEFORE_AUTH }
    }

    /// Adds one command, which has at least a name, to `batch`.
    pub(super) fn answer(&mut self, command: Command<'_>, batch: &mut PipelineBatch) -> CommandOutcome {
        self.judge_again();
        let name = command.argument(0).unwrap_or_default();
        let found = Spec::find(name);
        if let Some(transaction) = self.transaction.take() {
            return self.answer_within(transaction, found, command, batch);
        }
        self.answer_now(found, command, batch)
    }

    /// After tokens were replaced: whether the client may still speak.
    fn judge_again(&mut self) {
        let version = self.shared.tokens.version();
        if version == self.judged_at {
            return;
        }
        self.judged_at = version;
        let tokens = self.shared.tokens.load();
        self.authenticated =
            !tokens.demands(Scope::Decide) || self.token.as_ref().is_some_and(|token| tokens.contains(token));
    }

    fn answer_now(
        &mut self,
        found: Option<(&'static Spec, Route)>,
        command: Command<'_>,
        batch: &mut PipelineBatch,
    ) -> CommandOutcome {
        if let Some((Spec { kind: CommandKind::Throttle(dialect), .. }, route)) = found
            && self.authenticated
        {
            batch.throttle(route, *dialect, &self.shared, command);
            return CommandOutcome::Done;
        }
        batch.answer(self.protocol, |out| match found {
            Some((spec, route)) => (route, self.run(spec, command, out)),
            None => (Route::OTHER, self.unknown(command.argument(0).unwrap_or_default(), out)),
        })
    }

    /// Answers a command that nothing need be decided for.
    fn run(&mut self, spec: &Spec, command: Command<'_>, out: &mut Encoder<'_>) -> CommandOutcome {
        let argument = |index| command.argument(index).unwrap_or_default();
        match spec.kind {
            _ if self.is_closed() && !spec.open => refuse(out, UNAUTHENTICATED),
            _ if !spec.takes(command.arguments()) => {
                refuse(out, format_args!("ERR wrong number of arguments for '{}' command", spec.name()))
            }
            // Commands of clients that may ask are in the batch.
            CommandKind::Throttle(_) => refuse(out, UNAUTHENTICATED),
            CommandKind::Ping => ping(command, out),
            CommandKind::Hello => self.hello(command, out),
            CommandKind::Auth => match command.arguments() {
                2 => self.auth(b"default", argument(1), out),
                3 => self.auth(argument(1), argument(2), out),
                _ => refuse(out, "ERR syntax error"),
            },
            CommandKind::Multi => {
                self.transaction = Some(Transaction::default());
                done(out)
            }
            CommandKind::Exec => refuse(out, "ERR EXEC without MULTI"),
            CommandKind::Discard => refuse(out, "ERR DISCARD without MULTI"),
            CommandKind::Quit => {
                out.simple("OK");
                CommandOutcome::Over
            }
            CommandKind::Info => {
                out.bulk(self.info().as_bytes());
                CommandOutcome::Done
            }
            CommandKind::Command => describe(command, out),
            CommandKind::Select if argument(1) == b"0" => done(out),
            CommandKind::Select => refuse(out, "ERR DB index is out of range"),
            // Names are for the lists that Redis can show; there is none here, so nothing is kept.
            CommandKind::Client
                if [&b"setinfo"[..], b"setname"].iter().any(|it| argument(1).eq_ignore_ascii_case(it)) =>
            {
                done(out)
            }
            CommandKind::Client => refuse(out, "ERR only CLIENT SETINFO and CLIENT SETNAME are known"),
        }
    }

    /// `HELLO [2|3 [AUTH name password] [SETNAME name]]`
    fn hello(&mut self, command: Command<'_>, out: &mut Encoder<'_>) -> CommandOutcome {
        let argument = |index| command.argument(index).unwrap_or_default();
        let protocol = match argument(1) {
            b"" if command.arguments() == 1 => self.protocol,
            b"2" => Protocol::Resp2,
            b"3" => Protocol::Resp3,
            _ => return refuse(out, "NOPROTO unsupported protocol version"),
        };
        let mut at = 2;
        while at < command.arguments() {
            let left = command.arguments() - at;
            if argument(at).eq_ignore_ascii_case(b"auth") && left >= 3 {
                if let Err(outcome) = self.admit(argument(at + 1), argument(at + 2), out) {
                    return outcome;
                }
                at += 3;
            } else if argument(at).eq_ignore_ascii_case(b"setname") && left >= 2 {
                at += 2;
            } else {
                return refuse(out, "ERR syntax error in HELLO");
            }
        }
        if !self.authenticated {
            return refuse(out, "NOAUTH HELLO must be called with AUTH, or after it");
        }
        self.protocol = protocol;
        out.switch(protocol);
        self.greet(out);
        CommandOutcome::Done
    }

    fn greet(&self, out: &mut Encoder<'_>) {
        out.map(7);
        for (key, value) in [("server", "tidegate"), ("version", env!("CARGO_PKG_VERSION"))] {
            out.bulk(key.as_bytes());
            out.bulk(value.as_bytes());
        }
        out.bulk(b"proto");
        out.integer(if self.protocol == Protocol::Resp3 { 3 } else { 2 });
        out.bulk(b"id");
        out.integer(self.id);
        for (key, value) in [("mode", "standalone"), ("role", "master")] {
            out.bulk(key.as_bytes());
            out.bulk(value.as_bytes());
        }
        out.bulk(b"modules");
        out.array(0);
    }

    fn auth(&mut self, user: &[u8], password: &[u8], out: &mut Encoder<'_>) -> CommandOutcome {
        match self.admit(user, password, out) {
            Ok(()) => done(out),
            Err(outcome) => outcome,
        }
    }

    /// Lets the client in, or answers why not.
    fn admit(&mut self, user: &[u8], password: &[u8], out: &mut Encoder<'_>) -> Result<(), CommandOutcome> {
        let tokens = self.shared.tokens.load();
        let reason = match tokens.admit(Scope::Decide, Some(password)) {
            Ok(Some(token)) if user == b"default" || user == token.name().as_bytes() => {
                self.token = Some(token.clone());
                self.authenticated = true;
                return Ok(());
            }
            Ok(None) => {
                let reason =
                    "ERR AUTH called without any password configured: see resp.password and [[token]]";
                return Err(refuse(out, reason));
            }
            Err(Denial::Scope(_)) => "NOPERM this token does not have the scope \"decide\"",
            Ok(Some(_)) | Err(Denial::Unknown) => {
                "WRONGPASS invalid username-password pair or user is disabled."
            }
        };
        self.failed_auth += 1;
        let refused = refuse(out, reason);
        Err(if self.failed_auth < MAX_FAILED_AUTH { refused } else { CommandOutcome::Over })
    }

    fn unknown(&self, name: &[u8], out: &mut Encoder<'_>) -> CommandOutcome {
        // A browser that was tricked into talking to this port: its body could be commands.
        if [&b"post"[..], b"host:"].iter().any(|word| name.eq_ignore_ascii_case(word)) {
            refuse(out, "ERR this is no HTTP server");
            return CommandOutcome::Over;
        }
        if self.is_closed() {
            return refuse(out, UNAUTHENTICATED);
        }
        let shown = &name[..name.len().min(64)];
        refuse(out, format_args!("ERR unknown command '{}'", shown.escape_ascii()))
    }

    /// What clients look at before they use a server: its role, and that it is not loading. The replies
    /// to throttle commands have no room for a mark, so here is whether answers are given without the store.
    fn info(&self) -> String {
        let stats = self.shared.cell.guard().map(Guard::stats).unwrap_or_default();
        let degraded = stats.degraded_local + stats.degraded_open + stats.degraded_closed;
        format!(
            "# Server\r\ntidegate_version:{}\r\nredis_mode:standalone\r\n# Persistence\r\nloading:0\r\n\
             # Replication\r\nrole:master\r\n# Clients\r\nconnections_received:{}\r\n\
             # Store\r\nstore_answers:{}\r\ndegraded_answers:{degraded}\r\n",
            env!("CARGO_PKG_VERSION"),
            self.shared.sessions.load(Ordering::Relaxed),
            u8::from(self.shared.cell.guard().and_then(Guard::trouble).is_none()),
        )
    }
}

fn done(out: &mut Encoder<'_>) -> CommandOutcome {
    out.simple("OK");
    CommandOutcome::Done
}

fn refuse(out: &mut Encoder<'_>, message: impl std::fmt::Display) -> CommandOutcome {
    out.error(&message);
    CommandOutcome::Refused
}

fn ping(command: Command<'_>, out: &mut Encoder<'_>) -> CommandOutcome {
    match (command.arguments(), command.argument(1)) {
        (1, _) => out.simple("PONG"),
        (2, Some(message)) => out.bulk(message),
        _ => return refuse(out, "ERR wrong number of arguments for 'ping' command"),
    }
    CommandOutcome::Done
}

/// `COMMAND`, `COMMAND COUNT`, `COMMAND INFO name ...`, `COMMAND DOCS ...`, which has none.
fn describe(command: Command<'_>, out: &mut Encoder<'_>) -> CommandOutcome {
    let about = command.argument(1).unwrap_or_default();
    if command.arguments() == 1 {
        commands::describe_all(out);
    } else if about.eq_ignore_ascii_case(b"count") {
        out.integer(commands::count());
    } else if about.eq_ignore_ascii_case(b"docs") {
        out.map(0);
    } else if about.eq_ignore_ascii_case(b"info") {
        out.array(command.arguments() - 2);
        for name in (2..command.arguments()).filter_map(|index| command.argument(index)) {
            commands::describe_one(name, out);
        }
    } else {
        return refuse(out, "ERR only COMMAND, COMMAND COUNT, COMMAND INFO and COMMAND DOCS are known");
    }
    CommandOutcome::Done
}
