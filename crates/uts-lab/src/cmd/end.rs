//! `uts-lab end`: one end of a measured run; experiments start it, nobody types it.

use anyhow::Result;
use uts_end::Arguments;
use uts_end::transport::by_spec;

/// Runs it, over kernel TCP, MPTCP, raw UDP or UTS.
///
/// # Errors
/// See [`uts_end::run`].
pub fn run(arguments: Arguments) -> Result<()> {
    uts_end::run(&by_spec, &arguments).map(|_| ())
}
