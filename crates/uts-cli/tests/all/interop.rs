//! The program beside a second implementation, which was written from the specification alone
//! (`interop/README.md`): it speaks to `uts serve` and to `uts pipe`, keeps the rules, and breaks
//! each of them on purpose.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Python to run it by: the one that is named, that of `interop/README.md`, or the system's.
fn python(root: &Path) -> PathBuf {
    let named = std::env::var_os("UTS_INTEROP_PYTHON").map(PathBuf::from);
    let made = root.join("target/interop/bin/python");
    named.unwrap_or(if made.exists() { made } else { "python3".into() })
}

#[test]
fn a_second_implementation_agrees() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = python(&root);
    let probe = "import sys, aioquic, cryptography; sys.exit(sys.version_info < (3, 10))";
    let there = Command::new(&python).args(["-c", probe]).output();
    if !there.is_ok_and(|probed| probed.status.success()) {
        // Past the harness, which keeps the output of tests that pass.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: a_second_implementation_agrees: Python 3.10 with aioquic and cryptography is not here \
             (interop/README.md); see make doctor"
        );
        return;
    }
    let ended = Command::new(&python)
        .args(["-m", "uts_interop", "suite", env!("CARGO_BIN_EXE_uts")])
        .current_dir(root.join("interop"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("it runs");
    let (said, errors) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{said}{errors}");
    assert!(said.contains(" 0 failed"), "{said}{errors}");
}
