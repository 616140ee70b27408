//! The subcommands, a file each: its arguments, and what it prints.

pub mod demo;
pub mod end;
pub mod relay;
pub mod report;
pub mod router;
