//! `cargo xtask house`: what makes the code hard to read and no compiler counts.
//!
//! ```text
//!  sources -> rooms      the crates, their files, the code that is no test
//!               |-- circles (by imports), names, public, parameters, families   one file a measurement
//!               v
//!         HouseNumbers -> a table for people
//!               '------> list: xtask/house.toml, by which `cargo xtask tidy` refuses what is worse
//! ```
//!
//! Everything is read from words and signs, not by a compiler, so the numbers are good for comparing a state with the next and
//! no proof of anything. The definitions are those of docs/decisions/0390-the-house-is-measured-and-only-gets-better.md.
//!
//! Deliberately not here: a reason that lets one finding pass. The list has numbers, and a higher one is seen in the diff.

mod circles;
mod families;
mod imports;
mod list;
mod names;
mod parameters;
mod past;
mod public;
mod report;
mod rooms;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, bail};

use self::list::{Numbers, WorseNumber};
use self::rooms::rooms;
use crate::source::Source;

/// The committed list.
pub(crate) const LIST: &str = "xtask/house.toml";
/// The page that has all metrics.
const PAGE: &str = "docs/metrics.md";
/// The measurement that has ceilings.
const LINES: &str = "lines";
/// What stands in the place of a crate where all are counted together.
const ALL: &str = "workspace";
/// So many new ones are named in a finding.
const MAX_NAMED: usize = 6;

/// One thing that is counted.
struct HouseMeasure {
    /// Its table in the list.
    key: &'static str,
    /// What is counted, as a sentence of the list.
    meaning: &'static str,
    /// The head of its column.
    head: &'static str,
    /// How to mend one too many.
    mend: &'static str,
}

const MEASUREMENTS: [HouseMeasure; 7] = [
    HouseMeasure {
        key: LINES,
        meaning: "Lines of source, without tests: a ceiling for each crate",
        head: "lines",
        mend: "take out what is not needed, or raise the ceiling by hand and say in the commit what the lines are for",
    },
    HouseMeasure {
        key: "files_in_circles",
        meaning: "Files that use one another around",
        head: "in circles",
        mend: "move what both sides use into a file beneath them",
    },
    HouseMeasure {
        key: "same_name_in_crate",
        meaning: "Types whose name another type of the same crate has",
        head: "same name",
        mend: "give the new type a name that says what it is without its path",
    },
    HouseMeasure {
        key: "same_name_in_workspace",
        meaning: "Types whose name another type of the workspace has",
        head: "in workspace",
        mend: "give the new type a name that says what it is without its path",
    },
    HouseMeasure {
        key: "unused_public",
        meaning: "Public items of libraries that no other crate and no test below `tests/` names",
        head: "unused pub",
        mend: "make it `pub(crate)`, or remove it",
    },
    HouseMeasure {
        key: "tuple_parameters",
        meaning: "Functions of which a parameter is a tuple",
        head: "tuples",
        mend: "make the parts parameters of their own, or a struct with names",
    },
    HouseMeasure {
        key: "families_without_page",
        meaning: "Families of metrics that are not in docs/metrics.md",
        head: "families",
        mend: "the first comment of docs/metrics.md says how it is made anew",
    },
];

/// Something that is counted, with where it is.
#[derive(Debug)]
struct CountedItem {
    /// The crate that has it.
    room: String,
    /// What it is, in words that stay when other lines change.
    name: String,
    /// What else there is to say.
    detail: String,
}

/// All measurements of one state of the sources.
struct HouseNumbers {
    lines: BTreeMap<String, usize>,
    /// By the measurement's key.
    items: BTreeMap<&'static str, Vec<CountedItem>>,
    /// How many circles each crate has.
    circles: BTreeMap<String, usize>,
    types: usize,
    type_names: usize,
}

/// A number that is worse than the list, or the list itself if it has to be written.
pub(crate) struct BrokenNumber {
    /// Line of the list, counted from 1.
    pub(crate) line: usize,
    /// What is wrong and how to mend it.
    pub(crate) message: String,
}

