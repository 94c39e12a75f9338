//! What `Control::open` accepts, and what it refuses without touching it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use tidegate_algorithms::time::Wall;
use tidegate_control::{
    Author, Control, DATABASE_FILE, Error, Kind, LOCK_FILE, Limits, Precondition, Revision,
};

fn open(dir: &Path) -> Result<Control, Error> {
    Control::open(dir, Limits::default())
}

fn fill(dir: &Path, documents: usize) {
    let control = open(dir).unwrap();
    let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
    for number in 0..documents {
        let name = format!("policy-{number}");
        let body = format!("\"{}\"", "x".repeat(2_000));
        control.put((Kind::new("policy"), &name), &body, Precondition::None, &author).unwrap();
    }
}

#[test]
fn files_are_private() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("data");
    let control = open(&dir).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert!(dir.join(LOCK_FILE).exists() && dir.join(DATABASE_FILE).exists());
    drop(control);
}

#[test]
fn a_second_owner_is_refused_until_the_first_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path()).unwrap();
    let clone = first.clone();
    drop(first);
    let refused = open(dir.path()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("{} is in use by another tidegate process", dir.path().display())
    );
    drop(clone);
    open(dir.path()).unwrap();
}

#[test]
fn a_database_of_a_newer_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 1);
    let file = dir.path().join(DATABASE_FILE);
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = open(dir.path()).unwrap_err();
    assert!(matches!(refused, Error::Newer { found: 99, .. }), "{refused}");
    Connection::open(&file).unwrap().pragma_update(None, "user_version", -1).unwrap();
    assert!(matches!(open(dir.path()), Err(Error::Newer { found: -1, .. })));
}

#[test]
fn rows_of_a_version_that_kept_no_address_are_read() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 2);
    let older = "DROP TABLE used; ALTER TABLE audit DROP COLUMN asked_from; PRAGMA user_version = 3";
    Connection::open(dir.path().join(DATABASE_FILE)).unwrap().execute_batch(older).unwrap();
    let control = open(dir.path()).unwrap();
    let from = Author { actor: "test".to_owned(), at: Wall(1), from: Some("192.0.2.1".into()) };
    let made = control.put((Kind::new("policy"), "new"), "1", Precondition::None, &from).unwrap();
    let rows = control.audit(Revision(0), 1_000).unwrap();
    assert_eq!(rows.last().unwrap().revision, made);
    assert_eq!(rows.last().unwrap().author, from);
    assert!(rows[..rows.len() - 1].iter().all(|row| row.author.from.is_none()));
}

#[test]
fn another_programs_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(DATABASE_FILE);
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let refused = open(dir.path()).unwrap_err();
    assert!(matches!(&refused, Error::Corrupt { path, .. } if *path == file), "{refused}");
    let tables: String = Connection::open(&file)
        .unwrap()
        .query_row("SELECT name FROM sqlite_schema", [], |r| r.get(0))
        .unwrap();
    assert_eq!(tables, "theirs");
}

#[test]
fn a_damaged_database_is_named_and_left_alone() {
    let pristine = tempfile::tempdir().unwrap();
    fill(pristine.path(), 100);
    let bytes = fs::read(pristine.path().join(DATABASE_FILE)).unwrap();
    let mut torn = bytes.clone();
    torn.truncate(bytes.len() / 2);
    let mut scribbled = bytes.clone();
    scribbled[4096..].chunks_mut(64).for_each(|chunk| chunk.fill(0xA5));
    let cases =
        [("not SQLite", b"[policy]\nname = 1\n".repeat(600)), ("torn", torn), ("scribbled", scribbled)];
    for (what, bytes) in cases {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(DATABASE_FILE);
        fs::write(&file, &bytes).unwrap();
        let refused = open(dir.path()).unwrap_err();
        assert!(matches!(&refused, Error::Corrupt { path, .. } if *path == file), "{what}: {refused}");
        assert!(refused.to_string().contains(DATABASE_FILE), "{refused}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "{what}: the file was changed");
    }
}

#[test]
fn rows_that_this_program_cannot_have_written_are_refused() {
    let cases = [
        ("INSERT INTO document VALUES ('Sonnet 18', 'a', '1', 1)", "unknown word \"Sonnet 18\""),
        ("UPDATE document SET revision = 7", "7 is ahead of the audit log"),
    ];
    for (sql, message) in cases {
        let dir = tempfile::tempdir().unwrap();
        fill(dir.path(), 1);
        Connection::open(dir.path().join(DATABASE_FILE)).unwrap().execute_batch(sql).unwrap();
        let refused = open(dir.path()).unwrap_err();
        assert!(
            matches!(refused, Error::Corrupt { .. }) && refused.to_string().contains(message),
            "{refused}"
        );
    }
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = open(&file.join("below")).unwrap_err();
    assert!(matches!(&refused, Error::Io { path, .. } if path.starts_with(&file)), "{refused}");
}

#[test]
fn a_write_that_fails_half_way_changes_nothing() {
    const LAST_GOOD: u64 = 4;
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 1);
    // SQLite itself fails after the document was written and before the audit row is.
    let trigger = format!(
        "CREATE TRIGGER fail BEFORE INSERT ON audit WHEN NEW.revision > {LAST_GOOD}
         BEGIN SELECT RAISE(ABORT, 'no space'); END"
    );
    Connection::open(dir.path().join(DATABASE_FILE)).unwrap().execute_batch(&trigger).unwrap();
    let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
    let control = open(dir.path()).unwrap();
    let put = || control.put((Kind::new("policy"), "a"), "1", Precondition::None, &author);
    while control.snapshot().revision().0 < LAST_GOOD {
        put().unwrap();
    }
    let before = control.snapshot();
    for _ in 0..2 {
        let refused = put().unwrap_err();
        assert!(matches!(refused, Error::Database { .. }), "{refused}");
        assert_eq!(control.snapshot(), before);
    }
    drop(control);
    assert_eq!(open(dir.path()).unwrap().snapshot(), before);
}

