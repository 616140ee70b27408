//! Says that a test finds no means to do its work here.

use std::io::Write;

/// Prints a line that is seen although the test passes, and that `make test` counts.
pub fn say(why: &str) {
    // A test program that was started as a supervisor runs no tests that count. This shows that it
    // refuses.
    if std::env::var_os("UTS_LAB_SUPERVISOR").is_some() {
        return;
    }
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    // Not by the macro, which is kept back of tests that pass.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}
