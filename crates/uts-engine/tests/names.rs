//! The engine asks for the facts of mechanisms and knows none of them by name: a mechanism that is
//! added to the library needs no line here.

use std::fs;
use std::path::{Path, PathBuf};
use uts_functions::library;

/// Where the words of properties stand, some of which are the names of mechanisms too.
const WORDS: [&str; 1] = ["requirements"];

/// Files and folders of tests, which ask for mechanisms by name.
const TESTS: [&str; 3] = ["tests", "tests.rs", "testing.rs"];

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for path in entries.map(|e| e.expect("a directory entry").path()) {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if WORDS.contains(&name.as_str()) || TESTS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            sources(&path, out);
        } else if name.ends_with(".rs") {
            out.push(path);
        }
    }
}

/// The code of a file without its tests and comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let before_tests = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    before_tests.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

#[test]
fn no_mechanism_is_known_by_name() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 20, "sources are found at all: {}", files.len());
    // A profile may be called as a mechanism is: those names are files'.
    files.retain(|path| !path.ends_with("named/mod.rs"));
    let mut found = Vec::new();
    for path in files {
        let code = code(&path);
        for mechanism in library::all() {
            let variant: String = mechanism.name.split('-').map(capitalised).collect();
            for word in [format!("\"{}\"", mechanism.name), format!("Slot::{variant}(")] {
                if code.contains(&word) {
                    found.push(format!("{} names {mechanism:?}: {word}", path.display()));
                }
            }
        }
    }
    assert!(found.is_empty(), "{} places:\n  {}", found.len(), found.join("\n  "));
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
