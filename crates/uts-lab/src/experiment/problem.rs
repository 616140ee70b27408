//! Problems of an experiment file: where, which key, and what was expected.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One thing that is wrong, at a place of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Bytes of the file that it is about.
    pub span: Range<usize>,
    /// The key, as `path.bottleneck.forward`; empty for what is wrong with the file as TOML.
    pub key: String,
    /// Message: what is wrong, and what was expected.
    pub message: String,
}

/// Everything that is wrong with a file, in order of place. Its text form quotes the lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    file: PathBuf,
    text: String,
    list: Vec<Problem>,
}

impl Problems {
    pub(super) fn new(file: &Path, text: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| (problem.span.start, problem.span.end));
        list.dedup();
        Problems { file: file.to_owned(), text: text.to_owned(), list }
    }

    /// The problems, in order of place.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// Line and column of a place, both from 1; columns count characters.
    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.list.iter().enumerate() {
            if i > 0 {
                write!(f, "\n\n")?;
            }
            let (line, column) = self.place(problem.span.start);
            write!(f, "{}:{line}:{column}: ", self.file.display())?;
            if !problem.key.is_empty() {
                write!(f, "{}: ", problem.key)?;
            }
            write!(f, "{}", problem.message)?;
            let Some(quoted) = self.text.lines().nth(line - 1) else { continue };
            let length = self
                .text
                .get(problem.span.clone())
                .map_or(1, |piece| piece.lines().next().unwrap_or_default().chars().count().max(1));
            let margin = line.to_string().len();
            write!(f, "\n{line} | {}", quoted.replace('\t', " "))?;
            write!(f, "\n{:margin$} | {:indent$}{}", "", "", "^".repeat(length), indent = column - 1)?;
        }
        Ok(())
    }
}

/// Collects problems while a file is read, so that one reading tells of all.
#[derive(Debug, Default)]
pub(super) struct Sink(RefCell<Vec<Problem>>);

impl Sink {
    pub(super) fn add(&self, span: Range<usize>, key: impl Into<String>, message: impl Into<String>) {
        self.0.borrow_mut().push(Problem { span, key: key.into(), message: message.into() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(super) fn into_list(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_the_place_and_quotes_the_line() {
        let text = "title = \"x\"\n[path.a]\nforwarx = 3\n";
        let start = text.find("forwarx").unwrap();
        let problem = Problem { span: start..start + 7, key: "path.a".into(), message: "what?".into() };
        let shown = Problems::new(Path::new("e.toml"), text, vec![problem]).to_string();
        assert_eq!(shown, "e.toml:3:1: path.a: what?\n3 | forwarx = 3\n  | ^^^^^^^");
    }

    #[test]
    fn a_place_beyond_the_end_is_shown_without_a_quote() {
        let problem = Problem { span: 90..99, key: String::new(), message: "ended".into() };
        let shown = Problems::new(Path::new("e.toml"), "a = 1\n", vec![problem]).to_string();
        assert!(shown.starts_with("e.toml:2:1: ended"), "{shown}");
    }
}
