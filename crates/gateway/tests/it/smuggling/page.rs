//! The tables of `docs/gateway-smuggling.md`, which are the data of the test.

use std::path::PathBuf;

/// A row: what is sent, and what becomes of it behind the gateway and behind nginx.
pub struct Row {
    pub what: String,
    pub request: String,
    pub gateway: String,
    pub nginx: String,
}

/// The page, and where its rows are.
pub struct Page {
    file: PathBuf,
    text: String,
}

impl Page {
    pub fn read() -> Self {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/gateway-smuggling.md");
        let text = std::fs::read_to_string(&file).unwrap();
        Self { file, text }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The rows of the table below the heading.
    pub fn rows(&self, heading: &str) -> Vec<Row> {
        self.lines(heading).iter().map(|line| row(line)).collect()
    }

    fn lines(&self, heading: &str) -> Vec<String> {
        let section = self.text.split(&format!("## {heading}\n")).nth(1).expect("the page has the heading");
        let section = section.split("\n## ").next().unwrap();
        section.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect()
    }

    /// Compares what happened with what the page says; with `INSTA_UPDATE=always` the page is made to say it.
    pub fn compare(&mut self, heading: &str, happened: &[Row]) {
        let before = self.lines(heading);
        let now: Vec<String> = happened
            .iter()
            .map(|row| format!("| {} | `{}` | `{}` | `{}` |", row.what, row.request, row.gateway, row.nginx))
            .collect();
        if std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always") {
            for (before, now) in before.iter().zip(&now) {
                self.text = self.text.replace(before, now);
            }
            std::fs::write(&self.file, &self.text).unwrap();
            return;
        }
        let differing: Vec<String> = before
            .iter()
            .zip(&now)
            .filter(|(before, now)| before != now)
            .map(|(before, now)| format!("page: {before}\n now: {now}"))
            .collect();
        assert!(differing.is_empty(), "{}", differing.join("\n"));
    }
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [what, request, gateway, nginx] = cells[..] else { panic!("a row has four cells: {line}") };
    let code = |cell: &str| cell.trim_matches('`').to_owned();
    Row { what: what.to_owned(), request: code(request), gateway: code(gateway), nginx: code(nginx) }
}

/// The bytes that a cell stands for: `\r`, `\n`, `\t`, `\0`, `\xNN`, `\\`, and `{x*1000}` for a thousand x.
pub fn bytes(cell: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = cell;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '\\' => {
                let kind = rest.chars().next().expect("something follows a backslash");
                rest = &rest[1..];
                bytes.push(match kind {
                    'r' => b'\r',
                    'n' => b'\n',
                    't' => b'\t',
                    '0' => 0,
                    '\\' => b'\\',
                    'x' => {
                        let (digits, after) = rest.split_at(2);
                        rest = after;
                        u8::from_str_radix(digits, 16).unwrap()
                    }
                    other => panic!("\\{other} stands for nothing"),
                });
            }
            '{' => {
                let (repeated, after) = rest.split_once('}').expect("a brace is closed");
                let (text, count) = repeated.rsplit_once('*').expect("text*count");
                bytes.extend(self::bytes(text).repeat(count.parse().unwrap()));
                rest = after;
            }
            plain => bytes.extend(plain.to_string().as_bytes()),
        }
    }
    bytes
}
