//! The committed list of what the measurements may give at most: `xtask/house.toml`.
//!
//! Numbers by crate rather than names, so that a renamed or moved file changes nothing. A number that is worse than the list is a
//! finding, and so is a better one, until it is written down: otherwise the next change could use up what this one has won.
//! Lines are different, since almost every change alters them: a crate has a ceiling, a multiple of [`STEP`], and it comes down when
//! two steps are free.

use std::collections::BTreeMap;

use anyhow::Context;

use super::{LINES, MEASUREMENTS};

/// Ceilings of lines are multiples of this.
const STEP: usize = 250;
/// A ceiling leaves so many lines at least, so that the next small change does not reach it.
const FREE: usize = 100;

/// By measurement and crate, how much there is, or may be at most.
pub(super) type Numbers = BTreeMap<String, BTreeMap<String, usize>>;

/// One number that is not as the list has it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WorseNumber {
    /// The measurement's key.
    pub(super) key: String,
    /// The crate, or all of them.
    pub(super) room: String,
    /// What the list has; for a crate's lines, `None` if it has no ceiling.
    pub(super) listed: Option<usize>,
    /// What there is.
    pub(super) measured: usize,
}

/// Reads the list.
///
/// # Errors
/// When this is no TOML of tables of numbers.
pub(super) fn read(text: &str) -> anyhow::Result<Numbers> {
    toml::from_str(text)
        .context("xtask/house.toml has a table for each measurement, with a number for each crate")
}

/// What is worse than the list, and how many numbers are better.
pub(super) fn compare(listed: &Numbers, measured: &Numbers) -> (Vec<WorseNumber>, usize) {
    let (mut worse, mut better) = (Vec::new(), 0);
    for measurement in MEASUREMENTS {
        let (was, is) = (table(listed, measurement.key), table(measured, measurement.key));
        for (room, number) in &is {
            let at_most = was.get(room).copied().or((measurement.key != LINES).then_some(0));
            match at_most {
                Some(at_most) if is_better(measurement.key, at_most, *number) => better += 1,
                Some(at_most) if *number <= at_most => {}
                _ => worse.push(WorseNumber {
                    key: measurement.key.to_owned(),
                    room: room.clone(),
                    listed: at_most,
                    measured: *number,
                }),
            }
        }
        better += was.keys().filter(|room| !is.contains_key(*room)).count();
    }
    (worse, better)
}

/// The list with what is better; with everything if there was none.
pub(super) fn lowered(listed: Option<&Numbers>, measured: &Numbers) -> Numbers {
    let mut lowered = Numbers::new();
    for (key, rooms) in measured {
        let known = listed.map(|listed| table(listed, key));
        for (room, number) in rooms {
            let was = known.as_ref().and_then(|known| known.get(room)).copied();
            let is = match was {
                Some(was) if !is_better(key, was, *number) => was,
                None if known.is_some() && key != LINES => continue,
                _ => ceiling(key, *number),
            };
            lowered.entry(key.clone()).or_default().insert(room.clone(), is);
        }
    }
    lowered
}

/// The file of a list.
pub(super) fn written(list: &Numbers) -> String {
    let mut text = "# What `cargo xtask house` may measure at most; `cargo xtask tidy` compares. The numbers go down: \
                    `cargo xtask house --write`\n# writes those that became better. A ceiling of lines may be raised by hand, \
                    with the reason in the commit. What is not here is 0.\n"
        .to_owned();
    for measurement in MEASUREMENTS {
        text += &format!("\n# {}.\n[{}]\n", measurement.meaning, measurement.key);
        for (room, number) in table(list, measurement.key) {
            text += &format!("{room} = {number}\n");
        }
    }
    text
}

/// The line of the list, counted from 1, that has this number, or else the head of its table.
pub(super) fn line_of(text: &str, key: &str, room: &str) -> usize {
    let head = text.lines().position(|line| line == format!("[{key}]")).unwrap_or(0);
    let rows = text.lines().enumerate().skip(head + 1).take_while(|(_, line)| !line.starts_with('['));
    let mut row = rows.filter(|(_, line)| line.split(' ').next() == Some(room));
    row.next().map_or(head, |(number, _)| number) + 1
}

fn table(numbers: &Numbers, key: &str) -> BTreeMap<String, usize> {
    numbers.get(key).cloned().unwrap_or_default()
}

fn is_better(key: &str, listed: usize, measured: usize) -> bool {
    if key == LINES { measured + 2 * STEP <= listed } else { measured < listed }
}

fn ceiling(key: &str, measured: usize) -> usize {
    if key == LINES { (measured + FREE).next_multiple_of(STEP) } else { measured }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(rows: &[(&str, &str, usize)]) -> Numbers {
        let mut found = Numbers::new();
        for (key, room, number) in rows {
            found.entry((*key).to_owned()).or_default().insert((*room).to_owned(), *number);
        }
        found
    }

    #[test]
    fn the_list_is_read_as_it_is_written() {
        let list =
            numbers(&[(LINES, "net", 7500), ("tuple_parameters", "net", 3), ("unused_public", "edge", 1)]);
        let text = written(&list);
        assert_eq!(
            read(&text).unwrap().into_iter().filter(|(_, rooms)| !rooms.is_empty()).collect::<Numbers>(),
            list
        );
        let line = |key, room| text.lines().nth(line_of(&text, key, room) - 1).unwrap().to_owned();
        assert_eq!(line("tuple_parameters", "net"), "net = 3");
        assert_eq!(line("unused_public", "net"), "[unused_public]");
    }

    #[test]
    fn what_is_worse_or_new_is_named_and_what_is_better_is_counted() {
        let list = numbers(&[
            ("tuple_parameters", "net", 3),
            ("tuple_parameters", "gone", 1),
            ("unused_public", "net", 2),
        ]);
        let measured = numbers(&[
            ("tuple_parameters", "net", 4),
            ("tuple_parameters", "edge", 1),
            ("unused_public", "net", 1),
        ]);
        let (worse, better) = compare(&list, &measured);
        let named: Vec<_> = worse.iter().map(|it| (it.room.as_str(), it.listed, it.measured)).collect();
        assert_eq!(named, [("edge", Some(0), 1), ("net", Some(3), 4)]);
        assert_eq!(better, 2);
        // What is worse is not written: neither a higher number nor one that there was not.
        let expected = numbers(&[("tuple_parameters", "net", 3), ("unused_public", "net", 1)]);
        assert_eq!(lowered(Some(&list), &measured), expected);
        assert_eq!(lowered(None, &measured), measured);
    }

    #[test]
    fn a_ceiling_of_lines_leaves_room_and_comes_down_by_two_steps() {
        let list = numbers(&[(LINES, "net", 7500)]);
        for (lines, is_worse, is_better, next) in [
            (7500, 0, 0, 7500),
            (7501, 1, 0, 7500),
            (7001, 0, 0, 7500),
            (7000, 0, 1, 7250),
            (6751, 0, 1, 7000),
        ] {
            let measured = numbers(&[(LINES, "net", lines)]);
            let (worse, better) = compare(&list, &measured);
            assert_eq!((worse.len(), better), (is_worse, is_better), "{lines}");
            assert_eq!(lowered(Some(&list), &measured)[LINES]["net"], next, "{lines}");
        }
        // A new crate has no ceiling until one is written.
        let measured = numbers(&[(LINES, "net", 7400), (LINES, "new", 10)]);
        assert_eq!(compare(&list, &measured).0[0].listed, None);
        assert_eq!(lowered(Some(&list), &measured)[LINES]["new"], 250);
    }
}
