//! A congestion control of this program's own, exchanged to while data flows, and back.
//!
//! ```text
//! cargo run --example own_mechanism
//! ```

use std::error::Error;
use std::io::Write;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::functions::congestion::{self, Ack, Congestion, Delivery, Loss, Summary, Timeout};
use uts::functions::external::NotRegistered;
use uts::functions::mechanism::{Bold, Consent, Described, Facts, Promise, Unasked};
use uts::functions::{Mechanism, Param, Unit};
use uts::{
    ConnectOptions, Connection, ConnectionEvent, Direction, Events, ExchangeEvent, FlowOptions, Function,
    Identity, Listener, Rate, SendFlow, ServerOptions, Time, connect,
};

/// A window that never changes.
#[derive(Clone, Debug)]
struct FixedWindow {
    packets: u64,
    packet_bytes: u64,
    /// Knowledge of the mechanism before about the path. The next one is built from it.
    summary: Summary,
}

/// Its entry in the library.
static FIXED_WINDOW: Mechanism = Mechanism {
    function: Function::Congestion,
    // 128 to 143 are free for the mechanisms of programs. Both ends must mean the same by a number.
    number: 128,
    name: "fixed-window",
    what: "a window that never changes",
    mandatory: false,
    consent: Consent::NotNeeded,
    params: &[Param {
        name: "packets",
        unit: Unit::Packets,
        default: 20,
        min: 2,
        max: 1000,
        // A larger window is used only if the sender has named it.
        bold: Bold::Above,
        what: "packets in flight",
    }],
    needs: &[],
    facts: Facts { uniform: true, promises: &[Promise::Restraint], unasked: Unasked::Never, ..Facts::PLAIN },
    predict: |_, _, _| {},
};

impl Described for FixedWindow {
    fn info(&self) -> &'static Mechanism {
        &FIXED_WINDOW
    }
}

impl Congestion for FixedWindow {
    fn on_sent(&mut self, _: Time, _: u64, _: &Delivery) {}
    fn on_ack(&mut self, _: &Ack, _: &Delivery) {}
    fn on_loss(&mut self, _: &Loss, _: &Delivery) {}
    fn on_timeout(&mut self, _: &Timeout, _: &Delivery) {}
    fn on_spurious_loss(&mut self, _: u64) {}
    fn set_packet_bytes(&mut self, packet_bytes: u64) {
        self.packet_bytes = packet_bytes;
    }
    fn window_bytes(&self) -> u64 {
        self.packets * self.packet_bytes
    }
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    fn burst_bytes(&self) -> Option<u64> {
        None
    }
    fn summary(&self) -> Summary {
        self.summary
    }
    fn phase(&self) -> &'static str {
        "fixed"
    }
}

/// Makes the mechanism known to this process, before there are endpoints.
fn register() -> Result<(), NotRegistered> {
    congestion::register(&FIXED_WINDOW, |params, context| {
        let packets = u64::from(params.get(0));
        Box::new(FixedWindow { packets, packet_bytes: context.packet_bytes, summary: context.summary })
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}

/// Both ends, in one process.
pub async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    register()?;
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let target = listener.local_addr().to_string();
    let options = ConnectOptions::pinned(listener.fingerprint());
    let (connection, accepted) = tokio::join!(connect(&target, options), listener.accept());
    let (connection, accepted) = (connection?, accepted.ok_or("the listener was closed")?);
    let server = tokio::spawn(check(accepted));

    let (mut send, mut recv) = connection.open_flow(FlowOptions::default()).await?.split();
    let mut sender = Sender { events: connection.events(), connection, written: 0 };
    let before = sender.congestion();
    writeln!(out, "begins with {before}")?;
    for wanted in ["fixed-window(packets=40)", &before] {
        sender.change_to(wanted, &mut send).await?;
        writeln!(out, "changed to {}", sender.congestion())?;
    }
    send.shutdown().await?;
    let arrived = recv.read_u64().await?;
    writeln!(out, "{} of {} bytes arrived as they were sent", arrived, sender.written)?;
    sender.connection.close(0, "done").await;
    Ok(server.await??)
}

/// Byte that is sent at a position: it says the position, modulo a prime.
fn byte_at(position: u64) -> u8 {
    (position % 251) as u8
}

/// The end that sends, and may choose its congestion control.
struct Sender {
    connection: Connection,
    events: Events,
    written: u64,
}

impl Sender {
    fn congestion(&self) -> String {
        let profile = self.connection.profile(Direction::Out);
        profile.map_or_else(String::new, |profile| profile.describe(Function::Congestion))
    }

    /// Asks for a congestion control, and writes until the peer has agreed.
    async fn change_to(&mut self, wanted: &str, send: &mut SendFlow) -> Result<(), Box<dyn Error>> {
        self.connection.set_property("uts.profile.congestion", wanted)?;
        while self.congestion() != wanted {
            let chunk: Vec<u8> = (self.written..self.written + 65_536).map(byte_at).collect();
            tokio::select! {
                event = self.events.next() => match event {
                    Some(ConnectionEvent::Exchange(step)) => match *step {
                        ExchangeEvent::Refused { why, .. } => return Err(why.into()),
                        ExchangeEvent::Failed { .. } => return Err("the peer did not answer".into()),
                        _ => {}
                    },
                    Some(_) => {}
                    None => return Err("the connection ended".into()),
                },
                taken = send.write(&chunk) => self.written += taken? as u64,
            }
        }
        Ok(())
    }
}

/// The end that receives: answers with the number of bytes that were as expected, up to the first
/// that was not.
async fn check(connection: Connection) -> std::io::Result<()> {
    let Some(flow) = connection.accept_flow().await else { return Ok(()) };
    let (mut send, mut recv) = flow.split();
    let (mut right, mut is_right) = (0, true);
    let mut room = vec![0; 65_536];
    loop {
        let read = recv.read(&mut room).await?;
        if read == 0 {
            break;
        }
        for byte in &room[..read] {
            is_right &= *byte == byte_at(right);
            right += u64::from(is_right);
        }
    }
    send.write_u64(right).await?;
    send.shutdown().await?;
    // The answer arrives before the connection may be dropped.
    connection.closed().await;
    Ok(())
}
