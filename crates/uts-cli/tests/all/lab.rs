//! `uts lab`, which calls the program `uts-lab`.

use crate::common::Place;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A copy of the program, alone in a folder, so that what is beside it is known.
fn copy(place: &Place) -> PathBuf {
    let program = place.path("bin/uts");
    std::fs::create_dir(place.path("bin")).expect("made");
    std::fs::copy(env!("CARGO_BIN_EXE_uts"), &program).expect("copied");
    program
}

fn script(place: &Place, name: &str, says: &str) {
    let file = place.write(name, format!("#!/bin/sh\necho {says} \"$@\"\nexit 7\n").as_bytes());
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("set");
}

/// Of a program that was just written, which another process may still hold open for writing.
fn output(command: &mut Command) -> Output {
    for _ in 0..100 {
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            other => return other.expect("it runs"),
        }
    }
    panic!("the program stays busy")
}

#[test]
fn the_laboratory_is_the_program_beside_or_else_the_one_in_the_path() {
    let place = Place::new();
    let program = copy(&place);
    let lab = |words: &[&str]| {
        output(
            Command::new(&program)
                .arg("lab")
                .args(words)
                .env("PATH", format!("{}:/bin", place.path("path").display())),
        )
    };
    script(&place, "path/uts-lab", "path");
    for (beside, says) in [(false, "path"), (true, "beside")] {
        if beside {
            script(&place, "bin/uts-lab", "beside");
        }
        for words in
            [&["run", "--jobs", "2", "x.toml"][..], &["--help"], &["list", "-h"], &["end", "--", "-x"], &[]]
        {
            let output = lab(words);
            let expected = [&[says], words].concat().join(" ");
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), expected.trim_end());
            assert_eq!(output.status.code(), Some(7), "the status is the laboratory's");
        }
    }
}

#[test]
fn where_the_laboratory_is_missing_that_is_said() {
    let place = Place::new();
    let program = copy(&place);
    let output = output(Command::new(program).args(["lab", "run", "x.toml"]).env("PATH", place.path("srv")));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let expected = "uts: uts-lab is a program of its own, and is neither beside this one nor in the path";
    assert!(told.starts_with(expected), "{told}");
}
