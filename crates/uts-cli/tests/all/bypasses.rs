//! Nothing is written to a standard stream beside [`uts_end::output`], which waits where an output
//! does not block, notes what is lost, and says so.

use std::fs;
use std::path::{Path, PathBuf};

/// Beginnings of what writes to a standard stream, or reads from one, by itself.
const BYPASSES: [&str; 11] = [
    "print!(",
    "println!(",
    "dbg!(",
    "stdout()",
    "stderr()",
    "stdin()",
    "error.print()",
    "error.exit()",
    // indicatif's own way to standard error.
    "ProgressDrawTarget::std",
    "MultiProgress::new()",
    "= ProgressBar::new(",
];

/// Where all of it is done.
const MECHANISM: &str = "uts-end/src/output.rs";

/// Where a descriptor is passed over a socket, and nothing is written.
const PASSES: &str = "uts-cli/src/cmd/ssh/join.rs";

/// The sources of a folder, without those that are built for tests alone.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    let (folders, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|path| path.is_dir());
    let read = |path: &PathBuf| fs::read_to_string(path).expect("text");
    let texts: Vec<String> = files.iter().map(read).collect();
    let is_for_tests = |path: &Path| {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let module = [format!("#[cfg(test)]\nmod {name};"), format!("#[cfg(test)]\npub mod {name};")];
        texts.iter().any(|text| module.iter().any(|module| text.contains(module)))
    };
    for (file, text) in files.iter().zip(&texts).filter(|(file, _)| !is_for_tests(file)) {
        // Tests are the last of a file.
        let text = text.split("#[cfg(test)]\nmod ").next().expect("a part");
        found.push((file.clone(), text.to_owned()));
    }
    folders.iter().filter(|folder| !is_for_tests(folder)).for_each(|folder| sources(folder, found));
}

/// The lines of a source that write by themselves: their numbers, and what they say.
fn bypasses(text: &str) -> Vec<(usize, &str)> {
    let code = (1..).zip(text.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.filter(|(_, line)| BYPASSES.iter().any(|bypass| line.contains(bypass))).collect()
}

#[test]
fn all_that_is_written_goes_through_one_mechanism() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder");
    let mut found = Vec::new();
    for folder in fs::read_dir(crates).expect("a folder") {
        sources(&folder.expect("an entry").path().join("src"), &mut found);
    }
    assert!(found.len() > 500, "{} sources", found.len());
    assert!(found.iter().any(|(file, text)| file.ends_with(MECHANISM) && !bypasses(text).is_empty()));
    let told: Vec<String> = found
        .iter()
        .filter(|(file, _)| !file.ends_with(MECHANISM) && !file.ends_with(PASSES))
        .flat_map(|(file, text)| {
            let shown = file.strip_prefix(crates).expect("within").display().to_string();
            bypasses(text).into_iter().map(move |(line, said)| format!("{shown}:{line}: {}", said.trim()))
        })
        .collect();
    assert!(told.is_empty(), "write by uts_end::output instead:\n{}", told.join("\n"));
}

#[test]
fn bypasses_are_found() {
    let text = "fn a() {\n    // println!(\"x\")\n    eprintln!(\"y\");\n}\n";
    assert_eq!(bypasses(text), [(3, "    eprintln!(\"y\");")]);
    assert!(bypasses("let bar = bars.add(ProgressBar::new(0));").is_empty());
}
