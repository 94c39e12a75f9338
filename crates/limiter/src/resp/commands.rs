//! The table of commands: dispatch, the reply to COMMAND and the metrics' labels come from it.

use tidegate_net::stats::Route;
use tidegate_wire::resp::Encoder;

use super::throttle::Dialect;

/// What a command does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
    Throttle(Dialect),
    Ping,
    Hello,
    Auth,
    Quit,
    Info,
    Command,
    Select,
    Client,
    Multi,
    Exec,
    Discard,
}

/// What clients may know of a command.
#[derive(Debug)]
pub(super) struct Spec {
    pub(super) kind: CommandKind,
    name: &'static str,
    /// Number of arguments with the name; negative: at least that many.
    pub(super) arity: i64,
    /// Whether the first argument is a key, by which clients of a cluster choose a node.
    keyed: bool,
    /// Whether it may be used before AUTH.
    pub(super) open: bool,
}

const fn spec(kind: CommandKind, name: &'static str, arity: i64) -> Spec {
    Spec { kind, name, arity, keyed: false, open: false }
}

/// In the order of expected use, since it is searched from the front.
static COMMANDS: [Spec; 13] = [
    Spec { keyed: true, ..spec(CommandKind::Throttle(Dialect::Cell), "cl.throttle", -1) },
    Spec { keyed: true, ..spec(CommandKind::Throttle(Dialect::Crab), "throttle", -1) },
    spec(CommandKind::Ping, "ping", -1),
    Spec { open: true, ..spec(CommandKind::Hello, "hello", -1) },
    Spec { open: true, ..spec(CommandKind::Auth, "auth", -2) },
    Spec { open: true, ..spec(CommandKind::Quit, "quit", -1) },
    spec(CommandKind::Info, "info", -1),
    spec(CommandKind::Command, "command", -1),
    spec(CommandKind::Select, "select", 2),
    spec(CommandKind::Client, "client", -2),
    spec(CommandKind::Multi, "multi", 1),
    spec(CommandKind::Exec, "exec", 1),
    spec(CommandKind::Discard, "discard", 1),
];

/// Every command's label in the metrics; the first is for everything else.
pub const TEMPLATES: &[&str] = &{
    let mut templates = ["other"; 1 + COMMANDS.len()];
    let mut index = 0;
    while index < COMMANDS.len() {
        templates[1 + index] = COMMANDS[index].name;
        index += 1;
    }
    templates
};

impl Spec {
    /// Finds a command by its name in any case; its label too.
    pub(super) fn find(name: &[u8]) -> Option<(&'static Self, Route)> {
        let index = COMMANDS.iter().position(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))?;
        Some((&COMMANDS[index], Route::new(u8::try_from(index + 1).unwrap_or(0))))
    }

    /// Whether the command takes this many arguments, its name among them.
    pub(super) fn takes(&self, arguments: usize) -> bool {
        let arguments = i64::try_from(arguments).unwrap_or(i64::MAX);
        if self.arity < 0 { arguments >= -self.arity } else { arguments == self.arity }
    }

    /// The name, as errors have it.
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// As COMMAND describes it: name, arity, flags, first key, last key, step.
    fn describe(&self, out: &mut Encoder<'_>) {
        let key = i64::from(self.keyed);
        out.array(6);
        out.bulk(self.name.as_bytes());
        out.integer(self.arity);
        out.array(2);
        out.simple("fast");
        out.simple(if self.keyed { "write" } else { "loading" });
        for position in [key, key, key] {
            out.integer(position);
        }
    }
}

/// The label of the command of this kind.
pub(super) fn route_of(kind: CommandKind) -> Route {
    let index = COMMANDS.iter().position(|spec| spec.kind == kind);
    // Invariant: every kind has its line in the table, of fewer lines than a byte counts.
    index.and_then(|index| u8::try_from(index + 1).ok()).map_or(Route::OTHER, Route::new)
}

/// The number of commands.
pub(super) fn count() -> i64 {
    i64::try_from(COMMANDS.len()).unwrap_or(i64::MAX)
}

/// Every command, as COMMAND describes them.
pub(super) fn describe_all(out: &mut Encoder<'_>) {
    out.array(COMMANDS.len());
    for spec in &COMMANDS {
        spec.describe(out);
    }
}

/// The command called `name`, or nothing.
pub(super) fn describe_one(name: &[u8], out: &mut Encoder<'_>) {
    match Spec::find(name) {
        Some((spec, _)) => spec.describe(out),
        None => out.null(),
    }
}
