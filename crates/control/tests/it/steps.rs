//! Databases of older versions are brought up to date by [`Control::open`] and keep what they have. `older/` has one of each schema
//! that there was, as its program left it.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Author, Batch, Control, Counted, DATABASE_FILE, Kind, Limits, Period, Precondition, Revision, Span, Sums,
};

const POLICY: Kind = Kind::new("policy");

fn version(file: &Path) -> i64 {
    let connection = Connection::open(file).unwrap();
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

/// The version that this program makes.
fn newest() -> i64 {
    let dir = tempfile::tempdir().unwrap();
    drop(Control::open(dir.path(), Limits::default()).unwrap());
    version(&dir.path().join(DATABASE_FILE))
}

/// A folder with the database of an older version.
fn older(number: i64) -> (tempfile::TempDir, PathBuf) {
    let sql = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/older/{number}.sql"));
    let sql = fs::read_to_string(&sql).unwrap_or_else(|error| {
        panic!(
            "{}: {error}: put there what `sqlite3 control.sqlite .dump` says of version {number}",
            sql.display()
        )
    });
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(DATABASE_FILE);
    Connection::open(&file).unwrap().execute_batch(&sql).unwrap();
    assert_eq!(version(&file), number);
    (dir, file)
}

#[test]
fn every_older_database_is_brought_up_to_date_and_keeps_what_it_has() {
    let newest = newest();
    for number in 1..newest {
        let (dir, file) = older(number);
        // A look changes nothing, and sees the same.
        let looked = Control::look(dir.path()).unwrap();
        assert_eq!(version(&file), number);
        let control = Control::open(dir.path(), Limits::default()).unwrap();
        assert_eq!(version(&file), newest, "from {number}");
        assert_eq!(*control.snapshot(), looked);
        assert!(control.is_reachable() && control.altered().is_empty());
        let kept = control.get(POLICY, "api").unwrap();
        assert_eq!((&*kept.body, kept.revision), ("{\"limit\":100}", Revision(3)));
        let audit = control.audit(Revision(0), 10).unwrap();
        let told: Vec<_> = audit.iter().map(|row| (row.revision.0, &*row.author.actor, &*row.name)).collect();
        let expected =
            [(1, "local", "api"), (2, "token:ops", "gone"), (3, "token:ops", "api"), (4, "local", "gone")];
        assert_eq!(told, expected);
        let secrets = control.secrets().unwrap();
        assert_eq!(
            secrets.iter().map(|secret| secret.version).collect::<Vec<_>>(),
            [7][usize::from(number < 2)..]
        );

        let from: Vec<_> = audit.iter().filter_map(|row| row.author.from.as_deref()).collect();
        assert_eq!(from, ["10.0.0.1"][usize::from(number < 4)..]);

        // What later versions have can be put into it.
        let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
        let changed = control.put((POLICY, "api"), "{\"limit\":200}", Precondition::None, &author).unwrap();
        assert_eq!(changed, Revision(5));
        control.put_secret("new", "kept, too", 0).unwrap();
        let sums = Sums { requests: 3, ..Sums::default() };
        let rows = vec![Counted { labels: "a".to_owned(), otherwise: "others".to_owned(), sums }];
        let batch = Batch { writer: 1, number: 1, minute: 1_700_000_040, rows };
        control.add_counts(&batch, 1_700_000_100).unwrap();
        drop(control);
        let control = Control::open(dir.path(), Limits::default()).unwrap();
        assert_eq!(control.get(POLICY, "api").unwrap().body.as_ref(), "{\"limit\":200}");
        assert_eq!(control.secrets().unwrap().len(), secrets.len() + 1);
        let period = Period { span: Span::Day, from: 0, to: u64::MAX };
        let (requests, _) =
            control.read_counts(period, 1, |all: &mut u64, _, _, sums| *all += sums.requests).unwrap();
        assert_eq!(requests, if number < 3 { 3 } else { 8 });
    }
    assert!(!Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/older/{newest}.sql")).exists());
}

#[test]
fn a_step_that_fails_leaves_the_database_at_the_one_before() {
    let (dir, file) = older(1);
    let connection = Connection::open(&file).unwrap();
    // The second of the two tables that the third step makes.
    connection.execute_batch("CREATE TABLE counted_writer (somebody_elses TEXT)").unwrap();
    let refused = Control::open(dir.path(), Limits::default()).unwrap_err().to_string();
    assert!(refused.contains("counted_writer"), "{refused}");
    assert_eq!(version(&file), 2);
    let begun: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'counted'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(begun, 0, "half a step");
    connection.execute_batch("DROP TABLE counted_writer").unwrap();
    let control = Control::open(dir.path(), Limits::default()).unwrap();
    assert_eq!((version(&file), control.snapshot().len()), (newest(), 1));
}
