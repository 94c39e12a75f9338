//! Markdown as the tidy rules read it: headings, links and inline code, outside fenced blocks.
//!
//! Not a Markdown parser: it knows what this repository's documents use. Indented code blocks and
//! link titles are not recognised; nested brackets inside a link's text are.

/// A document's parts; lines are counted from 0.
#[derive(Default)]
pub(crate) struct Document {
    /// The anchors that its headings make, as GitHub names them.
    pub(crate) anchors: Vec<String>,
    /// Link targets, images' included.
    pub(crate) links: Vec<(usize, String)>,
    /// The insides of `code` spans.
    pub(crate) spans: Vec<(usize, String)>,
}

impl Document {
    /// Reads a document.
    pub(crate) fn new(text: &str) -> Self {
        let mut document = Self::default();
        let mut fence: Option<&str> = None;
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim_start();
            let mark = ["```", "~~~"].into_iter().find(|mark| trimmed.starts_with(mark));
            match (fence, mark) {
                (None, Some(mark)) => fence = Some(mark),
                (Some(open), Some(mark)) if open == mark => fence = None,
                (None, None) => document.read_line(number, line),
                (Some(_), _) => {}
            }
        }
        document
    }

    fn read_line(&mut self, number: usize, line: &str) {
        if let Some(heading) = heading(line) {
            let slug = slug(heading);
            let same = self.anchors.iter().filter(|anchor| **anchor == slug).count();
            self.anchors.push(if same == 0 { slug } else { format!("{slug}-{same}") });
        }
        let prose = self.take_spans(number, line);
        for (at, _) in prose.match_indices("](") {
            let target = &prose[at + 2..];
            let end = target.find([')', ' ']).unwrap_or(target.len());
            self.links.push((number, target[..end].to_owned()));
        }
        // A reference definition: `[name]: target`.
        if let Some((_, target)) = prose.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            let target = target.split_whitespace().next().unwrap_or_default();
            self.links.push((number, target.to_owned()));
        }
    }

    /// Keeps the code spans and returns the line with them blanked.
    fn take_spans(&mut self, number: usize, line: &str) -> String {
        let mut prose = String::new();
        for (index, piece) in line.split('`').enumerate() {
            if index % 2 == 0 {
                prose.push_str(piece);
            } else {
                self.spans.push((number, piece.to_owned()));
                prose.push_str("code");
            }
        }
        prose
    }
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    (1..=6).contains(&level).then(|| text.strip_prefix(' ')).flatten()
}

/// The anchor GitHub gives a heading: lower case, punctuation dropped, spaces to hyphens.
fn slug(heading: &str) -> String {
    let lower = heading.trim().to_lowercase();
    let kept = lower.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_spans_are_read_outside_fences() {
        let text =
            "See [a `b` c](docs/a.md#x) and ![pic](p.png \"t\").\n```\n[no](no.md)\n```\n[ref]: other.md\n";
        let document = Document::new(text);
        let links: Vec<_> = document.links.iter().map(|(line, to)| (*line, to.as_str())).collect();
        assert_eq!(links, [(0, "docs/a.md#x"), (0, "p.png"), (4, "other.md")]);
        assert_eq!(document.spans, [(0, "b".to_owned())]);
    }

    #[test]
    fn anchors_are_named_as_github_names_them() {
        let text = "# The house: `make run`, 2 ways\n## Two  words\n## Same\n## Same\n#not a heading\n";
        assert_eq!(
            Document::new(text).anchors,
            ["the-house-make-run-2-ways", "two--words", "same", "same-1"]
        );
    }
}
