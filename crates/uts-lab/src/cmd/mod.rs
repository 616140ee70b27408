//! The subcommands, a file each: its arguments, and what it prints.

pub mod demo;
pub mod doctor;
pub mod end;
pub mod list;
pub mod live;
pub mod merge;
mod path_options;
pub mod relay;
pub mod report;
pub mod reproduce;
pub mod router;
pub mod run;
pub mod set;

use uts_end::output::{print_line, tell_line};

/// Words by which the laboratory was called.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    /// As people write it: `uts lab`, or `uts-lab`.
    pub name: &'static str,
    /// Words between the program and its command: `lab`, or nothing.
    pub prefix: &'static [&'static str],
}

impl Called {
    /// The words that make this program carry out one of the laboratory's commands.
    pub fn words(self, command: &'static str) -> Vec<&'static str> {
        self.prefix.iter().copied().chain([command]).collect()
    }
}
