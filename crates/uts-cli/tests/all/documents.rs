//! The project's texts: links between documents lead somewhere, no line is too wide to read, no
//! file too long, and the lock files of all workspaces know what our crates need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where documents are, beside those at the root.
const FOLDERS: [&str; 5] = ["docs", "spec", "rivals", "experiments", "interop"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All documents in a folder, and in those within it if `deep`.
fn documents(folder: &Path, deep: bool, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() && deep && path.file_name().is_some_and(|name| name != "target") {
            documents(&path, true, found);
        } else if path.extension().is_some_and(|is| is == "md") {
            found.push(path);
        }
    }
}

/// Targets of the links of a text; other sites are left out.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(to, _)| to).filter(|to| {
        let is_code = to.contains(char::is_whitespace) || to.is_empty();
        !is_code && !to.contains("://")
    })
}

/// The names by which links name the headings of a text: lower case, hyphens for spaces, no other
/// signs.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let Some((marks, title)) = line.split_once(' ').filter(|_| !is_code) else { continue };
        if !marks.is_empty() && marks.bytes().all(|mark| mark == b'#') {
            let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
            found.insert(kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

/// Faults of the links of a document.
fn broken(document: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for link in links(text) {
        let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
        let to = if path.is_empty() { document.to_owned() } else { document.with_file_name("").join(path) };
        if !to.exists() {
            wrong.push(format!("{}: no file {path}", document.display()));
        } else if let Some(anchor) = anchor {
            let there = std::fs::read_to_string(&to).map(|text| anchors(&text)).unwrap_or_default();
            if !there.contains(anchor) {
                wrong.push(format!("{}: {path} has no heading `{anchor}`", document.display()));
            }
        }
    }
    wrong
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut found = Vec::new();
    documents(&root(), false, &mut found);
    FOLDERS.iter().for_each(|folder| documents(&root().join(folder), true, &mut found));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for document in &found {
        let text = std::fs::read_to_string(document).expect("a document");
        seen += links(&text).count();
        wrong.extend(broken(document, &text));
    }
    assert!(seen > 30, "only {seen} links in {} documents", found.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_broken_link_is_found() {
    let document = root().join("README.md");
    let told = |text| broken(&document, text).join("; ");
    assert_eq!(told("[a](spec/README.md) [b](https://example.org/x#y) `x[0](1 + 2)` [c](#See-it)\n"), {
        format!("{}:  has no heading `See-it`", document.display())
    });
    assert_eq!(told("# See it, all\n[a](README.md#see-it)"), "");
    assert!(told("[a](docs/nowhere.md)").ends_with("no file docs/nowhere.md"));
    assert!(anchors("# See *it*, all\n```\n# no\n```\n").contains("see-it-all"));
    assert_eq!(anchors("```\n# no\n```\n#no\n").len(), 0);
}

/// Examples that a text has its readers run, as `cargo run --example NAME`.
fn examples(text: &str) -> impl Iterator<Item = &str> {
    let name = |rest: &str| rest.find(|c: char| !c.is_alphanumeric() && !"-_".contains(c));
    text.split("--example ").skip(1).map(move |rest| &rest[..name(rest).unwrap_or(rest.len())])
}

#[test]
fn examples_that_documents_run_are_there() {
    let mut found = Vec::new();
    documents(&root(), false, &mut found);
    FOLDERS.iter().chain(&["fuzz"]).for_each(|folder| documents(&root().join(folder), true, &mut found));
    let crates: Vec<PathBuf> = std::fs::read_dir(root().join("crates"))
        .expect("crates")
        .map(|entry| entry.expect("an entry").path().join("examples"))
        .collect();
    let is_there = |name: &str| {
        let places = [format!("{name}.rs"), format!("{name}/main.rs")];
        crates.iter().any(|folder| places.iter().any(|place| folder.join(place).exists()))
    };
    let mut seen = 0;
    for document in &found {
        let text = std::fs::read_to_string(document).expect("a document");
        for name in examples(&text) {
            seen += 1;
            assert!(is_there(name), "{}: no example `{name}`", document.display());
        }
    }
    assert!(seen > 5, "only {seen} examples in {} documents", found.len());
    let text = "`cargo run --example packet-events 7` --example a.";
    assert_eq!(examples(text).collect::<Vec<_>>(), ["packet-events", "a"]);
}

/// Runs a script that judges the texts of a folder: its verdict, and its words.
#[cfg(unix)]
fn judge(script: &str, folder: &Path) -> (bool, String) {
    let mut command = std::process::Command::new(root().join(script));
    let output = command.arg(folder).output().expect("the script runs");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.success(), String::from_utf8(output.stdout).expect("text"))
}

#[cfg(unix)]
#[test]
fn no_line_is_too_wide_to_read() {
    assert_eq!(judge("scripts/wide-lines", &root()), (true, String::new()));
}

#[cfg(unix)]
#[test]
fn no_comment_begins_with_a_word_that_says_nothing() {
    assert_eq!(judge("scripts/first-words", &root()), (true, String::new()));
}

#[cfg(unix)]
#[test]
fn no_file_is_long_without_a_reason() {
    assert_eq!(judge("scripts/long-files", &root()), (true, String::new()));
}

#[cfg(unix)]
#[test]
fn a_file_that_is_long_without_a_reason_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    };
    write("a/long.rs", &"\n".repeat(601));
    write("a/not.rs", &"\n".repeat(600));
    write("a/text.md", &"\n".repeat(601));
    write("a/target/made.rs", &"\n".repeat(601));
    let judge = || judge("scripts/long-files", folder.path());
    assert_eq!(judge(), (false, "./a/long.rs: 601 lines, 600 at most\n".to_owned()));
    let list = "scripts/long-files.excused";
    write(list, "# Why.\na/long.rs: a table that is read from top to bottom\n");
    assert_eq!(judge(), (true, String::new()));
    // An excuse says why, and goes with the need for it.
    write(list, "a/long.rs\n");
    assert_eq!(judge(), (false, format!("{list}: a/long.rs: no reason is given\n")));
    write(list, "a/long.rs: a table\na/not.rs: a table\n");
    assert_eq!(judge(), (false, format!("{list}: a/not.rs: no file of more than 600 lines\n")));
}

#[cfg(unix)]
#[test]
fn a_comment_that_begins_with_a_word_that_says_nothing_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    };
    write(
        "crates/a/src/x/y.rs",
        "/// What it is.\nfn a() {}\n/// The thing.\n/// What follows.\n//! How: so.\n",
    );
    write("crates/b/src/z.rs", "    /// Whether.\n\n    /// Who?\n    // What.\n    /// Whatever.\n");
    let (is_clean, told) = judge("scripts/first-words", folder.path());
    assert!(!is_clean);
    let lines: Vec<_> = told.lines().collect();
    let expected = [
        "crates/a/src/x/y.rs:1:/// What it is.",
        "crates/b/src/z.rs:1:    /// Whether.",
        "crates/b/src/z.rs:3:    /// Who?",
    ];
    assert!(lines.len() == 4 && lines.starts_with(&expected), "{told}");
    write("crates/a/src/x/y.rs", "/// A thing.\n/// What follows.\n");
    write("crates/b/src/z.rs", "/// A thing.\n");
    assert_eq!(judge("scripts/first-words", folder.path()), (true, String::new()));
}

