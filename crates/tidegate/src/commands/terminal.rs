//! The terminal of a run: how large it is, and lines that are drawn over themselves.
//!
//! Everything goes to standard error, so that standard output is the result alone. A terminal that is
//! gone is no reason to lose a run.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{Winsize, tcgetwinsize};

/// Size of a terminal that does not say: the one that everybody had.
const USUAL: (usize, usize) = (80, 24);
/// Narrowest terminal that lines are broken for.
const NARROWEST: usize = 40;

/// Whether lines can be drawn over.
pub(super) fn can_redraw() -> bool {
    io::stderr().is_terminal()
}

/// Columns and rows, as of now: a window may be resized while a run goes on.
pub(super) fn size() -> (usize, usize) {
    known(tcgetwinsize(io::stderr()).ok())
}

/// The same of the terminal that standard output is.
pub(super) fn output_size() -> (usize, usize) {
    known(tcgetwinsize(io::stdout()).ok())
}

fn known(size: Option<Winsize>) -> (usize, usize) {
    let known = size.filter(|size| size.ws_col > 0 && size.ws_row > 0);
    known.map_or(USUAL, |size| (size.ws_col.into(), size.ws_row.into()))
}

/// Text without what moves a terminal's cursor: names in it come from files and from other programs.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

/// Text for standard error, its lines no longer than a terminal is wide; for a file as it is.
pub(super) fn for_errors(text: &str) -> String {
    let text = plain(text);
    if can_redraw() { wrapped(&text, size().0) } else { text }
}

/// The same for standard output.
pub(super) fn for_output(text: &str) -> String {
    let size = tcgetwinsize(io::stdout()).ok().filter(|_| io::stdout().is_terminal());
    let text = plain(text);
    match size.filter(|size| size.ws_col > 0) {
        Some(size) => wrapped(&text, size.ws_col.into()),
        None => text,
    }
}

/// Breaks long lines at blanks; what follows stands below where the line's own text begins.
fn wrapped(text: &str, columns: usize) -> String {
    let columns = columns.max(NARROWEST);
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
        let indent = hanging(content);
        let mut width = 0;
        for (index, word) in content.split(' ').enumerate() {
            let length = word.chars().count();
            if index > 0 && width + 1 + length > columns && width > indent {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                width = indent;
            } else if index > 0 {
                out.push(' ');
                width += 1;
            }
            out.push_str(word);
            width += length;
        }
        out.push_str(end);
    }
    out
}

/// Column of a line's text behind its label (two blanks or more end one) or its bullet.
fn hanging(line: &str) -> usize {
    let start = line.len() - line.trim_start().len();
    if line[start..].starts_with("- ") {
        return start + 2;
    }
    let label = line[start..].find("  ").map(|at| start + at);
    let text = label.map(|at| at + line[at..].len() - line[at..].trim_start().len());
    text.filter(|&at| at <= 16).unwrap_or(start + 2)
}

/// Writes text as it is.
pub(super) fn say(text: &str) {
    let mut errors = io::stderr().lock();
    let _gone = errors.write_all(text.as_bytes()).and_then(|()| errors.flush()).is_err();
}

/// Lines that the next drawing replaces.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    lines: usize,
}

impl Canvas {
    /// Draws over what was drawn last.
    pub(super) fn draw(&mut self, lines: &[String]) {
        // One write: a reader sees the old picture or the new one.
        let picture = self.back() + &lines.join("\n") + "\n";
        self.lines = lines.len();
        say(&picture);
    }

    /// Takes the drawing away.
    pub(super) fn erase(&mut self) {
        let back = self.back();
        self.lines = 0;
        say(&back);
    }

    /// Leaves the drawing where it is: what comes next stands below it.
    pub(super) fn keep(&mut self) {
        self.lines = 0;
        say("\n");
    }

    /// To the first line of the last drawing, and everything below it gone.
    fn back(&self) -> String {
        // From the first column: a terminal echoes `^C` where the cursor stands.
        if self.lines == 0 { String::new() } else { format!("\r\u{1b}[{}A\u{1b}[J", self.lines) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_blanks_below_their_text() {
        let text = "note    2 cores for the generator, shared with the target\n  - latency grows with the connections: 10.2 ms at 8\nshort\n";
        let expected = "note    2 cores for the generator,\n        shared with the target\n  \
                        - latency grows with the connections:\n    10.2 ms at 8\nshort\n";
        assert_eq!(wrapped(text, 40), expected);
        assert_eq!(wrapped(text, 200), text);
        assert_eq!(plain("a\u{1b}[2J\tb\r\n\u{9b}1m"), "a\u{fffd}[2J\tb\u{fffd}\n\u{fffd}1m");
        assert_eq!(wrapped(&"x".repeat(50), 40), "x".repeat(50), "a word is not broken");
    }
}
