//! The chain of secrets of one direction: each epoch has its own, and none leads back to an older
//! one.

use uts_functions::protection::Secret;

/// Number of epochs ahead of the oldest live one for which secrets are derived (spec X: live epochs
/// lie within 32, numbers may be skipped by refusals).
const AHEAD_MAX: u32 = 256;

/// Secrets from the oldest live epoch on.
pub(crate) struct SecretChain {
    epoch: u32,
    secret: Secret,
}

impl SecretChain {
    /// A chain that starts with epoch 0.
    pub fn new(secret: Secret) -> Self {
        SecretChain { epoch: 0, secret }
    }

    /// The secret of an epoch; `None` if it is gone or too far ahead.
    pub fn of(&self, epoch: u32) -> Option<Secret> {
        let steps = epoch.checked_sub(self.epoch).filter(|steps| *steps <= AHEAD_MAX)?;
        Some((0..steps).fold(self.secret.clone(), |secret, _| secret.next()))
    }

    /// Forgets the secrets of epochs before `oldest` (protection.md R-3).
    pub fn forget_before(&mut self, oldest: u32) {
        if oldest == self.epoch {
            return;
        }
        if let Some(secret) = self.of(oldest) {
            self.secret = secret;
            self.epoch = oldest;
        }
    }
}
