//! One file for each subcommand.

pub mod demo;
pub mod doctor;
pub mod end;
pub mod list;
pub mod relay;
pub mod report;
pub mod run;
pub mod set;