/// Prints the measurements; with `--write` makes the list lower; with the name of a crate, lists what is counted there; with
/// `--at COMMIT` measures an earlier state.
///
/// # Errors
/// When the arguments are others, or a file cannot be read or written.
pub(crate) fn house(root: &Path, sources: &[Source], arguments: &[String]) -> anyhow::Result<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => print_now(root, sources),
        ["--write"] => write(root, sources),
        ["--at", commit] => {
            let (sources, page) = past::at(root, commit, PAGE)?;
            print(&report::table(&HouseNumbers::new(&sources, &page), None));
            Ok(())
        }
        [room] if !room.starts_with('-') => {
            let measured = HouseNumbers::new(sources, &page(root)?);
            let listed =
                report::room(&measured, room).with_context(|| format!("there is no crate `{room}`"))?;
            print(&listed);
            Ok(())
        }
        _ => bail!("cargo xtask house [CRATE | --write | --at COMMIT]"),
    }
}

/// Compares the sources with the committed list.
///
/// # Errors
/// When the list or the page of metrics cannot be read.
pub(crate) fn check(root: &Path, sources: &[Source]) -> anyhow::Result<Vec<BrokenNumber>> {
    let text = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let measured = HouseNumbers::new(sources, &page(root)?);
    let (worse, better) = list::compare(&list::read(&text)?, &measured.numbers());
    let before = if worse.is_empty() { None } else { before(root) };
    let mut broken: Vec<BrokenNumber> = worse
        .iter()
        .map(|difference| BrokenNumber {
            line: list::line_of(&text, &difference.key, &difference.room),
            message: message(difference, &measured, before.as_ref()),
        })
        .collect();
    if better > 0 {
        let message =
            format!("{better} numbers are better than these: `cargo xtask house --write` writes them down");
        broken.push(BrokenNumber { line: 1, message });
    }
    Ok(broken)
}

impl HouseNumbers {
    fn new(sources: &[Source], page: &str) -> Self {
        let rooms = rooms(sources);
        let circles: Vec<_> = rooms.iter().map(|room| (room.name.clone(), circles::circles(room))).collect();
        let numbers_of_circles =
            circles.iter().map(|(room, circles)| (room.clone(), circles.len())).collect();
        let in_circles = circles.into_iter().flat_map(|(_, circles)| circles).flatten().collect();
        let (types, type_names) = names::totals(&rooms);
        let lines = |room: &rooms::CrateRoom<'_>| room.files.iter().map(|file| file.lines).sum();
        Self {
            lines: rooms.iter().map(|room| (room.name.clone(), lines(room))).collect(),
            items: BTreeMap::from([
                ("files_in_circles", in_circles),
                ("same_name_in_crate", rooms.iter().flat_map(names::in_crate).collect()),
                ("same_name_in_workspace", names::in_workspace(&rooms)),
                ("unused_public", public::unused(&rooms)),
                ("tuple_parameters", rooms.iter().flat_map(parameters::tuples).collect()),
                ("families_without_page", families::undocumented(&rooms, page)),
            ]),
            circles: numbers_of_circles,
            types,
            type_names,
        }
    }

    fn items(&self, key: &str) -> &[CountedItem] {
        self.items.get(key).map_or(&[], Vec::as_slice)
    }

    /// How many there are, by measurement and crate.
    fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::from([(LINES.to_owned(), self.lines.clone())]);
        for (key, items) in &self.items {
            let rooms = numbers.entry((*key).to_owned()).or_default();
            for item in items {
                *rooms.entry(counted_under(key, item).to_owned()).or_default() += 1;
            }
        }
        numbers
    }
}

/// The crate of an item, or all: a name that crates share is the fault of none of them.
fn counted_under<'a>(key: &str, item: &'a CountedItem) -> &'a str {
    if key == "same_name_in_workspace" { ALL } else { &item.room }
}

