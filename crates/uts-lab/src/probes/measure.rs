//! Packets one by one, from a client in one thread to a server in another, over loopback, and the
//! points that each passes. As in the thesis, a packet leaves when nothing else is under way.
//!
//! Beside the connection that is probed there is one that is not. The same packet goes over both in
//! turns: so it is known what the probes themselves take.

use super::budget::{Budget, Journey, Kind, Spread};
use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use uts::{
    ConnectOptions, Flow, FlowOptions, Identity, Listener, MessageOptions, Point, ProbeLog, Requirements,
    ServerOptions, connect,
};

/// Data of a small packet and of a full one, in bytes: those of the thesis.
pub const SIZES: [usize; 2] = [1, 1400];

/// Rounds that are not counted: exchanges of mechanisms, and caches that are cold.
const WARM_UP: usize = 40;

/// Silence behind a packet, in which its acknowledgement comes.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest that a packet may take on loopback.
const PATIENCE: Duration = Duration::from_secs(5);

/// Passages that a log has room for. A round has some 40.
const PASSAGES_MAX: usize = 4096;

/// UDP payload that is used from the begin, so that the data of each size is one packet: that of
/// Ethernet.
const PACKET_BYTES: usize = 1472;

/// Cost of the probes themselves.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// Bytes of data in each packet.
    pub bytes: usize,
    /// Time from point 1 to point 20 of packets that pass no point between these, in us.
    pub without_us: Spread,
    /// The same of packets that pass all points, in us.
    pub with_us: Spread,
}

impl Cost {
    /// Growth of the median by the probes, 0 = none.
    pub fn growth(&self) -> f64 {
        self.with_us.median / self.without_us.median - 1.0
    }
}

/// Results of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Budgets: of each size of data, and of acknowledgements.
    pub budgets: Vec<Budget>,
    /// Cost of the probes, for each size of data.
    pub probes: Vec<Cost>,
}

/// Two connections to the server, and what the server has read.
struct Ends {
    probed: Flow,
    plain: Flow,
    client: Arc<ProbeLog>,
    server: Arc<ProbeLog>,
    read: UnboundedReceiver<usize>,
}

/// Sends so many packets of each size, and says how long each stage of their way took.
///
/// # Errors
/// There is no loopback, or a packet did not arrive.
pub fn measure(packets: usize) -> Result<Measured> {
    let client = ProbeLog::new(PASSAGES_MAX);
    let server = client.beside();
    let (told, read) = unbounded_channel();
    let (listening, server_is_at) = std::sync::mpsc::channel();
    // When the client goes, so does the channel, and with it the server.
    let (held, released) = tokio::sync::oneshot::channel::<()>();
    let log = server.clone();
    let thread = thread::spawn(move || -> Result<()> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let (listeners, places) = listen(&log)?;
            listening.send(places).map_err(|_| anyhow!("nobody waits for the server"))?;
            for listener in listeners {
                tokio::spawn(serve(listener, log.clone(), told.clone()));
            }
            let _ = released.await;
            Ok(())
        })
    });
    let runtime = Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let measured = runtime.block_on(async {
        let places = server_is_at.recv().map_err(|_| anyhow!("the server did not begin"))?;
        let [probed, plain] = open(&client, places).await?;
        rounds(Ends { probed, plain, client, server, read }, packets).await
    });
    drop(held);
    match thread.join() {
        Ok(served) => served.context("the server")?,
        Err(_) => bail!("the server has failed"),
    }
    measured
}

/// Place of a listener, and what its key is known by.
type Place = (SocketAddr, uts::Fingerprint);

/// Listeners of the two connections: with probes, and without.
fn listen(log: &Arc<ProbeLog>) -> Result<([Listener; 2], [Place; 2])> {
    let bind = |probes| -> Result<Listener> {
        let mut options = ServerOptions::new(Identity::generate()?).requirements(requirements()?);
        options.connection.packet_bytes_initial = PACKET_BYTES;
        options.probes = probes;
        Ok(Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options)?)
    };
    let listeners = [bind(log.probes())?, bind(uts::Probes::default())?];
    let places = listeners.each_ref().map(|listener| (listener.local_addr(), listener.fingerprint()));
    Ok((listeners, places))
}

