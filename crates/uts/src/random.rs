//! Random bytes.

use std::io;

/// Bytes that nobody can guess, from the system. In a network in virtual time (feature
/// `simulation`) they follow from its seed.
///
/// # Errors
/// The system gives none.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; N];
    #[cfg(any(test, feature = "simulation"))]
    if let Some(network) = crate::simulation::Network::current() {
        network.draw(&mut bytes);
        return Ok(bytes);
    }
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}