fn print_now(root: &Path, sources: &[Source]) -> anyhow::Result<()> {
    let list = std::fs::read_to_string(root.join(LIST)).context(LIST)?;
    let ceilings = list::read(&list)?.remove(LINES).unwrap_or_default();
    print(&report::table(&HouseNumbers::new(sources, &page(root)?), Some(&ceilings)));
    Ok(())
}

fn write(root: &Path, sources: &[Source]) -> anyhow::Result<()> {
    let path = root.join(LIST);
    let listed = std::fs::read_to_string(&path).ok().map(|text| list::read(&text)).transpose()?;
    let measured = HouseNumbers::new(sources, &page(root)?).numbers();
    let lowered = list::lowered(listed.as_ref(), &measured);
    std::fs::write(&path, list::written(&lowered)).context(LIST)?;
    let (worse, _) = list::compare(&lowered, &measured);
    println!("{LIST} is written; {} numbers are worse than it says", worse.len());
    Ok(())
}

/// The measurements at the commit that last changed the list, and its name. What was committed there is what the list says.
fn before(root: &Path) -> Option<(String, HouseNumbers)> {
    let commit = past::last_change(root, LIST)?;
    let (sources, page) = past::at(root, &commit, PAGE).ok()?;
    Some((commit, HouseNumbers::new(&sources, &page)))
}

fn message(
    difference: &WorseNumber,
    measured: &HouseNumbers,
    before: Option<&(String, HouseNumbers)>,
) -> String {
    let WorseNumber { key, room, listed, measured: number } = difference;
    let Some(listed) = listed else {
        return format!("`{room}` has no ceiling of lines: `cargo xtask house --write` gives it one");
    };
    let kind = MEASUREMENTS.iter().find(|it| it.key == key);
    let (meaning, mend) = kind.map_or(("", ""), |it| (it.meaning, it.mend));
    let new =
        before.map(|(commit, before)| new_items(key, room, commit, measured, before)).unwrap_or_default();
    format!("`{room}`: {number} instead of {listed}. {meaning}{new}: {mend}")
}

/// What is counted now and was not at that commit.
fn new_items(key: &str, room: &str, commit: &str, measured: &HouseNumbers, before: &HouseNumbers) -> String {
    let known: BTreeSet<&str> = before.items(key).iter().map(|item| item.name.as_str()).collect();
    let is_new =
        |item: &&CountedItem| counted_under(key, item) == room && !known.contains(item.name.as_str());
    let new: Vec<String> = measured
        .items(key)
        .iter()
        .filter(is_new)
        .map(|item| format!("{}, {}", item.name, item.detail))
        .collect();
    if new.is_empty() {
        return String::new();
    }
    let more = if new.len() > MAX_NAMED { "; and others" } else { "" };
    format!("; new since {commit}: {}{more}", new[..new.len().min(MAX_NAMED)].join("; "))
}

fn page(root: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(root.join(PAGE)).context(PAGE)
}

fn print(text: &str) {
    print!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_what_is_new_and_says_how_to_mend_it() {
        let measured = |text: &str| HouseNumbers::new(&[Source::new("crates/x/src/lib.rs", text)], "");
        let before = measured("fn old(it: (u8, u8)) {}\n");
        let now = measured("fn new(it: (u8, u8)) {}\nfn old(it: (u8, u8)) {}\n");
        let listed = list::read("[lines]\nx = 250\n[tuple_parameters]\nx = 1\n").unwrap();
        let (worse, better) = list::compare(&listed, &now.numbers());
        assert_eq!((worse.len(), better), (1, 0));
        assert_eq!(
            message(&worse[0], &now, Some(&("1a2b3c4".to_owned(), before))),
            "`x`: 2 instead of 1. Functions of which a parameter is a tuple; new since 1a2b3c4: \
             `new` (crates/x/src/lib.rs), line 1: make the parts parameters of their own, or a struct with names"
        );
        assert!(message(&worse[0], &now, None).starts_with("`x`: 2 instead of 1. Functions of which"));
    }
}
