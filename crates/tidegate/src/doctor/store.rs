//! The shared store, if there is one: reachable, new enough, with the rights that counting needs, with a clock
//! like this machine's, and without a habit of dropping counters.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_net::clock::{Clock, monotonic, wall};
use tidegate_store::examine::{ClockReading, Reach, SchemaFacts, ServerFacts, Trial, servers};
use tidegate_store::postgres::PostgresConfig;
use tidegate_store::redis::RedisConfig;

use super::Finding;
use crate::config::{Settings, Store};

const AREA: &str = "store";
/// The versions that the stores are tested against begin here.
const LEAST_REDIS: u32 = 7;
const LEAST_POSTGRES: u32 = 15;
/// If clocks differ by more, no time service sets them.
const MOST_APART: Duration = Duration::from_secs(1);
/// Decisions that are timed; the fastest counts, since the first opens the connection.
const DECISIONS: usize = 5;

/// The findings about the store.
#[derive(Debug)]
pub(super) enum SeenStore {
    /// Counters are in the server's own memory.
    Own,
    /// Its URL, or a file that the URL names, is of no use.
    Unusable(String),
    /// It was asked.
    Shared(Shared),
}

/// The findings about a shared store.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) kind: StoreKind,
    /// What its servers say; or why they do not.
    pub(super) servers: Result<Vec<ServerFacts>, String>,
    /// How long a decision takes; or why there is none. `None` if its tables are not there yet.
    pub(super) decision: Option<Result<Duration, String>>,
    pub(super) deadline: Duration,
}

/// Which store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    Redis,
    Postgres,
}

