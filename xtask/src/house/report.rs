//! The measurements for people: a table of all crates, or what is counted in one.

use std::collections::BTreeMap;

use super::{HouseNumbers, LINES, MEASUREMENTS};

/// A row for each crate, and what holds for all.
pub(super) fn table(measured: &HouseNumbers, ceilings: Option<&BTreeMap<String, usize>>) -> String {
    let mut text = format!("{:14}", "crate");
    for measurement in &MEASUREMENTS {
        text += &format!(" {:>12}", measurement.head);
    }
    text.push_str(if ceilings.is_some() { "      ceiling\n" } else { "\n" });
    for room in measured.lines.keys() {
        text.push_str(&row(measured, Some(room)));
        let ceiling = ceilings.and_then(|ceilings| ceilings.get(room));
        text.push_str(&ceiling.map(|lines| format!(" {lines:>12}\n")).unwrap_or_else(|| "\n".to_owned()));
    }
    text.push_str(&row(measured, None));
    let names = measured.items("same_name_in_workspace");
    let (circles, types) = (measured.circles.values().sum::<usize>(), measured.types);
    let once = types - names.len();
    text += &format!(
        "\n\n{circles} circles of files. {types} types have {} names; {} of these belong to several types. \
         `cargo xtask house CRATE` lists what is counted.\n",
        measured.type_names,
        measured.type_names - once,
    );
    text
}

/// The numbers of one crate, or of all together.
fn row(measured: &HouseNumbers, room: Option<&String>) -> String {
    let mut text = format!("{:14}", room.map_or("together", String::as_str));
    for measurement in &MEASUREMENTS {
        let is_here = |name: &String| room.is_none_or(|room| room == name);
        let number = if measurement.key == LINES {
            measured.lines.iter().filter(|(name, _)| is_here(name)).map(|(_, lines)| lines).sum()
        } else {
            measured.items(measurement.key).iter().filter(|item| is_here(&item.room)).count()
        };
        text += &format!(" {number:>12}");
    }
    text
}

/// Everything that is counted in one crate; `None` if there is no such crate.
pub(super) fn room(measured: &HouseNumbers, name: &str) -> Option<String> {
    let mut text =
        format!("{name}: {} lines, {} circles\n", measured.lines.get(name)?, measured.circles.get(name)?);
    for measurement in &MEASUREMENTS {
        let items: Vec<_> = measured.items(measurement.key).iter().filter(|item| item.room == name).collect();
        if !items.is_empty() {
            text += &format!("\n{}: {}\n", measurement.meaning, items.len());
        }
        for item in items {
            text += &format!("  {}: {}\n", item.name, item.detail);
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;

    #[test]
    fn the_table_has_all_crates_and_the_list_of_one_has_what_is_counted_there() {
        let sources = [
            Source::new("crates/x/src/lib.rs", "pub struct Entry;\nfn f(it: (u8, u8)) {}\n"),
            Source::new("xtask/src/main.rs", "struct Entry;\nfn main() { f(\"tidegate_lost\") }\n"),
        ];
        let measured = HouseNumbers::new(&sources, "");
        let table = table(&measured, Some(&BTreeMap::from([("x".to_owned(), 250)])));
        let row = |name: &str| {
            table.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(row("x "), ["x", "2", "0", "0", "1", "0", "1", "0", "250"]);
        assert_eq!(row("together"), ["together", "4", "0", "0", "2", "0", "1", "1"]);
        assert!(
            table.contains("0 circles of files. 2 types have 1 names; 1 of these belong to several types."),
            "{table}"
        );
        let room = room(&measured, "x").unwrap();
        assert!(room.contains("`f` (crates/x/src/lib.rs): line 2"), "{room}");
        assert!(!room.contains("xtask/src/main.rs") && super::room(&measured, "y").is_none());
    }
}
