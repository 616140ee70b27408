//! `uts keygen` and `uts fingerprint`.

use super::Failure;
use crate::args::{FingerprintArgs, KeygenArgs};
use crate::link::Transport;
use crate::ui::lines;

/// Makes a key unless there is one, and prints its fingerprint.
///
/// # Errors
/// [`Failure::Failed`] when it cannot be read or made.
pub fn keygen<T: Transport>(transport: &T, args: &KeygenArgs) -> Result<(), Failure> {
    let (file, fingerprint, new) = transport.keygen(args.file.as_deref()).map_err(Failure::Failed)?;
    let what = if new { "new key" } else { "there is a key already" };
    lines::tell(format_args!("{what}: {}", file.display()));
    lines::print(&fingerprint);
    Ok(())
}

/// Prints the fingerprint of a key.
///
/// # Errors
/// [`Failure::Failed`] when it cannot be read.
pub fn fingerprint<T: Transport>(transport: &T, args: &FingerprintArgs) -> Result<(), Failure> {
    lines::print(&transport.fingerprint(args.file.as_deref(), args.as_ssh).map_err(Failure::Failed)?);
    Ok(())
}
