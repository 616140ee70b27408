//! Files that an experiment and a demonstration leave on disk: their types, writers and readers.
//!
//! An experiment leaves a [`directory`] with its [`plan`], a file for each [`run`], tables of
//! [`samples`] beside it, and the [`measures`] of all runs. docs/lab.md describes it. A [`demo`]
//! leaves one file, and so does that of a [`call`].
//!
//! * [`merge`](mod@merge): the results of several directories in one.
//! * [`reproduction`]: the results of a paper's reproduction.
//! * [`table`]: reading a CSV file by the names of its columns.
//! * [`compressed`]: files that may be compressed; `parquet`, a feature: tables as Parquet.
//! * [`lateness`]: the lateness of a world in real time, as it stands in its files.

#![forbid(unsafe_code)]

pub mod call;
pub mod compressed;
mod csv_text;
pub mod demo;
pub mod directory;
pub mod lateness;
pub mod measures;
pub mod merge;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod plan;
mod record_file;
pub mod reproduction;
pub mod run;
pub mod samples;
pub mod table;

/// The version of an experiment's `plan.json` and `run.json`; a reader refuses others.
pub const FORMAT: u32 = 1;
