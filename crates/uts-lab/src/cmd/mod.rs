//! The subcommands, a file each: its arguments, and what it prints.

pub mod demo;
pub mod relay;
pub mod report;
pub mod router;
