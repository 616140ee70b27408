//! The code and `spec/packets.md` agree on which rules there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Numbers that follow `P-` in `text` where `prefix` stands before it.
fn rules(text: &str, prefix: &str) -> Vec<u32> {
    let marker = format!("{prefix}P-");
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    text.split(&marker).skip(1).filter_map(|rest| digits(rest).parse().ok()).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn every_rule_is_cited_and_every_citation_is_a_rule() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let listed = rules(&read(&root.join("../../spec/packets.md")), "**");
    let written: BTreeSet<u32> = listed.iter().copied().collect();
    assert_eq!(listed.len(), written.len(), "a number stands for two rules: {listed:?}");
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let cited: BTreeSet<u32> = files.iter().flat_map(|path| rules(&read(path), "")).collect();
    assert!(written.len() > 30, "only {written:?}");
    let uncited: Vec<_> = written.difference(&cited).collect();
    let unwritten: Vec<_> = cited.difference(&written).collect();
    assert!(uncited.is_empty(), "rules that the code does not cite: {uncited:?}");
    assert!(unwritten.is_empty(), "citations of no rule: {unwritten:?}");
}
