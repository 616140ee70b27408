//! The demonstration as a whole: two sides and a page.

use crate::bed::Bed;
use crate::end::Kind;
use crate::hub::{About, Hub};
use crate::knobs::Knobs;
use crate::side::Side;
use crate::web;
use anyhow::{Context, Result};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Settings of a demonstration.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// Port of the page on loopback; 0 takes a free one.
    pub port: u16,
    /// Seed of both paths' random decisions.
    pub seed: u64,
    /// The path at first.
    pub knobs: Knobs,
    /// Where the ends are.
    pub world: World,
    /// The program that has ends and `router supervise` as commands.
    pub program: PathBuf,
    /// The command that is an end, before its own arguments.
    pub command: Vec<String>,
}

/// The places of the ends, and with that what UTS is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum World {
    /// Hosts in network namespaces: UTS beside the kernel's TCP.
    Router,
    /// Loopback and a relay: UTS beside UTS that keeps its first profiles, for this reason.
    Relay(String),
}

impl World {
    /// Namespaces, where this machine permits them.
    pub fn of_this_machine() -> World {
        match uts_router::doctor().into_iter().find(|check| check.required && !check.ok) {
            None => World::Router,
            Some(check) => World::Relay(format!("{}: {}", check.name, check.why)),
        }
    }

    fn kinds(&self) -> [Kind; 2] {
        match self {
            World::Router => [Kind::Uts, Kind::Tcp],
            World::Relay(_) => [Kind::Uts, Kind::Fixed],
        }
    }
}

/// A running demonstration. It ends when this is dropped.
pub struct Live {
    address: SocketAddr,
    token: String,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Time between two points of the page's pictures.
const TICK: Duration = Duration::from_millis(250);

impl Live {
    /// Starts both sides, and the page.
    ///
    /// # Errors
    /// The port is taken, or the system does not permit the hosts.
    pub fn start(config: LiveConfig) -> Result<Live> {
        let knobs = config.knobs.checked().map_err(anyhow::Error::msg)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port))
            .with_context(|| format!("cannot listen at 127.0.0.1:{}", config.port))?;
        let address = listener.local_addr()?;
        let kinds = config.world.kinds();
        let beds = kinds.map(|_| match config.world {
            World::Router => Bed::router(&knobs, config.seed),
            World::Relay(_) => Ok(Bed::relay(&knobs, config.seed)),
        });
        let [first, second] = beds;
        let beds = [Arc::new(first.context("no testbed")?), Arc::new(second.context("no testbed")?)];
        let why = match &config.world {
            World::Router => None,
            World::Relay(why) => Some(why.clone()),
        };
        let hub = Arc::new(Hub::new(About { kinds, why }, knobs, beds.to_vec()));
        let token = web::token()?;
        let mut live = Live { address, token, stop: Arc::default(), threads: Vec::new() };
        let page = web::Site { hub: hub.clone(), token: live.token.clone() };
        let stop = live.stop.clone();
        live.thread("page", move || web::serve(listener, page, &stop))?;
        for (number, (kind, bed)) in kinds.into_iter().zip(beds).enumerate() {
            let LiveConfig { program, command, .. } = config.clone();
            let (hub, stop) = (hub.clone(), live.stop.clone());
            let side = Side { number, kind, bed, program, command, hub, stop };
            live.thread("side", move || side.run())?;
        }
        let stop = live.stop.clone();
        live.thread("ticks", move || {
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                hub.tick();
            }
        })?;
        Ok(live)
    }

    fn thread(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    /// The page's address, which has a secret in it: who has it may move the path.
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.token)
    }

    /// Where the page is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
