//! Circles of files: files that use one another around, so that none of them can be read, or taken out, without all the others.

use std::collections::BTreeSet;

use super::CountedItem;
use super::imports::{Uses, uses};
use super::rooms::CrateRoom;

/// The circles of the crate: of each, its files with the files of the circle that they use.
pub(super) fn circles(room: &CrateRoom<'_>) -> Vec<Vec<CountedItem>> {
    let uses = uses(&room.files);
    let circles = groups(&uses.edges);
    let items =
        circles.iter().map(|circle| circle.iter().map(|place| item(room, &uses, circle, *place)).collect());
    items.collect()
}

fn item(room: &CrateRoom<'_>, uses: &Uses<'_>, circle: &[usize], place: usize) -> CountedItem {
    let module = |place: usize| {
        let names = uses.files[place].module.as_deref().unwrap_or_default();
        if names.is_empty() { "the root".to_owned() } else { names.join("::") }
    };
    let used: Vec<String> =
        circle.iter().filter(|other| uses.edges[place].contains(other)).map(|other| module(*other)).collect();
    CountedItem {
        room: room.name.clone(),
        name: uses.files[place].source.path.clone(),
        detail: format!("in a circle of {} files, by its use of {}", circle.len(), used.join(", ")),
    }
}

/// The sets of nodes that reach one another, in the order of their first nodes.
fn groups(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..edges.len()).map(|from| reach(edges, from)).collect();
    let mut grouped = BTreeSet::new();
    let mut found = Vec::new();
    for (from, reached_from) in reached.iter().enumerate() {
        let group: Vec<usize> =
            reached_from.iter().copied().filter(|to| reached[*to].contains(&from)).collect();
        if !group.is_empty() && !grouped.contains(&from) {
            grouped.extend(group.iter().copied());
            found.push(group);
        }
    }
    found
}

/// What is reached from a node by one step or more.
fn reach(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<usize> = edges[from].iter().copied().collect();
    while let Some(node) = open.pop() {
        if reached.insert(node) {
            open.extend(&edges[node]);
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::rooms::rooms;
    use crate::source::Source;

    #[test]
    fn what_reaches_itself_is_a_circle_and_what_only_hangs_on_it_is_not() {
        let edges = [vec![1], vec![2, 3], vec![0], vec![4], vec![3], vec![0]];
        let edges: Vec<BTreeSet<usize>> = edges.into_iter().map(BTreeSet::from_iter).collect();
        assert_eq!(groups(&edges), [vec![0, 1, 2], vec![3, 4]]);
    }

    #[test]
    fn the_files_of_a_circle_are_listed_with_what_holds_them() {
        let sources = [
            Source::new("crates/x/src/lib.rs", "mod a; mod b; mod c;"),
            Source::new("crates/x/src/a.rs", "use crate::b::B; use crate::c::C; pub struct A;"),
            Source::new("crates/x/src/b.rs", "pub struct B(super::a::A);"),
            Source::new("crates/x/src/c.rs", "pub struct C;"),
        ];
        let room = rooms(&sources).remove(0);
        let circles = circles(&room);
        assert_eq!(circles.len(), 1);
        let found: Vec<_> = circles.into_iter().flatten().map(|item| (item.name, item.detail)).collect();
        let of = |file: &str, used: &str| {
            (format!("crates/x/src/{file}.rs"), format!("in a circle of 2 files, by its use of {used}"))
        };
        assert_eq!(found, [of("a", "b"), of("b", "a")]);
    }
}