/// Asks the store.
pub(super) fn look(settings: &Settings) -> SeenStore {
    let reach = match &settings.store {
        Store::Memory => return SeenStore::Own,
        Store::Redis(url) => {
            RedisConfig::from_url(url.expose()).map(Reach::Redis).map_err(|error| error.to_string())
        }
        Store::Postgres(url) => {
            PostgresConfig::parse(url.expose()).map(Reach::Postgres).map_err(|error| error.to_string())
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match (reach, runtime) {
        (Ok(reach), Ok(runtime)) => runtime.block_on(ask(&reach, settings.shared.deadline)),
        (Err(error), _) => SeenStore::Unusable(error),
        (_, Err(error)) => SeenStore::Unusable(error.to_string()),
    }
}

async fn ask(reach: &Reach, deadline: Duration) -> SeenStore {
    let kind = if matches!(reach, Reach::Redis(_)) { StoreKind::Redis } else { StoreKind::Postgres };
    let servers = servers(reach, &wall).await.map_err(|error| error.to_string());
    let is_ready = servers
        .as_ref()
        .is_ok_and(|all| all.iter().all(|server| server.schema.as_ref().is_none_or(SchemaFacts::is_ready)));
    let decision = if is_ready { Some(decision(reach).await) } else { None };
    SeenStore::Shared(Shared { kind, servers, decision, deadline })
}

impl SeenStore {
    /// Of a Redis that was asked: where it is, and the versions of the nodes that count there, unless a server does not tell.
    /// PostgreSQL holds the configuration, too, and is asked with that.
    pub(super) fn versions_in_redis(&self) -> Option<(String, Option<Vec<String>>)> {
        let Self::Shared(Shared { kind: StoreKind::Redis, servers: Ok(servers), .. }) = self else {
            return None;
        };
        let address = match &servers[..] {
            [] => return None,
            [server] => server.address.clone(),
            [first, others @ ..] => format!("{} and {} more", first.address, others.len()),
        };
        let told: Option<Vec<_>> = servers.iter().map(|server| server.nodes.clone()).collect();
        let versions = told.map(|told| {
            let all: BTreeSet<_> = told.into_iter().flatten().collect();
            all.into_iter().collect()
        });
        Some((address, versions))
    }
}

/// How long the fastest of some decisions takes.
async fn decision(reach: &Reach) -> Result<Duration, String> {
    let clock = Clock::start();
    let store = Trial::open(reach);
    let mut fastest = Duration::MAX;
    for _ in 0..DECISIONS {
        let asked = monotonic();
        store.count(clock.now()).await.map_err(|error| error.to_string())?;
        fastest = fastest.min(asked.elapsed());
    }
    Ok(fastest)
}

/// What follows from it.
pub(super) fn judge(seen: &SeenStore) -> Vec<Finding> {
    match seen {
        SeenStore::Own => vec![Finding::ok(AREA, "counters are in the server's own memory")],
        SeenStore::Unusable(why) => {
            vec![Finding::problem(AREA, why.clone(), "correct `store`, or the file that it names")]
        }
        SeenStore::Shared(shared) => shared.judge(),
    }
}

impl Shared {
    fn judge(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        match &self.servers {
            Ok(servers) => found.extend(servers.iter().flat_map(|server| self.server(server))),
            Err(why) => found.push(Finding::problem(
                AREA,
                why.clone(),
                "start it, open the way to it, or mend user and password in `store`; until then each policy's \
                 on_store_failure decides",
            )),
        }
        match &self.decision {
            None => {}
            Some(Ok(took)) => found.push(self.speed(*took)),
            Some(Err(why)) => found.push(Finding::problem(
                AREA,
                format!("a unit could not be counted: {why}"),
                self.rights(),
            )),
        }
        found
    }

    fn rights(&self) -> &'static str {
        match self.kind {
            StoreKind::Redis => {
                "a replica or a full server takes nothing; a user needs the rights that docs/stores.md names: `ACL SETUSER NAME \
                 ~tg:* +evalsha +script|load +time +get +set +setrange +pttl +pexpire +del`"
            }
            StoreKind::Postgres => {
                "the user needs its own schema `tidegate`, or USAGE, SELECT, INSERT, UPDATE, DELETE and EXECUTE in it, \
                 on a server that takes writes"
            }
        }
    }

    fn speed(&self, took: Duration) -> Finding {
        let (took_ms, deadline) = (took.as_secs_f64() * 1e3, self.deadline);
        if took > deadline {
            let what = format!(
                "a decision takes {took_ms:.1} ms, and shared.deadline is {deadline:?}: decisions are made without the store"
            );
            return Finding::problem(AREA, what, "raise shared.deadline, or bring the store nearer");
        }
        if took > deadline / 2 {
            let what =
                format!("a decision takes {took_ms:.1} ms, more than half of shared.deadline ({deadline:?})");
            return Finding::warning(AREA, what, "raise shared.deadline, or bring the store nearer");
        }
        Finding::ok(AREA, format!("a decision takes {took_ms:.1} ms of the {deadline:?} of shared.deadline"))
    }

    fn server(&self, server: &ServerFacts) -> Vec<Finding> {
        let (name, least) = match self.kind {
            StoreKind::Redis => ("Redis", LEAST_REDIS),
            StoreKind::Postgres => ("PostgreSQL", LEAST_POSTGRES),
        };
        let ServerFacts { address, version, .. } = server;
        let mut found = vec![match server.major {
            Some(major) if major < least => Finding::problem(
                AREA,
                format!("{address} is {name} {version}, which is too old"),
                format!("{name} {least} or later"),
            ),
            Some(_) => Finding::ok(AREA, format!("{address} is {name} {version}")),
            None => Finding::warning(
                AREA,
                format!("{address} does not tell its version"),
                "give the user the right to ask: +info",
            ),
        }];
        if let Some(policy) = &server.drops_keys {
            found.push(Finding::warning(
                AREA,
                format!(
                    "{address} drops counters when its memory is full ({policy}), which gives their clients the whole limit again"
                ),
                "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
            ));
        }
        found.extend(server.clock.and_then(|clock| apart(address, clock)));
        found.extend(server.schema.map(|schema| tables(address, schema)));
        found
    }
}

/// The least difference of the two clocks, if it is large.
fn apart(address: &str, ClockReading { asked, server, answered }: ClockReading) -> Option<Finding> {
    let (ahead, behind) = (server.0.saturating_sub(answered.0), asked.0.saturating_sub(server.0));
    let apart = Duration::from_nanos(ahead.max(behind));
    let direction = if ahead > behind { "ahead of" } else { "behind" };
    (apart > MOST_APART).then(|| {
        let what = format!(
            "the clock of {address} is {:.1} s {direction} this machine's: decisions go by the store's, so calendar periods, \
             logs and tokens that end disagree with them",
            apart.as_secs_f64()
        );
        Finding::warning(AREA, what, "keep both clocks by NTP (chrony or systemd-timesyncd)")
    })
}

fn tables(address: &str, schema: SchemaFacts) -> Finding {
    let SchemaFacts { found, own, may_create } = schema;
    match found {
        Some(found) if found > own => Finding::warning(
            AREA,
            format!(
                "{address} has tables of version {found}, this program knows version {own}: newer nodes have been there"
            ),
            "bring this node up to date",
        ),
        Some(found) if found == own => {
            Finding::ok(AREA, format!("{address} has the tables, version {found}"))
        }
        Some(found) => Finding::ok(
            AREA,
            format!(
                "{address} has tables of version {found}: the first node of this version makes them version {own}"
            ),
        ),
        None if may_create => {
            Finding::ok(AREA, format!("{address} has no tables yet: the first node makes them"))
        }
        None => Finding::problem(
            AREA,
            format!("{address} has no tables yet, and this user may not make them"),
            "GRANT CREATE ON DATABASE ... TO this user, for the first start",
        ),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_algorithms::time::{SECOND, Wall};

    use super::super::Level;
    use super::*;

    fn redis() -> ServerFacts {
        ServerFacts {
            address: "h:6379".into(),
            version: "7.0.15".into(),
            major: Some(7),
            clock: None,
            drops_keys: None,
            schema: None,
            nodes: None,
        }
    }

    fn judged(kind: StoreKind, server: ServerFacts) -> Vec<Finding> {
        let shared =
            Shared { kind, servers: Ok(vec![server]), decision: None, deadline: Duration::from_millis(10) };
        judge(&SeenStore::Shared(shared))
    }

    fn worst(found: Vec<Finding>) -> Finding {
        found.into_iter().max_by_key(|finding| finding.level).unwrap()
    }

    #[test]
    fn each_fault_of_a_server_has_its_finding() {
        assert_eq!(worst(judged(StoreKind::Redis, redis())).level, Level::Ok);
        let old =
            worst(judged(StoreKind::Redis, ServerFacts { version: "6.2".into(), major: Some(6), ..redis() }));
        assert_eq!((old.level, old.repair.as_str()), (Level::Problem, "Redis 7 or later"));
        let drops = ServerFacts { drops_keys: Some("allkeys-lru".into()), ..redis() };
        assert!(worst(judged(StoreKind::Redis, drops)).repair.contains("noeviction"));
        let tables = |found, may_create| ServerFacts {
            major: Some(15),
            schema: Some(SchemaFacts { found, own: 2, may_create }),
            ..redis()
        };
        for (found, may_create, level) in [
            (Some(2), false, Level::Ok),
            (Some(1), false, Level::Ok),
            (Some(3), true, Level::Warning),
            (None, true, Level::Ok),
            (None, false, Level::Problem),
        ] {
            assert_eq!(
                worst(judged(StoreKind::Postgres, tables(found, may_create))).level,
                level,
                "{found:?}"
            );
        }
    }

    #[test]
    fn clocks_are_apart_by_more_than_the_question_took() {
        let reading = |server| ClockReading {
            asked: Wall(100 * SECOND),
            server: Wall(server * SECOND),
            answered: Wall(104 * SECOND),
        };
        for server in [99, 100, 102, 104, 105] {
            assert_eq!(apart("h", reading(server)), None, "{server}");
        }
        assert!(apart("h", reading(110)).unwrap().what.contains("6.0 s ahead of"));
        assert!(apart("h", reading(90)).unwrap().what.contains("10.0 s behind"));
    }

    #[test]
    fn a_decision_is_judged_by_its_deadline() {
        let shared = |decision| Shared {
            kind: StoreKind::Redis,
            servers: Ok(Vec::new()),
            decision,
            deadline: Duration::from_millis(10),
        };
        for (micros, level) in [(900, Level::Ok), (6_000, Level::Warning), (11_000, Level::Problem)] {
            let found = shared(Some(Ok(Duration::from_micros(micros)))).judge();
            assert_eq!(found[0].level, level, "{found:?}");
        }
        let refused = shared(Some(Err("NOPERM".into()))).judge();
        assert!(refused[0].level == Level::Problem && refused[0].what.contains("NOPERM"));
        let away = Shared { servers: Err("refused".into()), ..shared(None) };
        assert_eq!(away.judge()[0].level, Level::Problem);
    }
}
