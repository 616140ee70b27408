//! The subcommands, a file each: its arguments, and what it prints.

pub mod relay;
