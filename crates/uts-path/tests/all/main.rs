//! Tests of paths, as one program.

mod compression;
mod link;
mod passage;
mod path;
mod queue;
mod receive;
mod text;
mod trace;
