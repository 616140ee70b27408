//! Which copy receives a file now. Others wait for a moment. If nothing more arrives, the newest
//! claim of the same client wins. A copy that was killed leaves a copy behind that waits for a dead
//! connection. Its successor must not wait for that to time out. Another client does not get in.

use super::error::{Fault, FaultKind};
use super::path::RelPath;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

/// A copy that has received nothing for this long may be one whose client was killed.
const SILENT_MAX: Duration = Duration::from_secs(1);
/// Time that a claim waits for another; then its client is told, and may try again.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// A client of a server, as far as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The fingerprint of its key, if it has shown that it has it.
    pub key: Option<String>,
    /// Where it is, without the port: all that is known of one without a key.
    pub address: String,
}

impl Client {
    /// True if both are the same client, as far as is known.
    fn is(&self, other: &Client) -> bool {
        match (&self.key, &other.key) {
            (Some(one), Some(other)) => one == other,
            (None, None) => self.address == other.address,
            _ => false,
        }
    }
}

/// Holder of a claim, and the signal that others wait for.
#[derive(Clone, Debug)]
struct Holder {
    told: Arc<watch::Sender<bool>>,
    client: Client,
    /// When it received anything for the last time.
    heard_at: Arc<Mutex<Instant>>,
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
    heard_at: Arc<Mutex<Instant>>,
}

impl Claims {
    /// Claims `path` for a client, as soon as its present holder has let go of it. Tells the holder
    /// to stop if it belongs to the same client and is silent.
    ///
    /// # Errors
    /// [`FaultKind::Busy`] if that takes longer than [`WAIT_MAX`].
    pub(super) async fn take(&self, path: &RelPath, client: &Client) -> Result<Claim, Fault> {
        let end = Instant::now() + WAIT_MAX;
        loop {
            let holder = match self.take_now(path, client) {
                Ok(claim) => return Ok(claim),
                Err(holder) => holder,
            };
            let is_same = holder.client.is(client);
            let telling = async {
                while is_same && !*holder.told.borrow() {
                    let silent_at = holder.heard_at() + SILENT_MAX;
                    sleep_until(silent_at).await;
                    if holder.heard_at() + SILENT_MAX <= silent_at {
                        holder.told.send_replace(true);
                    }
                }
                std::future::pending::<()>().await;
            };
            let leaving = async {
                tokio::select! {
                    () = holder.told.closed() => {}
                    () = telling => {}
                }
            };
            if timeout_at(end, leaving).await.is_err() {
                let why = if is_same {
                    "another copy of this file is under way"
                } else {
                    "another client is sending this file"
                };
                return Err(Fault::new(FaultKind::Busy, path.as_bytes(), why));
            }
        }
    }

    /// The claim, if nobody has it.
    pub(super) fn take_free(&self, path: &RelPath, client: &Client) -> Option<Claim> {
        self.take_now(path, client).ok()
    }

    /// The claim, or the flow that has it.
    fn take_now(&self, path: &RelPath, client: &Client) -> Result<Claim, Holder> {
        let mut holders = self.lock();
        if let Some(holder) = holders.get(path) {
            return Err(holder.clone());
        }
        let (sender, superseded) = watch::channel(false);
        let sender = Arc::new(sender);
        let heard_at = Arc::new(Mutex::new(Instant::now()));
        let holder = Holder { told: sender.clone(), client: client.clone(), heard_at: heard_at.clone() };
        holders.insert(path.clone(), holder);
        Ok(Claim { claims: self.clone(), path: path.clone(), sender, superseded, heard_at })
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder {
    fn heard_at(&self) -> Instant {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    /// Something has been received.
    pub(super) fn progressed(&self) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

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

    #[tokio::test(start_paused = true)]
    async fn a_copy_that_receives_is_waited_for() {
        let claims = Claims::default();
        let path = RelPath::parse(b"a").unwrap();
        let who = client(None, "::1");
        let first = claims.take(&path, &who).await.unwrap();
        let told = first.superseded();
        let receiving = tokio::spawn(async move {
            for _ in 0..20 {
                tokio::time::sleep(SILENT_MAX / 4).await;
                first.progressed();
            }
            drop(first);
        });
        let busy = claims.take(&path, &who).await.unwrap_err();
        assert_eq!(busy.kind, FaultKind::Busy);
        assert!(!*told.borrow());
        drop(told);
        // Another try has it when the first is done.
        let second = claims.take(&path, &who).await.unwrap();
        assert!(!*second.superseded().borrow());
        receiving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
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

    #[tokio::test(start_paused = true)]
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
