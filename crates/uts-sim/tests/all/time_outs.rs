//! Time-outs: what they leave of the window, whatever mechanisms find losses and answer them
//! (congestion.md C-43), and for how long the time-out stays doubled (timing.md R-19).

use core::time::Duration;
use uts_engine::{ConnectionConfig, TraceKind};
use uts_functions::{Function, library};
use uts_path::{Direction, PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::transfer::{Transfers, checksum};
use uts_sim::{World, WorldConfig};

const ROUND: Duration = Duration::from_millis(40);
const BYTES: u64 = 4_000_000;
const PACKET: usize = 1200;
const FLOOR: Duration = Duration::from_millis(300);

/// A transfer over 20 Mbit/s, and the packets of its sender.
struct Run {
    world: World,
    transfers: Transfers,
}

impl Run {
    fn new(pins: &[String]) -> Self {
        let mut client = ConnectionConfig { packet_bytes_max: PACKET, ..ConnectionConfig::default() };
        for property in pins.iter().map(String::as_str).chain(["uts.consent=all"]) {
            client.requirements.assign(property).unwrap_or_else(|error| panic!("{property}: {error}"));
        }
        let path = "rate=20mbit delay=20ms buffer=400p".parse().expect("a path");
        let mut config = WorldConfig { path: PathConfig::both(path), seed: 3, ..WorldConfig::default() };
        config.server.accept.requirements.consents = client.requirements.consents.clone();
        let mut world = World::new(config, Identities::new().expect("keys")).expect("a world");
        world.limit_steps(5_000_000);
        world.keep_packets(1);
        let transfers = Transfers::start(&mut world, &[(1, client)], BYTES);
        Run { world, transfers }
    }

    fn run(&mut self, time: Duration) {
        let until = self.world.now() + time;
        self.transfers.run(&mut self.world, until);
    }

    /// To a tenth of the transfer.
    fn begin(&mut self) {
        while self.transfers.progress[&1].received < BYTES / 10 {
            self.run(ROUND);
        }
    }

    /// Until so many time-outs more; says after how long.
    fn time_outs(&mut self, count: u64) -> Duration {
        let (from, (_, before)) = (self.world.now(), self.look());
        for _ in 0..100_000 {
            if self.look().1 >= before + count {
                return self.world.now().since(from);
            }
            self.run(Duration::from_millis(1));
        }
        panic!("no time-out");
    }

    /// The window in bytes, and time-outs so far.
    fn look(&mut self) -> (u64, u64) {
        let handle = self.transfers.progress[&1].connection;
        let connection = self.world.connection(1, handle).expect("it is open");
        let window = connection.congestion().map_or(0, |(_, bytes)| bytes);
        (window, connection.stats().timeouts)
    }

    /// Bytes of packets with data that left since this was asked last.
    fn sent_bytes(&mut self) -> u64 {
        let packets = self.world.take_packets(1);
        let is_data = |kind| matches!(kind, TraceKind::Sent | TraceKind::Repeated);
        packets
            .iter()
            .filter(|(_, row)| is_data(row.kind) && row.data.is_some())
            .map(|(_, row)| row.bytes)
            .sum()
    }

    fn set(&mut self, what: &str) {
        self.world.set_path(Target::Both, what).expect("a change");
    }
}

/// Everything in flight is lost, for each pair of mechanisms. Where finding takes a time-out for a
/// loss one packet is the window, and one leaves at each time-out. Where it probes, no more than
/// probes leave: the window is left to persistent congestion (RFC 9002 section 7.6).
#[test]
fn one_packet_is_the_window_once_everything_in_flight_has_timed_out() {
    let named = |function| library::all().filter(move |m| m.function == function);
    for finding in named(Function::Finding) {
        let loses = !["overtaken", "status"].contains(&finding.name);
        for congestion in named(Function::Congestion).filter(|m| m.name != "none") {
            let at = format!("{} by {}", congestion.name, finding.name);
            let mut run = Run::new(&[
                format!("uts.profile.finding={}", finding.name),
                format!("uts.profile.congestion={}", congestion.name),
                "uts.adapt=off".into(),
            ]);
            run.begin();
            let before = run.look().0;
            assert!(before >= 4 * PACKET as u64, "{at}: {before}");
            run.set("down");
            run.time_outs(1);
            let (window, counted) = run.look();
            run.world.take_packets(1);
            run.run(Duration::from_secs(1));
            // Packets may be smaller by then, and several, where full ones vanish.
            let left = run.sent_bytes();
            let time_outs = run.look().1 - counted + 1;
            println!("{at}: {before} to {window}, {left} bytes by {time_outs} time-outs");
            if loses {
                assert_eq!(window, PACKET as u64, "{at}: from {before}");
            }
            let packets = time_outs * if loses { 1 } else { 2 };
            assert!(left <= packets * PACKET as u64, "{at}: {left} bytes by {time_outs} time-outs");
            run.set("up");
            run.run(Duration::from_secs(60));
            let progress = &run.transfers.progress[&1];
            assert_eq!((progress.received, progress.checksum), (BYTES, checksum(BYTES)), "{at}");
        }
    }
}

/// Karn: what a repeat brings measures nothing, and what time-outs have doubled stays until
/// something does. Without that rule any acknowledgement ends it.
#[test]
fn a_time_out_stays_doubled_until_a_round_trip_is_measured() {
    for finding in ["duplicates", "expiry"] {
        for (repeats, factor) in [(0, 8), (1, 1)] {
            let mut run = Run::new(&[
                format!("uts.profile.timing=jacobson(repeats={repeats},floor={})", FLOOR.as_micros()),
                format!("uts.profile.finding={finding}"),
                "uts.profile.congestion=reno".into(),
                "uts.profile.acknowledgement=delayed(packets=1)".into(),
                "uts.adapt=off".into(),
            ]);
            run.begin();
            run.set("down");
            // Two repeats are lost, the third passes.
            run.time_outs(2);
            run.run(ROUND);
            run.set("up");
            run.time_outs(1);
            let before = run.transfers.progress[&1].received;
            for _ in 0..1000 {
                run.run(Duration::from_millis(1));
                if run.transfers.progress[&1].received > before {
                    break;
                }
            }
            // Its acknowledgement passes, nothing else.
            run.world.set_path(Target::One(Direction::Forward), "loss=1").expect("a change");
            run.run(ROUND / 2 + Duration::from_millis(2));
            let again = run.time_outs(1);
            println!("{finding}, repeats={repeats}: {again:?}");
            // From when the last packet left, a little before.
            let expected = FLOOR * factor;
            let is_so = again + ROUND * 2 > expected && again < expected * 3 / 2;
            assert!(is_so, "{finding}, repeats={repeats}: {again:?}, not {expected:?}");
            run.world.set_path(Target::One(Direction::Forward), "loss=0").expect("a change");
            // A round trip that is measured ends it.
            run.run(Duration::from_secs(20));
            assert_eq!(run.transfers.progress[&1].received, BYTES, "{finding}");
        }
    }
}

/// All packets come late, for the time-out is that of a path that was shorter: they measure it
/// anew, also where time-outs double nothing.
#[test]
fn a_round_trip_longer_than_the_time_out_is_learnt() {
    let findings = ["overtaken", "duplicates", "expiry", "expiry(back-off=0)", "status"];
    let each = findings.into_iter().flat_map(|finding| [(finding, 0), (finding, 1)]);
    for (finding, repeats) in each {
        let mut run = Run::new(&[
            format!("uts.profile.finding={finding}"),
            format!("uts.profile.timing=jacobson(repeats={repeats})"),
            "uts.profile.congestion=reno".into(),
            "uts.adapt=off".into(),
        ]);
        run.begin();
        run.set("delay=400ms");
        let late = |run: &mut Run| {
            let handle = run.transfers.progress[&1].connection;
            run.world.connection(1, handle).expect("it is open").stats().packets_late
        };
        run.run(Duration::from_secs(8));
        let learnt = late(&mut run);
        run.run(Duration::from_secs(500));
        let (all, progress) = (late(&mut run), &run.transfers.progress[&1]);
        println!("{finding}, repeats={repeats}: {learnt} late, then {}", all - learnt);
        assert_eq!(progress.received, BYTES, "{finding}, repeats={repeats}");
        assert!(
            all - learnt <= 20,
            "{finding}, repeats={repeats}: {learnt} packets were late at first, {all} in the end"
        );
    }
}

/// The shortest time-out of each TCP, on a path of 10 ms whose receiver may hold a report back for
/// 200 ms: 200 ms and more of Linux 2.1.117 (Viswanath 1999 measured 225 ms), a second of the
/// others. One that follows the path alone would be over sooner.
#[test]
fn no_time_out_is_shorter_than_the_floor() {
    let floor = |ms| Duration::from_millis(ms);
    for (profile, least, most) in [
        ("tcp-reno-2.1", floor(200), floor(300)),
        ("tcp-reno", floor(1000), floor(1010)),
        ("tcp-newreno", floor(1000), floor(1010)),
        ("tcp-tahoe", floor(1000), floor(1010)),
    ] {
        for delay in [1, 50, 200] {
            let mut run = Run::new(&[
                format!("uts.profile={profile}"),
                format!("uts.profile.acknowledgement=in-order(packets=2,delay={delay})"),
            ]);
            run.begin();
            run.set("down");
            // The oldest of what is in flight then, or the last report, is no older than a round
            // trip.
            let after = run.time_outs(1);
            println!("{profile}, {delay} ms: {after:?}");
            assert!(after + ROUND * 2 >= least && after <= most + ROUND, "{profile}, {delay} ms: {after:?}");
        }
    }
}