#[cfg(unix)]
#[test]
fn a_line_that_is_too_wide_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, lines: [String; 4]| {
        std::fs::write(folder.path().join(name), lines.join("\n")).expect("written");
    };
    let [a, more] = ["…".repeat(97), "…".repeat(200)];
    write(
        "a.rs",
        [format!("/// {a}"), format!("// {a}"), format!("let x = 1; // {more}"), format!("//! | {more}")],
    );
    let b = "…".repeat(131);
    write("b.md", [b.clone(), format!("| {b}"), format!("```\n{b}"), "```".to_owned()]);
    let expected = "./a.rs:1: 101 columns, 100 at most\n./b.md:1: 131 columns, 130 at most\n";
    assert_eq!(judge("scripts/wide-lines", folder.path()), (false, expected.to_owned()));
}

/// Workspaces beside the main one, which are built with `--locked`.
const WORKSPACES: [&str; 5] = ["bench", "fuzz", "readers", "rivals", "rpc"];

/// A change of a crate that another workspace uses shows where it is made.
#[test]
fn workspaces_beside_the_main_one_are_checked_with_it() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let manifest: toml::Table = read("Cargo.toml").parse().expect("TOML");
    let excluded = manifest["workspace"]["exclude"].as_array().expect("a list");
    let excluded: Vec<&str> = excluded.iter().filter_map(toml::Value::as_str).collect();
    assert_eq!(excluded, WORKSPACES);
    // The script reads the same line.
    let line = format!("exclude = [{}]", WORKSPACES.map(|name| format!("{name:?}")).join(", "));
    assert!(read("Cargo.toml").lines().any(|is| is == line), "{line}");
    assert!(read("scripts/outside").contains("/^exclude = /"));
    let calls =
        |text: &str, by: &str, what: &str| text.lines().any(|line| line.contains(by) && line.contains(what));
    assert!(calls(&read(".ci/run"), "make", "lint"), ".ci/run does not run `make lint`");
    assert!(calls(&read("Makefile"), "check:", "lint"), "`make check` does not run `make lint`");
    assert!(calls(&read("Makefile"), "$(MAKE)", "outside"), "`make lint` does not check them");
}

