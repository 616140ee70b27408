//! Who receives a file now. The newest claim of a client wins: one that was killed leaves behind a
//! copy that waits for a dead connection, and its successor must not have to wait for that to time
//! out. Another client does not get in.

use super::error::{Fault, FaultKind};
use super::path::RelPath;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A client of a server, as far as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The fingerprint of its key, if it has shown that it has it.
    pub key: Option<String>,
    /// Where it is, without the port: all that is known of one without a key.
    pub address: String,
}

impl Client {
    /// Whether both are the same, as far as is known.
    fn is(&self, other: &Client) -> bool {
        match (&self.key, &other.key) {
            (Some(one), Some(other)) => one == other,
            (None, None) => self.address == other.address,
            _ => false,
        }
    }
}

/// What others wait for, and who holds it.
#[derive(Clone, Debug)]
struct Holder {
    told: Arc<watch::Sender<bool>>,
    client: Client,
}

type Holders = BTreeMap<RelPath, Holder>;

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
    /// Claims `path` for a client; tells its present holder to stop, and waits until it has.
    ///
    /// # Errors
    /// [`FaultKind::Busy`] if the holder is another client.
    pub(super) async fn take(&self, path: &RelPath, client: &Client) -> Result<Claim, Fault> {
        loop {
            let holder = {
                let mut holders = self.lock();
                match holders.get(path) {
                    Some(holder) => holder.clone(),
                    None => {
                        let (sender, superseded) = watch::channel(false);
                        let sender = Arc::new(sender);
                        holders.insert(path.clone(), Holder { told: sender.clone(), client: client.clone() });
                        return Ok(Claim { claims: self.clone(), path: path.clone(), sender, superseded });
                    }
                }
            };
            if !holder.client.is(client) {
                let why = "another client is sending this file";
                return Err(Fault::new(FaultKind::Busy, path.as_bytes(), why));
            }
            holder.told.send_replace(true);
            holder.told.closed().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Becomes true when its client claims the file anew.
    pub(super) fn superseded(&self) -> watch::Receiver<bool> {
        self.superseded.clone()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut holders = self.claims.lock();
        if holders.get(&self.path).is_some_and(|holder| Arc::ptr_eq(&holder.told, &self.sender)) {
            holders.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(key: Option<&str>, address: &str) -> Client {
        Client { key: key.map(str::to_owned), address: address.into() }
    }

    #[tokio::test]
    async fn the_newest_claim_of_a_client_wins_and_waits_for_the_old() {
        let claims = Claims::default();
        let path = RelPath::parse(b"a").unwrap();
        let who = client(Some("k"), "::1");
        let first = claims.take(&path, &who).await.unwrap();
        let mut told = first.superseded();
        let second = tokio::spawn({
            let (claims, path, who) = (claims.clone(), path.clone(), client(Some("k"), "::2"));
            async move { claims.take(&path, &who).await.unwrap() }
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

    #[tokio::test]
    async fn no_claim_is_taken_from_another_client() {
        let path = RelPath::parse(b"a").unwrap();
        let all =
            [client(Some("k"), "::1"), client(Some("l"), "::1"), client(None, "::1"), client(None, "::2")];
        for (i, holder) in all.iter().enumerate() {
            let claims = Claims::default();
            let held = claims.take(&path, holder).await.unwrap();
            for (j, other) in all.iter().enumerate().filter(|&(j, _)| j != i) {
                let taken = claims.take(&path, other).await;
                assert_eq!(taken.unwrap_err().kind, FaultKind::Busy, "{i} {j}");
                assert!(!*held.superseded().borrow());
            }
        }
    }
}
