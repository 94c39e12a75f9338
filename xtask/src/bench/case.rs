//! A performance case: `regression/<case>/case.toml`. Its fields are described in `regression/README.md`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;

/// One performance case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// Its folder's name.
    #[serde(skip)]
    pub(crate) name: String,
    /// Its folder.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
    /// What is measured and why, in a sentence or two; stands above the table.
    pub(crate) what: String,
    /// The peers that are measured, in the order of the table's columns; empty if a script names them.
    #[serde(default)]
    pub(crate) subjects: Vec<Subject>,
    /// A configuration file in the case's folder for Tidegate; none: its defaults.
    pub(crate) tidegate_config: Option<String>,
    /// What is done to each subject.
    pub(crate) load: Load,
    /// What is expected of Tidegate.
    #[serde(default)]
    pub(crate) expect: Vec<Expect>,
}

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Subject {
    /// `tidegate serve`, its decision endpoint.
    Tidegate,
    /// nginx with `return 200` and a reply of the same size: the wall.
    Nginx,
    /// throttlecrab-server over HTTP.
    Throttlecrab,
    /// redis-server with a rate limit in Lua, driven by redis-benchmark.
    RedisLua,
    /// redis-server and its GET, which decides nothing: what its protocol costs at least.
    RedisGet,
}

impl Subject {
    /// As tables name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Nginx => "nginx",
            Self::Throttlecrab => "throttlecrab",
            Self::RedisLua => "redis + Lua",
            Self::RedisGet => "redis GET",
        }
    }
}

/// What is done to each subject.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Load {
    /// Keep-alive requests as fast as they are answered, client ids rotating.
    Throughput {
        /// Levels of concurrency.
        connections: Vec<u32>,
        /// Length of one run.
        seconds: u32,
        /// Runs per subject and level; the median counts.
        repeats: u32,
        /// Client ids that rotate.
        clients: u32,
    },
    /// Connections that sent one request each and then nothing.
    IdleConnections {
        /// How many.
        connections: u32,
    },
    /// Distinct client ids, one request each.
    TrackedKeys {
        /// How many.
        keys: u32,
    },
    /// Requests that are all in flight at once, for one client id.
    OneKey {
        /// The limit that is configured first, per 60 s.
        limit: u32,
        /// How many requests.
        requests: u32,
    },
    /// The same, spread over several nodes that count in one Redis; the case's configuration has the limit.
    OneKeyOnRedis {
        /// How many nodes.
        nodes: u32,
        /// How many requests.
        requests: u32,
    },
    /// Commands of Redis clients, keys at random.
    Resp {
        /// Connections.
        connections: u32,
        /// Commands that each sends at once, a level each.
        pipelines: Vec<u32>,
        /// Length of one run, roughly: commands are counted, not seconds.
        seconds: u32,
        /// Runs per subject and level; the median counts.
        repeats: u32,
        /// Keys.
        keys: u32,
    },
    /// A program of the case's folder measures, and prints its own table and ranges.
    Script {
        /// Its file name.
        run: String,
        /// What it is given.
        #[serde(default)]
        arguments: Vec<String>,
    },
    /// Unary calls of gRPC, all for one client: the generator repeats its message.
    Grpc {
        /// Connections, and calls at once on each; the level is their product.
        shapes: Vec<[u32; 2]>,
        /// Length of one run.
        seconds: u32,
        /// Runs per subject and shape; the median counts.
        repeats: u32,
    },
}

impl Load {
    /// What its levels are levels of.
    pub(crate) fn levels(&self) -> &'static str {
        match self {
            Self::Resp { .. } => "pipeline",
            Self::Grpc { .. } => "calls at once",
            _ => "connections",
        }
    }
}

/// A range in which a figure, or its ratio to another subject's, is expected.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// Which figure.
    pub(crate) figure: Quantity,
    /// Divide by this subject's figure; none: the figure itself.
    pub(crate) to: Option<Subject>,
    /// At these levels only; empty: at all.
    #[serde(default)]
    pub(crate) connections: Vec<u32>,
    /// Lower end.
    pub(crate) at_least: Option<f64>,
    /// Upper end.
    pub(crate) at_most: Option<f64>,
}

/// What a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Quantity {
    /// Replies per second with status 200.
    Throughput,
    /// 99th percentile of the time from request to reply, in milliseconds.
    P99,
    /// CPU time of the server's processes per million replies, in seconds.
    Cpu,
    /// Connections that failed, requests without a reply, replies other than 200.
    Errors,
    /// Share of replies that were denials, in per cent.
    Denied,
    /// Resident bytes per connection or key.
    Bytes,
    /// Requests that were admitted.
    Admitted,
}

impl Quantity {
    /// As tables name it, with its unit.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Throughput => "replies/s",
            Self::P99 => "p99, ms",
            Self::Cpu => "server CPU s per 1 M",
            Self::Errors => "errors",
            Self::Denied => "denied, %",
            Self::Bytes => "bytes each",
            Self::Admitted => "admitted",
        }
    }
}

impl Expect {
    /// Whether `value` is in the range.
    pub(crate) fn admits(&self, value: f64) -> bool {
        self.at_least.is_none_or(|least| value >= least) && self.at_most.is_none_or(|most| value <= most)
    }

    /// Whether this expectation is about that level.
    pub(crate) fn concerns(&self, connections: u32) -> bool {
        self.connections.is_empty() || self.connections.contains(&connections)
    }
}

/// Reads every case below `folder`, or the one named.
///
/// # Errors
/// When a `case.toml` is malformed, or there is no case of that name.
pub(crate) fn load(folder: &Path, only: Option<&str>) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let folder = entry?.path();
        let file = folder.join("case.toml");
        if !file.exists() {
            continue;
        }
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let case = toml::from_str(&text).with_context(|| file.display().to_string())?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        cases.push(Case { name, folder, ..case });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    cases.retain(|case| only.is_none_or(|only| case.name == only));
    if cases.is_empty() {
        bail!("no such case; there are {}", names.join(", "));
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_the_repository_is_readable_and_expects_something() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let cases = load(&root.join("regression"), None).unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            if let Load::Script { run, .. } = &case.load {
                assert!(case.folder.join(run).is_file(), "{} has no {run}", case.name);
                continue;
            }
            assert!(!case.expect.is_empty(), "{} expects nothing", case.name);
            let bounded = |e: &Expect| e.at_least.is_some() || e.at_most.is_some();
            assert!(case.expect.iter().all(bounded), "{} has a range without an end", case.name);
            let measured = |e: &Expect| e.to.is_none_or(|to| case.subjects.contains(&to));
            assert!(case.expect.iter().all(measured), "{} compares with an absent subject", case.name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let failure = load(&root.join("regression"), Some("cake")).err().unwrap().to_string();
        assert!(failure.contains("no such case; there are "), "{failure}");
    }

    #[test]
    fn a_range_admits_its_ends() {
        let range: Expect = toml::from_str("figure = \"p99\"\nat_most = 1.5\nconnections = [64]\n").unwrap();
        assert!(range.admits(1.5) && !range.admits(1.51));
        assert!(range.concerns(64) && !range.concerns(256));
    }
}