/// True if a line of code makes text of the class of an error: a reader of that does not learn what
/// has happened (`uncategorized error` is "too many open files").
fn tells_a_class(line: &str) -> bool {
    let Some(at) = line.find(".kind()") else { return false };
    let is_error = ["e", "err", "error", "why", "failed"].iter().any(|name| {
        let before = &line[..at];
        before.ends_with(name)
            && !before[..at - name.len()].ends_with(|c: char| c.is_alphanumeric() || c == '_')
    });
    let compares =
        ["match ", "matches!", "==", "!=", "io::Error::new("].iter().any(|word| line.contains(word));
    is_error && !compares && !line.trim_start().starts_with("//")
}

#[test]
fn errors_are_told_in_their_words_and_not_by_their_class() {
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !["target", "tests", "corpus", "found"].contains(&name.as_str()) {
                sources(&path, found);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    ["crates", "bench", "rivals"].iter().for_each(|folder| sources(&root().join(folder), &mut found));
    assert!(found.len() > 300, "only {} sources", found.len());
    // Errors of others than the system, whose class is all their words.
    const OTHERS: [&str; 2] = ["uts-files/src/exclude.rs", "uts-record/src/table.rs"];
    let mut wrong = Vec::new();
    for path in found.iter().filter(|path| !OTHERS.iter().any(|other| path.ends_with(other))) {
        let text = std::fs::read_to_string(path).expect("a source");
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = code.lines().enumerate().filter(|(_, line)| tells_a_class(line));
        wrong.extend(lines.map(|(n, line)| format!("{}:{}: {}", path.display(), n + 1, line.trim())));
    }
    assert!(wrong.is_empty(), "uts_units::printable::words has the words:\n{}", wrong.join("\n"));
    assert!(tells_a_class(r#"format!("cannot: {}", error.kind())"#));
    assert!(!tells_a_class("Err(e) if e.kind() == io::ErrorKind::NotFound => None,"));
    assert!(!tells_a_class("let kind = workload.kind();"));
}

/// Packages that a crate needs whatever its features are, by its `Cargo.toml`.
fn needs(manifest: &toml::Table) -> Vec<String> {
    let listed = manifest.get("dependencies").and_then(toml::Value::as_table);
    let field = |value: &toml::Value, key: &str| value.as_table().and_then(|table| table.get(key).cloned());
    let needed = listed
        .into_iter()
        .flatten()
        .filter(|(_, value)| field(value, "optional").and_then(|optional| optional.as_bool()) != Some(true));
    needed
        .map(|(name, value)| {
            let package = field(value, "package").and_then(|package| Some(package.as_str()?.to_owned()));
            package.unwrap_or_else(|| name.clone())
        })
        .collect()
}

/// A crate that gets a dependency needs it in each lock file; `make bench` would stop otherwise.
#[test]
fn lock_files_of_all_workspaces_are_current() {
    let read = |path: PathBuf| -> toml::Table {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    for workspace in WORKSPACES {
        let lock = read(root().join(workspace).join("Cargo.lock"));
        let packages = lock["package"].as_array().expect("a list");
        let mut ours = 0;
        for package in packages {
            let name = package["name"].as_str().expect("a name");
            let manifest = root().join("crates").join(name).join("Cargo.toml");
            if !manifest.exists() {
                continue;
            }
            ours += 1;
            let locked: Vec<&str> = package
                .get("dependencies")
                .and_then(toml::Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|entry| entry.as_str()?.split(' ').next())
                .collect();
            for needed in needs(&read(manifest)) {
                assert!(
                    locked.contains(&needed.as_str()),
                    "{workspace}/Cargo.lock lacks {needed} of {name}: \
                     run `cargo update --workspace --manifest-path {workspace}/Cargo.toml`"
                );
            }
        }
        assert!(ours > 3, "{workspace} needs {ours} of our crates");
    }
}
