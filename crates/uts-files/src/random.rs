//! Random bytes of the system, for names that nobody guesses.

use std::io;

/// Returns `N` random bytes.
///
/// # Errors
/// The system gives none.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}
