//! The header is that of the crate.

use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The header as the crate is now.
fn made() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("settings");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_crate(folder())
        .with_parse_deps(false)
        .generate()
        .expect("a header");
    let mut out = Vec::new();
    bindings.write(&mut out);
    let text = String::from_utf8(out).expect("text");
    let head = std::fs::read_to_string(folder().join("include/head.txt")).expect("a head");
    head + &without_safety(&text)
}

/// Leaves out the sections on safety, which are for Rust.
fn without_safety(text: &str) -> String {
    let mut out = String::new();
    let mut is_left_out = false;
    for line in text.lines() {
        let said = line.trim_start().trim_start_matches('*').trim();
        if said.starts_with("# Safety") {
            is_left_out = true;
            // The empty line in front of it goes as well.
            let kept = out.trim_end_matches([' ', '*', '\n']).len();
            out.truncate(kept);
            out.push('\n');
        }
        if line.trim_start().starts_with("*/") {
            is_left_out = false;
        }
        if !is_left_out {
            out.push_str(line.trim_end());
            out.push('\n');
        }
    }
    out
}

/// `UTS_C_HEADER=write` writes it anew.
#[test]
fn the_header_is_that_of_the_crate() {
    let place = folder().join("include/uts.h");
    let made = made();
    if std::env::var_os("UTS_C_HEADER").is_some_and(|value| value == "write") {
        std::fs::write(&place, &made).expect("written");
    }
    let kept = std::fs::read_to_string(&place).unwrap_or_default();
    assert!(
        kept == made,
        "include/uts.h is not that of the crate: UTS_C_HEADER=write cargo test --workspace --test capi -- header"
    );
}

/// Functions that the header declares.
pub fn functions() -> Vec<String> {
    let header = std::fs::read_to_string(folder().join("include/uts.h")).expect("a header");
    let mut names: Vec<String> = header
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()) && !line.starts_with("typedef"))
        .filter_map(|line| {
            let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
            name.starts_with("uts_").then(|| name.to_owned())
        })
        .collect();
    names.sort();
    names
}