/// Reads the messages of one connection, and tells of each.
async fn serve(listener: Listener, log: Arc<ProbeLog>, told: UnboundedSender<usize>) {
    let Some(connection) = listener.accept().await else { return };
    let Some(flow) = connection.accept_flow().await else { return };
    let (probes, (_send, mut recv)) = (log.probes(), flow.split());
    while let Ok(Some(message)) = recv.recv_message().await {
        probes.pass(Point::Delivered, message.len());
        if told.send(message.len()).is_err() {
            return;
        }
    }
}

/// Messages, each in a packet of its own, which is acknowledged at once.
fn requirements() -> Result<Requirements> {
    let mut requirements = Requirements::messages();
    requirements.set("uts.profile.acknowledgement", "per-packet")?;
    Ok(requirements)
}

/// Opens a connection to each place, the first of them with probes, and a flow in it.
async fn open(log: &Arc<ProbeLog>, places: [Place; 2]) -> Result<[Flow; 2]> {
    let mut flows = Vec::new();
    for ((addr, key), probes) in places.into_iter().zip([log.probes(), uts::Probes::default()]) {
        let mut options = ConnectOptions::pinned(key).requirements(requirements()?);
        options.connection.packet_bytes_initial = PACKET_BYTES;
        options.probes = probes;
        let connection = connect(&addr.to_string(), options).await?;
        flows.push(connection.open_flow(FlowOptions::default()).await?);
    }
    flows.try_into().map_err(|_| anyhow!("two connections were to be opened"))
}

async fn rounds(mut ends: Ends, packets: usize) -> Result<Measured> {
    let mut measured = Measured { budgets: Vec::new(), probes: Vec::new() };
    let mut answers = (Vec::new(), 0);
    let mut of_sizes = SIZES.map(|_| OfSize::default());
    for round in 0..WARM_UP + packets {
        for (of, bytes) in of_sizes.iter_mut().zip(SIZES) {
            // Which goes first takes turns.
            for is_probed in [round % 2 == 0, round % 2 != 0] {
                ends.send(is_probed, bytes).await?;
                let (sender, receiver) = (ends.client.take(), ends.server.take());
                if round < WARM_UP {
                    continue;
                }
                if !is_probed {
                    let at = |log: &[uts::Passage], point| {
                        log.iter().find(|row| row.point == point).map(|row| row.at)
                    };
                    let (from, to) = (at(&sender, Point::Written), at(&receiver, Point::Delivered));
                    let whole = from.zip(to).map(|(from, to)| to.since(from).as_secs_f64() * 1e6);
                    of.plain_us.extend(whole);
                    continue;
                }
                match Journey::of(Kind::Data(bytes), &sender, &receiver) {
                    Some(journey) => of.journeys.push(journey),
                    None => of.left_out += 1,
                }
                match Journey::of(Kind::Acknowledgement, &receiver, &sender) {
                    Some(journey) => answers.0.push(journey),
                    None => answers.1 += 1,
                }
            }
        }
    }
    for (of, bytes) in of_sizes.into_iter().zip(SIZES) {
        let budget = Budget::of(Kind::Data(bytes), &of.journeys, of.left_out);
        let budget = budget.ok_or_else(|| anyhow!("no packet of {bytes} bytes went alone"))?;
        let without_us = Spread::of(of.plain_us).context("no packet without probes arrived")?;
        measured.probes.push(Cost { bytes, without_us, with_us: budget.whole_us });
        measured.budgets.push(budget);
    }
    // There are none where reports ride with other packets.
    measured.budgets.extend(Budget::of(Kind::Acknowledgement, &answers.0, answers.1));
    Ok(measured)
}

/// Results of packets of one size.
#[derive(Default)]
struct OfSize {
    journeys: Vec<Journey>,
    left_out: usize,
    /// Time from point 1 to point 20 without probes between them, in us.
    plain_us: Vec<f64>,
}

impl Ends {
    /// Sends a packet, and waits until it was read and nothing more comes.
    async fn send(&mut self, is_probed: bool, bytes: usize) -> Result<()> {
        let (flow, message) = (if is_probed { &mut self.probed } else { &mut self.plain }, vec![7; bytes]);
        let (probes, message) = (self.client.probes(), Bytes::from(message));
        probes.pass(Point::Written, bytes);
        flow.send_half().send_message(message, MessageOptions::default()).await?;
        match timeout(PATIENCE, self.read.recv()).await {
            Ok(Some(read)) if read == bytes => {}
            Ok(_) => bail!("the server has ended"),
            Err(_) => bail!("a packet of {bytes} bytes did not arrive within {} s", PATIENCE.as_secs()),
        }
        sleep(PAUSE).await;
        Ok(())
    }
}
