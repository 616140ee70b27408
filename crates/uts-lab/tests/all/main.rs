//! Tests of the laboratory, as one program: each of its own would take as long to link as the rest
//! of them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the laboratory faces the world: real sockets, real time"
)]

mod browser;
mod experiment_sample;
#[path = "../running/mod.rs"]
mod running;
mod sample;
#[path = "../skip/mod.rs"]
mod skip;

mod damaged_runs;
mod demo;
mod demo_program;
mod end_program;
mod experiment_file;
mod experiment_program;
mod live;
mod notebook;
mod outputs;
mod probes_program;
mod records_in_other_forms;
mod relay_program;
mod report;
mod report_experiment;
mod reproduce_program;
mod shard_program;
mod wireshark;
