//! The `uts` program.
fn main() {}
