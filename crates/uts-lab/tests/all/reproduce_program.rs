//! `uts-lab reproduce` as a program: verdicts, exit statuses, pictures, a planted value.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn reproduce(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    command.arg("reproduce").args(arguments).arg("--out").arg(dir);
    command.output().expect("it starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const PUBLISHED: &str = include_str!("../../../uts-papers/reference/blast.toml");

#[test]
fn a_place_is_run_judged_and_drawn() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = reproduce(dir.path(), &["blast", "--figure", "3,table2"]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("shown             table 2") && said.contains("blast: 1 agrees; 8 shown"),
        "{said}"
    );
    assert!(!said.contains("table 1"), "{said}");
    // Nothing here is a terminal.
    let how_far = said.lines().find(|line| line.starts_with("so far   1 of ")).unwrap_or_default();
    assert!(how_far.contains(" units of blast, about ") && how_far.ends_with(" to go"), "{said}");
    let page = fs::read_to_string(dir.path().join("index.html")).expect("a page");
    assert!(page.contains("uts-lab reproduce blast --figure 3,table2") && page.contains("<svg xmlns"));
    for part in ["a", "b", "c", "d"] {
        let svg = fs::read_to_string(dir.path().join(format!("blast/figure-3{part}.svg"))).expect("drawn");
        assert!(svg.starts_with("<svg") && svg.contains("receiver copies"));
    }
}

#[test]
fn a_wrong_value_is_caught_and_no_reason_excuses_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("planted.toml");
    let (piece, planted) = ("published = 3.91\n", "published = 4.91\n");
    assert_eq!(PUBLISHED.matches(piece).count(), 1);
    let status = |text: String| {
        fs::write(&file, text).expect("written");
        let file = file.to_str().expect("a plain name");
        let output = reproduce(dir.path(), &["blast", "--figure", "table2", "-q", "--reference", file]);
        (output.status.code(), said(&output))
    };
    assert_eq!(status(PUBLISHED.into()), (Some(0), String::new()));
    // The file contradicts itself, whatever reason it gives.
    for planted in [planted.to_owned(), format!("{planted}differs = \"planted\"\n")] {
        let (code, caught) = status(PUBLISHED.replace(piece, &planted));
        assert_eq!(code, Some(1));
        let expected = "item table2.total: ours is -20.4 % off what was published, not +0 %";
        assert!(caught.contains(expected), "{caught}");
    }
    // It is consistent, and is not what comes out.
    let item = PUBLISHED.split("\n\n").find(|item| item.contains(piece)).expect("the item");
    let other = item.replace("ours = 3.9104", "ours = 3.85").replace("off = 0.0", "off = -1.5");
    let (code, caught) = status(PUBLISHED.replace(item, &other));
    assert_eq!(code, Some(1));
    assert!(caught.starts_with("  differs ") && caught.contains("sum of the parts: 3.91"), "{caught}");
    assert!(caught.contains("ours was 3.85 ms") && caught.lines().count() == 2, "{caught}");
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let dir = tempfile::tempdir().expect("a directory");
    for (arguments, expected) in [
        (&["blasst"][..], "there is no paper `blasst`; did you mean `blast`?"),
        (&["blast", "--figure", "77"], "--figure 77: no such place; there are table 1, table 2,"),
        (&["blast", "--reference", "nowhere.toml"], "cannot read nowhere.toml"),
    ] {
        let output = reproduce(dir.path(), arguments);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
    }
    let output = reproduce(dir.path(), &["--list"]);
    assert!(said(&output).starts_with("blast        W. Zwaenepoel"), "{}", said(&output));
    assert!(said(&output).contains("\nrx-hex       D. Bachmann"), "{}", said(&output));
}
