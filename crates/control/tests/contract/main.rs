//! One contract over both places that documents can be in: what holds for a data directory holds for
//! PostgreSQL, and there among several nodes.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by unwrapping it")]

mod documents;
mod model;
mod nodes;

use std::cell::RefCell;

use tempfile::TempDir;
use tidegate_control::{Control, Limits, Place};
use tidegate_testkit::postgres::PostgresServer;
use tokio::runtime::Runtime;

/// Where a case finds its documents again after a restart.
trait Home {
    fn open(&self, limits: Limits) -> Control;
    /// Makes it empty.
    fn clear(&self);
}

/// A data directory of one's own.
struct Directory(RefCell<TempDir>);

/// A database on a server that cases share, one after the other.
struct Database<'s> {
    server: &'s PostgresServer,
    runtime: &'s Runtime,
}

/// A data directory that cannot be: these nodes keep no copy.
const NOWHERE: &str = "/dev/null/nowhere";

impl Directory {
    fn new() -> Self {
        Self(RefCell::new(tempfile::tempdir().unwrap()))
    }
}

impl Home for Directory {
    fn open(&self, limits: Limits) -> Control {
        Control::open(&self.0.borrow().path().join("not/yet/there"), limits).unwrap()
    }

    fn clear(&self) {
        self.0.replace(tempfile::tempdir().unwrap());
    }
}

impl Home for Database<'_> {
    fn open(&self, limits: Limits) -> Control {
        let place = Place::parse(&self.server.connection_string()).unwrap();
        Control::connect(place, NOWHERE.as_ref(), limits, self.runtime.handle()).unwrap()
    }

    fn clear(&self) {
        self.server.sql("DROP SCHEMA IF EXISTS tidegate_control CASCADE");
    }
}

macro_rules! contract {
    ($($case:ident)+) => {
        mod in_a_directory {
            $(#[test]
            fn $case() {
                super::documents::$case(&super::Directory::new());
            })+
        }

        /// One server for all cases: starting it takes longer than they do.
        #[test]
        fn in_postgres() {
            let (server, runtime) = (PostgresServer::start(&[]), Runtime::new().unwrap());
            let home = Database { server: &server, runtime: &runtime };
            $(
                home.clear();
                documents::$case(&home);
            )+
            model::the_store_agrees_with_a_map(&home, 8);
            home.clear();
            nodes::changes_are_heard_of_within_a_second(&home);
            home.clear();
            nodes::fault_20_nodes_change_at_once(&home);
            home.clear();
            nodes::a_node_that_missed_pruned_changes_loads_everything(&home);
        }
    };
}

contract! {
    a_change_is_there_after_a_restart
    fault_20_two_admins_edit
    a_precondition_that_fails_says_what_is_there
    several_changes_are_made_together_or_not_at_all
    old_audit_rows_are_pruned_and_counted
    watchers_see_each_newest_revision
}

#[test]
fn the_store_agrees_with_a_map() {
    model::the_store_agrees_with_a_map(&Directory::new(), 48);
}
