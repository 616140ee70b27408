//! Who receives a file now. The newest claim wins: a client that was killed leaves behind a copy that waits for a dead
//! connection, and its successor must not have to wait for that to time out.

use super::path::RelPath;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

type Holders = BTreeMap<RelPath, Arc<watch::Sender<bool>>>;

/// All claims of a service.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(Arc<Mutex<Holders>>);

/// The right to receive one file, until dropped.
#[derive(Debug)]
pub(super) struct Claim {
    claims: Claims,
    path: RelPath,
    sender: Arc<watch::Sender<bool>>,
    superseded: watch::Receiver<bool>,
}

impl Claims {
    /// Claims `path`; tells the present holder to stop, and waits until it has.
    pub(super) async fn take(&self, path: &RelPath) -> Claim {
        loop {
            let holder = {
                let mut holders = self.lock();
                match holders.get(path) {
                    Some(holder) => holder.clone(),
                    None => {
                        let (sender, superseded) = watch::channel(false);
                        let sender = Arc::new(sender);
                        holders.insert(path.clone(), sender.clone());
                        return Claim { claims: self.clone(), path: path.clone(), sender, superseded };
                    }
                }
            };
            holder.send_replace(true);
            holder.closed().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Becomes true when somebody else claims the file.
    pub(super) fn superseded(&self) -> watch::Receiver<bool> {
        self.superseded.clone()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut holders = self.claims.lock();
        if holders.get(&self.path).is_some_and(|holder| Arc::ptr_eq(holder, &self.sender)) {
            holders.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_claim_wins_and_waits_for_the_old() {
        let claims = Claims::default();
        let path = RelPath::parse(b"a").unwrap();
        let first = claims.take(&path).await;
        let mut told = first.superseded();
        let second = tokio::spawn({
            let (claims, path) = (claims.clone(), path.clone());
            async move { claims.take(&path).await }
        });
        told.wait_for(|&yes| yes).await.unwrap();
        assert!(!second.is_finished());
        drop(told);
        drop(first);
        let second = second.await.unwrap();
        assert!(!*second.superseded().borrow());
        drop(second);
        assert!(claims.lock().is_empty());
    }
}
