//! Warning of a server that drops keys to make room. Every key here has a TTL, so `volatile-*` drops them as
//! `allkeys-*` does.

use redis::aio::MultiplexedConnection;
use redis::cmd;

use super::config::Address;

/// Asks the server and warns if it may drop keys. A user without the right `+info` asks in vain.
pub(super) async fn warn_of(mut connection: MultiplexedConnection, address: &Address) {
    let mut question = cmd("INFO");
    question.arg("memory");
    let Ok(info) = question.query_async::<String>(&mut connection).await else { return };
    if let Some(policy) = dropping(&info) {
        tracing::warn!(
            %address,
            maxmemory_policy = policy,
            "this Redis drops counters when its memory is full, which gives their clients the whole limit \
             again: set maxmemory-policy to noeviction"
        );
    }
}

/// The policy by which a server drops keys; none if it does not.
pub(super) fn dropping(info: &str) -> Option<&str> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let policy = field("maxmemory_policy").map(str::trim).filter(|policy| *policy != "noeviction")?;
    let bound = field("maxmemory").map(str::trim).filter(|bytes| *bytes != "0");
    bound.map(|_| policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_and_a_policy_that_drops_make_a_warning() {
        let info = |bytes, policy| format!("# Memory\r\nmaxmemory:{bytes}\r\nmaxmemory_policy:{policy}\r\n");
        assert_eq!(dropping(&info(0, "allkeys-lru")), None);
        assert_eq!(dropping(&info(1_024, "noeviction")), None);
        assert_eq!(dropping(&info(1_024, "volatile-ttl")), Some("volatile-ttl"));
        assert_eq!(dropping(""), None);
    }
}