#[test]
fn a_digit_that_flipped_in_the_file_is_said() {
    let pristine = tempfile::tempdir().unwrap();
    let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
    let control = open(pristine.path()).unwrap();
    let body = "{\"limit\":1357}";
    control.put((Kind::new("policy"), "p"), body, Precondition::None, &author).unwrap();
    control.put((Kind::new("policy"), "q"), "{}", Precondition::None, &author).unwrap();
    drop(control);
    let bytes = fs::read(pristine.path().join(DATABASE_FILE)).unwrap();
    let places: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(body.as_bytes())).collect();
    assert_eq!(places.len(), 2, "the document, and the audit row that wrote it");
    for place in places {
        let dir = tempfile::tempdir().unwrap();
        let mut flipped = bytes.clone();
        flipped[place + body.len() - 3] ^= 1;
        fs::write(dir.path().join(DATABASE_FILE), flipped).unwrap();
        let control = open(dir.path()).unwrap();
        let altered = control.altered();
        assert_eq!(altered.len(), 1, "{altered:?}");
        let stored = control.get(Kind::new("policy"), "p").unwrap();
        assert_eq!((&*altered[0].name, altered[0].revision), ("p", stored.revision));
        let both = [&*stored.body, altered[0].recorded.as_deref().unwrap()];
        assert!(both.contains(&body) && both.contains(&"{\"limit\":1347}"), "{both:?}");
        control.put((Kind::new("policy"), "p"), body, Precondition::None, &author).unwrap();
        assert!(control.altered().is_empty(), "put again");
    }
    assert!(open(pristine.path()).unwrap().altered().is_empty());
}

#[test]
fn a_damaged_page_that_only_changes_touch_is_said() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 50);
    let file = dir.path().join(DATABASE_FILE);
    // Pages that are free: the next large change takes one.
    Connection::open(&file).unwrap().execute_batch("DELETE FROM audit WHERE revision < 40").unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let field = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (size, first_free) = (usize::from(u16::from_be_bytes(bytes[16..18].try_into().unwrap())), field(32));
    assert_ne!(first_free, 0, "there are free pages");
    bytes[(first_free - 1) * size..][..size].fill(0xA5);
    fs::write(&file, &bytes).unwrap();

    let control = open(dir.path()).unwrap();
    let before = control.snapshot();
    let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
    let large = format!("\"{}\"", "x".repeat(50_000));
    control.put((Kind::new("policy"), "large"), &large, Precondition::None, &author).unwrap_err();
    assert!(!control.is_reachable());
    assert_eq!(control.snapshot(), before, "what is known stays");
}

#[test]
fn a_database_that_takes_no_change_is_known_from_the_start_and_until_it_does() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 1);
    let sql =
        |sql: &str| Connection::open(dir.path().join(DATABASE_FILE)).unwrap().execute_batch(sql).unwrap();
    sql("CREATE TRIGGER fail BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no space'); END");
    let author = Author { actor: "test".to_owned(), at: Wall(1), from: None };
    let control = open(dir.path()).unwrap();
    assert!(!control.is_reachable(), "tried out at the start");
    control.put((Kind::new("policy"), "a"), "1", Precondition::None, &author).unwrap_err();
    sql("DROP TRIGGER fail");
    control.put((Kind::new("policy"), "a"), "1", Precondition::None, &author).unwrap();
    assert!(control.is_reachable());
    let revision = control.snapshot().revision();
    drop(control);
    let again = open(dir.path()).unwrap();
    assert!(again.is_reachable());
    assert_eq!(again.snapshot().revision(), revision, "trying out leaves nothing");
}

#[test]
fn a_look_needs_no_lock_and_makes_no_file() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Control::look(&dir.path().join("nowhere")).unwrap().is_empty());
    assert!(Control::look(dir.path()).unwrap().is_empty());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fill(dir.path(), 2);
    let owner = open(dir.path()).unwrap();
    assert_eq!(Control::look(dir.path()).unwrap(), *owner.snapshot());
    drop(owner);
    assert_eq!(Control::look(dir.path()).unwrap().len(), 2, "without an owner too");
}
