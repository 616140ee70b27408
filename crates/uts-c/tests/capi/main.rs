//! Tests of what C sees.
#![allow(unsafe_code, reason = "these call what C calls")]

mod calls;
mod ends;
mod header;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod python;
mod waiting;

/// Folder of the shared library, which cargo has built beside this test.
#[cfg(target_os = "linux")]
fn library() -> std::path::PathBuf {
    let here = std::env::current_exe().expect("a program");
    here.parent().expect("a folder").to_owned()
}
