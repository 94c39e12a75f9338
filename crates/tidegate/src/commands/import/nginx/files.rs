//! The files of a configuration: one, and those that it includes, as one tree.
//!
//! Names of included files are relative to the first file's folder, as nginx has them relative to its own; their last
//! part may have `*`. How many files, how deep and how many bytes is bounded, so that a file which includes
//! itself ends in a mistake.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_algorithms::policy::Pattern;
use tidegate_wire::nginx_conf::{Directive, read};
use tidegate_wire::yaml::{Finding, MAX_BYTES, Position};

use super::super::product::SourceLocation;
use super::super::{Located, Refused};

/// Most files that include one another in a row.
const MAX_DEPTH: usize = 16;
/// Most files in all.
const MAX_FILES: usize = 500;
/// Most bytes of all of them.
const MAX_TOTAL_BYTES: usize = 16 << 20;
/// Most mistakes that are kept.
const MAX_MISTAKES: usize = 1_000;

/// A directive, and the file that it is in.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) file: Arc<str>,
    pub(super) place: Position,
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    pub(super) block: Option<Vec<Self>>,
}

impl Node {
    pub(super) fn source(&self) -> SourceLocation {
        SourceLocation { file: Arc::clone(&self.file), place: self.place }
    }

    /// The arguments as texts, for matching.
    pub(super) fn words(&self) -> Vec<&str> {
        self.arguments.iter().map(String::as_str).collect()
    }

    /// The only argument.
    pub(super) fn argument(&self) -> Option<&str> {
        match &self.arguments[..] {
            [only] => Some(only),
            _ => None,
        }
    }
}

/// Reads `path` and everything that it includes.
pub(super) fn load(path: &Path) -> Result<Vec<Node>, Refused> {
    let name = path.display().to_string();
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut files = Files { folder, files: 0, bytes: 0, mistakes: Vec::new() };
    let bytes = files.bytes(path).map_err(|error| Refused::Unreadable(name.clone(), error))?;
    let nodes = files.nodes(&bytes, &name.into(), 0);
    if files.mistakes.is_empty() { Ok(nodes) } else { Err(Refused::Mistakes(files.mistakes)) }
}

struct Files {
    folder: PathBuf,
    files: usize,
    bytes: usize,
    mistakes: Vec<Located>,
}

impl Files {
    fn bytes(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(io::Error::other(format!("there are more than {MAX_FILES} files")));
        }
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        self.bytes += bytes.len();
        if self.bytes > MAX_TOTAL_BYTES {
            return Err(io::Error::other(format!("the files have more than {MAX_TOTAL_BYTES} bytes")));
        }
        Ok(bytes)
    }

    fn nodes(&mut self, bytes: &[u8], file: &Arc<str>, depth: usize) -> Vec<Node> {
        match read(bytes) {
            Ok(directives) => self.all(directives, file, depth),
            Err(finding) => {
                self.mistakes.push(Located { file: Arc::clone(file), finding });
                Vec::new()
            }
        }
    }

    /// As deep as the blocks of a file, which are bounded, times the files.
    fn all(&mut self, directives: Vec<Directive>, file: &Arc<str>, depth: usize) -> Vec<Node> {
        let mut nodes = Vec::with_capacity(directives.len());
        for Directive { place, name, arguments, block } in directives {
            let block = block.map(|block| self.all(block, file, depth));
            let node = Node { file: Arc::clone(file), place, name, arguments, block };
            match node.argument() {
                Some(pattern) if node.name == "include" && node.block.is_none() => {
                    let pattern = pattern.to_owned();
                    nodes.extend(self.included(&node, &pattern, depth));
                }
                _ => nodes.push(node),
            }
        }
        nodes
    }

    fn included(&mut self, node: &Node, pattern: &str, depth: usize) -> Vec<Node> {
        let mut nodes = Vec::new();
        let found = match matching(&self.folder.join(pattern)) {
            Ok(found) => found,
            Err(problem) => {
                self.wrong(node, problem);
                return nodes;
            }
        };
        for path in found {
            if depth == MAX_DEPTH {
                self.wrong(node, format!("is more than {MAX_DEPTH} files deep"));
                return nodes;
            }
            match self.bytes(&path) {
                Ok(bytes) => nodes.extend(self.nodes(&bytes, &path.display().to_string().into(), depth + 1)),
                Err(error) => self.wrong(node, format!("{} cannot be read: {error}", path.display())),
            }
        }
        nodes
    }

    fn wrong(&mut self, node: &Node, problem: String) {
        let finding =
            Finding { place: node.place, path: "include".to_owned(), problem, accepted: String::new() };
        if self.mistakes.len() < MAX_MISTAKES {
            self.mistakes.push(Located { file: Arc::clone(&node.file), finding });
        }
    }
}

/// The files that a name with `*` in its last part stands for, in their order; without these, itself.
fn matching(path: &Path) -> Result<Vec<PathBuf>, String> {
    let is_wild = |text: &str| text.contains(['*', '?', '[']);
    let whole = path.display().to_string();
    if !is_wild(&whole) {
        return Ok(vec![path.to_owned()]);
    }
    let (Some(folder), Some(last)) = (path.parent(), path.file_name().and_then(|last| last.to_str())) else {
        return Err("names no file".to_owned());
    };
    if is_wild(&folder.display().to_string()) || last.contains(['?', '[']) {
        return Err("has wildcards other than * in its last part, which are not understood".to_owned());
    }
    let Ok(entries) = fs::read_dir(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
    else {
        // As in nginx, a pattern that stands for nothing is no mistake.
        return Ok(Vec::new());
    };
    let pattern = Pattern::like(last);
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // As a shell has it, a hidden file is named by its dot.
        pattern.matches(name.as_bytes()) && (last.starts_with('.') || !name.starts_with('.'))
    };
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(fits).collect();
    found.sort();
    Ok(found)
}
