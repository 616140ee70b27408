//! The path between two hosts, and the task that hands over what arrives.

use super::{Datagram, Network, State};
use core::time::Duration;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use uts_engine::Ecn;
use uts_path::{Change, Direction, Path, PathConfig, Payload, SpecError, Stats, Target};

#[derive(Debug)]
pub(super) struct Line {
    /// Forward is from this host.
    pub first: IpAddr,
    path: Path<Datagram>,
    /// Something is due at another time than before.
    changed: Arc<Notify>,
}

impl Line {
    /// Makes a path between the hosts of `key`, and starts its task.
    ///
    /// # Errors
    /// A setting is out of range.
    pub fn begin(
        network: &Network,
        first: IpAddr,
        key: (IpAddr, IpAddr),
        config: PathConfig,
        seed: u64,
    ) -> Result<Self, SpecError> {
        let (path, changed) = (Path::new(config, seed, 0)?, Arc::<Notify>::default());
        tokio::spawn(hand_over(Arc::downgrade(&network.0), key, changed.clone()));
        Ok(Line { first, path, changed })
    }

    fn direction(&self, from: IpAddr) -> Direction {
        if from == self.first { Direction::Forward } else { Direction::Backward }
    }

    pub fn send(&mut self, now_ns: u64, datagram: Datagram) {
        let (direction, len) = (self.direction(datagram.from.ip()), datagram.contents.len());
        self.path.send(now_ns, direction, datagram, len);
        self.changed.notify_one();
    }

    pub fn set(&mut self, now_ns: u64, target: Target, change: &Change) -> Result<(), SpecError> {
        self.path.set(now_ns, target, change)?;
        self.changed.notify_one();
        Ok(())
    }

    pub fn stats(&self, from: IpAddr) -> Stats {
        self.path.stats(self.direction(from))
    }

    /// Packets that have arrived, and the instant at which something is due next.
    fn arrived(&mut self, now_ns: u64) -> (Vec<Datagram>, Option<u64>) {
        let mut arrived = Vec::new();
        for direction in Direction::ALL {
            arrived.extend(core::iter::from_fn(|| self.path.poll(now_ns, direction)));
        }
        (arrived, self.path.next_ns())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Its task ends.
        self.changed.notify_one();
    }
}

/// Hands over what arrives, as long as the network is there.
async fn hand_over(network: Weak<Mutex<State>>, key: (IpAddr, IpAddr), changed: Arc<Notify>) {
    loop {
        let due = {
            let Some(network) = network.upgrade() else { return };
            let mut state = network.lock().unwrap_or_else(PoisonError::into_inner);
            let now = state.now();
            let Some(line) = state.lines.get_mut(&key) else { return };
            let (arrived, next_ns) = line.arrived(now);
            for datagram in arrived {
                // Nobody may be there, or somebody else than when it set out.
                if let Some(end) = state.ends.get(&datagram.to) {
                    let _ = end.send(datagram);
                }
            }
            next_ns.and_then(|at| state.begun.checked_add(Duration::from_nanos(at)))
        };
        tokio::select! {
            () = changed.notified() => {}
            () = until(due) => {}
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => core::future::pending().await,
    }
}

impl Payload for Datagram {
    fn flip_bit(&mut self, bit: usize) {
        self.contents.flip_bit(bit);
    }

    fn mark_ce(&mut self) -> bool {
        let capable = self.ecn.is_some();
        if capable {
            self.ecn = Some(Ecn::Ce);
        }
        capable
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(&self.contents)
    }

    fn flow(&self) -> u64 {
        u64::from(self.from.port()) << 16 | u64::from(self.to.port())
    }
}
