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
    /// The newest epoch that was opened, unless it is the oldest, too: the next follows on it, by a
    /// step or two, however many are open.
    newest: Option<Box<(u32, Secret)>>,
}

impl SecretChain {
    /// A chain that starts with epoch 0.
    pub fn new(secret: Secret) -> Self {
        SecretChain { epoch: 0, secret, newest: None }
    }

    /// The secret of an epoch; `None` if it is gone or too far ahead.
    pub fn of(&self, epoch: u32) -> Option<Secret> {
        epoch.checked_sub(self.epoch).filter(|steps| *steps <= AHEAD_MAX)?;
        let newest = self.newest.as_deref().filter(|newest| newest.0 <= epoch);
        let (from, secret) = newest.map_or((self.epoch, &self.secret), |(from, secret)| (*from, secret));
        Some((from..epoch).fold(secret.clone(), |secret, _| secret.next()))
    }

    /// The same of an epoch that is opened.
    pub fn open(&mut self, epoch: u32) -> Option<Secret> {
        let secret = self.of(epoch)?;
        if epoch > self.newest.as_ref().map_or(self.epoch, |newest| newest.0) {
            self.newest = Some(Box::new((epoch, secret.clone())));
        }
        Some(secret)
    }

    /// Bytes of heap memory.
    pub fn heap_bytes(&self) -> usize {
        self.newest.as_deref().map_or(0, size_of_val)
    }

    /// Forgets the secrets of epochs before `oldest` (protection.md R-3).
    pub fn forget_before(&mut self, oldest: u32) {
        if oldest == self.epoch {
            return;
        }
        if let Some(secret) = self.of(oldest) {
            (self.epoch, self.secret) = (oldest, secret);
            self.newest.take_if(|newest| newest.0 <= oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_functions::protection::{self, Direction, Protection as _, SAMPLE_BYTES};
    use uts_functions::{Function, Profile};

    fn chain() -> SecretChain {
        SecretChain::new(Secret::from_exporter(&[7; Secret::BYTES], Direction::ClientToServer))
    }

    /// What a secret leads to; `None` = there is none.
    fn mask(secret: Option<Secret>) -> Option<[u8; 5]> {
        let profile = Profile::bare().with_named(Function::Protection, "aes-128-gcm").expect("it exists");
        let slot = protection::Slot::build(profile.get(Function::Protection), &secret?).expect("in range");
        Some(slot.header_mask(&[7; SAMPLE_BYTES]))
    }

    /// Whatever is opened and forgotten, each epoch has the secret that it has from the beginning.
    #[test]
    fn an_epoch_has_one_secret() {
        let first = chain();
        let mut chain = chain();
        let mut oldest = 0;
        for epoch in [1, 2, 5, 4, 40, 41, 39, 60, 100, 101] {
            assert_eq!(mask(chain.open(epoch)), mask(first.of(epoch)), "{epoch}");
            for near in oldest..epoch + 3 {
                assert_eq!(mask(chain.of(near)), mask(first.of(near)), "{near} beside {epoch}");
            }
            oldest = epoch.saturating_sub(30);
            chain.forget_before(oldest);
            assert!(oldest == 0 || chain.of(oldest - 1).is_none(), "{epoch}");
        }
        chain.forget_before(101);
        assert!(chain.newest.is_none());
        assert_eq!(mask(chain.of(101)), mask(first.of(101)));
        assert!(chain.of(101 + AHEAD_MAX).is_some() && chain.of(102 + AHEAD_MAX).is_none());
    }
}
