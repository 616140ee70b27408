//! The `uts` program.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    uts_cli::main()
}
