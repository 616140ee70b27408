//! The subcommands, a file each: its arguments, and what it prints.

pub mod demo;
pub mod doctor;
pub mod end;
pub mod list;
pub mod live;
pub mod merge;
pub mod parquet;
mod path_options;
pub mod probes;
pub mod relay;
pub mod report;
pub mod reproduce;
pub mod router;
pub mod run;
pub mod set;

use uts_end::output::{print_line, tell_line};

/// Name of the program, as people write it.
const PROGRAM: &str = "uts-lab";
