//! The package for Python, whose tests run against the library that was built with these.

use super::library;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python to run it by: the one that is named, that of `make python`, or the system's.
fn python(root: &Path) -> PathBuf {
    let named = std::env::var_os("UTS_PYTHON").map(PathBuf::from);
    let made = root.join("target/python/venv/bin/python");
    named.unwrap_or(if made.exists() { made } else { "python3".into() })
}

#[test]
fn the_package_for_python_works() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = python(&root);
    let probe = "import sys, cffi; sys.exit(sys.version_info < (3, 10))";
    let there = Command::new(&python).args(["-c", probe]).output();
    if !there.is_ok_and(|probed| probed.status.success()) {
        // Past the harness, which keeps the output of tests that pass.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: the_package_for_python_works: Python 3.10 with cffi is not here (docs/python.md); see make doctor"
        );
        return;
    }
    // The laboratory may have been built beside this.
    let lab = library().parent().map(|folder| folder.join("uts-lab")).filter(|lab| lab.exists());
    let ended = Command::new(&python)
        .args(["-W", "error", "-m", "unittest", "discover", "-s", "tests"])
        .current_dir(root.join("python"))
        .env("UTS_LIBRARY", library().join("libuts_c.so"))
        .env("UTS_LAB", lab.map_or_else(|| OsString::from("uts-lab"), PathBuf::into_os_string))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("\nOK"), "{said}");
}
