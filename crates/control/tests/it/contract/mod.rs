//! One contract over both places that documents can be in: what holds for a data directory holds for
//! PostgreSQL, and there among several nodes.

mod counts;
mod documents;
mod model;
mod nodes;
mod secrets;

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
        self.server.sql(
            "DROP SCHEMA IF EXISTS tidegate_control CASCADE; DROP SCHEMA IF EXISTS tidegate_secrets CASCADE; \
             DROP SCHEMA IF EXISTS tidegate_counts CASCADE; DROP SCHEMA IF EXISTS tidegate_asked_from CASCADE; \
             DROP SCHEMA IF EXISTS tidegate_uses CASCADE; DROP SCHEMA IF EXISTS tidegate_nodes CASCADE",
        );
    }
}

macro_rules! contract {
    ($($file:ident::$case:ident)+) => {
        mod in_a_directory {
            $(#[test]
            fn $case() {
                super::$file::$case(&super::Directory::new());
            })+
        }

        /// One server for all cases: starting it takes longer than they do.
        #[test]
        fn in_postgres() {
            let (server, runtime) = (PostgresServer::start(&[]), Runtime::new().unwrap());
            let home = Database { server: &server, runtime: &runtime };
            $(
                home.clear();
                $file::$case(&home);
            )+
            model::the_store_agrees_with_a_map(&home, 8);
            home.clear();
            nodes::changes_are_heard_of_within_a_second(&home);
            home.clear();
            nodes::fault_20_nodes_change_at_once(&home);
            home.clear();
            nodes::a_node_waits_for_its_turn_and_then_decides_on_what_is_newest(&home);
            home.clear();
            nodes::a_turn_that_stands_still_or_is_lost_keeps_nobody_from_changing(&home);
            home.clear();
            nodes::a_node_that_missed_pruned_changes_loads_everything(&home);
            home.clear();
            nodes::a_node_of_an_earlier_version_shares_the_history(&home);
            home.clear();
            nodes::nodes_are_listed_by_name_and_those_that_are_gone_as_seen_last(&home);
            home.clear();
            counts::nodes_that_count_at_once_lose_nothing(&home);
            home.clear();
            counts::a_node_whose_clock_is_years_ahead_forgets_nothing_of_the_others(&home);
        }
    };
}

contract! {
    documents::a_change_is_there_after_a_restart
    documents::fault_20_two_admins_edit
    documents::a_precondition_that_fails_says_what_is_there
    documents::several_changes_are_made_together_or_not_at_all
    documents::old_audit_rows_are_pruned_and_counted
    documents::a_change_says_from_where_it_came
    documents::a_change_of_the_file_is_a_row_and_no_document
    documents::the_latest_use_of_a_document_is_kept_for_as_long_as_it_is_there
    documents::watchers_see_each_newest_revision
    secrets::a_secret_is_put_in_the_place_of_the_version_that_is_known
    secrets::a_secret_is_in_no_document_and_no_audit_row
    counts::a_batch_is_added_once_to_its_minute_hour_and_day
    counts::what_all_nodes_tell_apart_has_a_bound
    counts::spans_are_kept_by_number_up_to_what_is_said
    counts::a_clock_that_jumps_ahead_and_comes_back_takes_nothing_with_it
}

#[test]
fn the_store_agrees_with_a_map() {
    model::the_store_agrees_with_a_map(&Directory::new(), 48);
}
