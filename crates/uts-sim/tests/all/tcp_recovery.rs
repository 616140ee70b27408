//! The TCPs of old, held to what was published of them, in virtual time: windows after a time-out
//! (Viswanath, "TCP Performance Evaluation Using TIGER Network Testbed", 1999, figure 2.3), and one
//! to four losses in a window (Fall and Floyd, "Simulation-based Comparisons of Tahoe, Reno, and
//! SACK TCP", 1996).

use core::time::Duration;
use uts_engine::{ConnectionConfig, EndpointConfig, Stats, TraceKind};
use uts_functions::Time;
use uts_path::{Direction, PathConfig, Target};
use uts_sim::cost::{Cost, Costs};
use uts_sim::identity::Identities;
use uts_sim::transfer::Transfers;
use uts_sim::{World, WorldConfig};

/// A full packet takes a millisecond; a round trip is 100 ms.
const PATH: &str = "rate=10mbit overhead=50 delay=50ms buffer=1000p";
const ROUND: Duration = Duration::from_millis(100);
const PACKET: u64 = 1200;

/// The TCPs of Fall and Floyd. Receivers report each packet, as theirs did.
const TAHOE: &[&str] = &["uts.profile=tcp-tahoe", EACH, WINDOW];
const RENO: &[&str] = &["uts.profile=tcp-reno", EACH, WINDOW];
const NEWRENO: &[&str] = &["uts.profile=tcp-newreno", EACH, WINDOW];
const LINUX: &[&str] =
    &["uts.profile=tcp-reno-2.1", EACH, WINDOW, "uts.profile.timing=jacobson(repeats=0,floor=1000000)"];
const SACK: &[&str] = &[
    "uts.profile=tcp-newreno",
    "uts.profile.acknowledgement=delayed(packets=1)",
    "uts.profile.finding=overtaken",
    WINDOW,
];
const EACH: &str = "uts.profile.acknowledgement=in-order(packets=1)";
const WINDOW: &str = "uts.profile.flow=sliding-window(window=1000000)";

/// A sender that has data for ever, watched each millisecond.
struct Sender {
    world: World,
    transfers: Transfers,
    /// The instant, the window in packets, and packets that left in the millisecond before.
    rows: Vec<(Time, u64, usize)>,
    /// Instants at which packets left that repeat others.
    repeats: Vec<Time>,
}

impl Sender {
    fn new(properties: &[&str], path: &str) -> Self {
        Self::with(properties, path, 1 << 30)
    }

    fn with(properties: &[&str], path: &str, bytes: u64) -> Self {
        let mut config =
            ConnectionConfig { packet_bytes_max: PACKET as usize, ..ConnectionConfig::default() };
        (config.credit_bytes_initial, config.credit_bytes_max) = (1_000_000, 1_000_000);
        for property in properties.iter().chain(&["uts.consent=all"]) {
            config.requirements.assign(property).unwrap_or_else(|e| panic!("{property}: {e}"));
        }
        let server = EndpointConfig { accept: config.clone(), ..EndpointConfig::default() };
        let path = PathConfig::both(path.parse().expect("a valid path"));
        let world = WorldConfig { path, server, seed: 5, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        world.limit_steps(1_000_000);
        world.keep_packets(1);
        let transfers = Transfers::start(&mut world, &[(1, config)], bytes);
        Sender { world, transfers, rows: Vec::new(), repeats: Vec::new() }
    }

    fn step(&mut self) {
        let until = self.world.now() + Duration::from_millis(1);
        self.transfers.run(&mut self.world, until);
        assert!(!self.world.is_exhausted(), "{} packets", self.window());
        let packets = self.world.take_packets(1);
        let left = |kind| packets.iter().filter(move |(_, row)| row.kind == kind);
        let sent = left(TraceKind::Sent).chain(left(TraceKind::Repeated));
        let sent = sent.filter(|(_, row)| row.data.is_some()).count();
        self.repeats.extend(left(TraceKind::Repeated).map(|(_, row)| row.at));
        let window = self.window();
        self.rows.push((self.world.now(), window, sent));
    }

    fn window(&mut self) -> u64 {
        let handle = self.transfers.progress[&1].connection;
        let connection = self.world.connection(1, handle);
        connection.and_then(|c| c.congestion()).map_or(0, |(_, bytes)| bytes / PACKET)
    }

    fn stats(&mut self) -> Stats {
        let handle = self.transfers.progress[&1].connection;
        self.world.connection(1, handle).map(|c| c.stats()).unwrap_or_default()
    }

    fn run(&mut self, time: Duration) {
        let end = self.world.now() + time;
        while self.world.now() < end {
            self.step();
        }
    }

    fn run_until(&mut self, at: &str, is_so: impl Fn(u64) -> bool) {
        for _ in 0..100_000 {
            if is_so(self.window()) {
                return;
            }
            self.step();
        }
        panic!("{at}: {} packets", self.window());
    }

    /// To a window of so many packets, all of them just before their round trip, in congestion
    /// avoidance: a loss before has set the threshold.
    fn at_window(properties: &[&str], packets: u64) -> Self {
        let mut sender = Sender::new(properties, PATH);
        sender.run_until("slow start", |window| window >= packets / 2);
        // Packets of the flight are still under way: one of the next is lost. Under SACK a report
        // may be the first of them.
        sender.run(ROUND / 2);
        sender.lose(if properties == SACK { "1,2" } else { "1" });
        let mut most = sender.window();
        for _ in 0..10_000 {
            sender.step();
            if sender.window() < most {
                break;
            }
            most = sender.window();
        }
        assert!(sender.window() < packets, "{} of {packets}", sender.window());
        sender.run_until("growth", |window| window >= packets);
        // The flight has left, and its reports have not come.
        sender.run(ROUND / 2 + Duration::from_millis(packets / 2));
        sender.forget();
        sender
    }

    fn lose(&mut self, places: &str) {
        self.world
            .set_path(Target::One(Direction::Forward), &format!("loss=places:{places}"))
            .expect("a valid change");
    }

    fn forget(&mut self) {
        self.rows.clear();
        self.repeats.clear();
    }
}

/// Effects of losses of a window.
#[derive(Debug)]
struct Outcome {
    timeouts: u64,
    /// Number of times that the window has become smaller.
    reductions: usize,
    /// The smallest window, in packets.
    least: u64,
    /// Milliseconds from the first repeat to the last.
    repeated_ms: u64,
    /// Packets at once, at the most, from the first repeat on.
    burst: usize,
    /// Packets that left in the first round trip of the recovery.
    in_recovery: usize,
}

/// A window of so many packets, those at `places` are lost.
fn lose(properties: &[&str], window: u64, places: &str) -> Outcome {
    let mut sender = Sender::at_window(properties, window);
    let before = sender.stats();
    sender.lose(places);
    sender.run(Duration::from_secs(4));
    let after = sender.stats();
    let first = *sender.repeats.first().expect("a loss is repeated");
    // The first loss: what follows later may be of another window.
    let is_of_it = |at: Time| at <= first + Duration::from_millis(1900);
    let last = sender.repeats.iter().copied().filter(|at| is_of_it(*at)).max().expect("one");
    let rows: Vec<_> = sender.rows.iter().filter(|(at, ..)| is_of_it(*at)).collect();
    let from_first = || rows.iter().filter(|(at, ..)| *at + Duration::from_millis(1) >= first);
    let outcome = Outcome {
        timeouts: after.timeouts - before.timeouts,
        reductions: rows.windows(2).filter(|pair| pair[1].1 < pair[0].1).count(),
        least: rows.iter().map(|row| row.1).min().expect("rows"),
        repeated_ms: last.since(first).as_millis() as u64,
        burst: from_first().map(|row| row.2).max().expect("rows"),
        in_recovery: from_first().filter(|(at, ..)| *at <= first + ROUND).map(|row| row.2).sum(),
    };
    println!("{properties:?} {window} {places}: {outcome:?}");
    outcome
}

/// Figure 2.3: a time-out at a window of 32.
#[test]
fn windows_after_a_time_out_are_those_of_figure_2_3() {
    for properties in [TAHOE, RENO, NEWRENO, LINUX] {
        let mut sender = Sender::at_window(properties, 32);
        sender.world.set_path(Target::Both, "down").expect("a change");
        sender.run_until("a time-out", |window| window == 1);
        sender.world.set_path(Target::Both, "up").expect("a change");
        // The repeat waits its turn on the line still, and passes. Half-way through each round trip
        // all reports of the one before are there.
        sender.run(ROUND * 6 / 10);
        let windows: Vec<_> = (0..6)
            .map(|_| {
                let window = sender.window();
                sender.run(ROUND + Duration::from_millis(2));
                window
            })
            .collect();
        println!("{}: {windows:?}", properties[0]);
        assert_eq!(windows, [1, 2, 4, 8, 16, 17], "{}", properties[0]);
    }
}

/// Fall and Floyd, figures 2 to 5: one, two, three and four losses in a window of 16.
#[test]
fn losses_in_a_window_bring_what_fall_and_floyd_published() {
    for (count, places) in [(1, "1"), (2, "1,4"), (3, "1,4,6"), (4, "1,4,6,8")] {
        let tahoe = lose(TAHOE, 16, places);
        assert_eq!((tahoe.timeouts, tahoe.least), (0, 1), "slow start after each: {tahoe:?}");

        let reno = lose(RENO, 16, places);
        match count {
            1 => assert_eq!((reno.timeouts, reno.reductions, reno.least), (0, 1, 8), "{reno:?}"),
            2 => assert_eq!((reno.timeouts, reno.reductions), (0, 2), "two fast retransmits: {reno:?}"),
            _ => assert!(reno.timeouts == 1 && reno.least == 1, "waits for the timer: {reno:?}"),
        }

        let newreno = lose(NEWRENO, 16, places);
        // Half, and at the end of the recovery no more than a packet beyond what is in flight (RFC
        // 6582 section 3.2, step 3): with one loss that is half as well.
        assert_eq!((newreno.timeouts, newreno.reductions), (0, 1 + usize::from(newreno.least < 8)));
        assert!(newreno.least == 8 || (count > 1 && newreno.least >= 4), "{newreno:?}");
        assert!(newreno.burst <= 2, "{newreno:?}");
        // One in a round trip.
        let rounds = newreno.repeated_ms.div_ceil(ROUND.as_millis() as u64);
        assert!(rounds >= count - 1 && rounds <= count, "{newreno:?}");

        let sack = lose(SACK, 16, places);
        assert_eq!((sack.timeouts, sack.reductions), (0, 1), "{sack:?}");
        assert!(sack.repeated_ms <= 110, "within a round trip: {sack:?}");
        for (name, outcome) in [("reno", &reno), ("newreno", &newreno), ("sack", &sack)] {
            assert!(outcome.burst <= 4, "{name}: no burst: {outcome:?}");
        }
        // A duplicate lets a packet go, before the repeat is acknowledged.
        for (name, outcome) in [("reno", &reno), ("newreno", &newreno)] {
            let expected = 9 - count as usize;
            assert!(outcome.in_recovery.abs_diff(expected) <= 1, "{name}: {expected}? {outcome:?}");
        }
    }
}

/// Fall and Floyd, section 3: Reno waits for the timer with two losses in a window of less than ten
/// packets, and with three unless more than three quarters of a window lie between the first two.
/// Linux 2.1 repeats the second of three at once, and counts for the third.
#[test]
fn where_reno_waits_for_the_timer_follows_from_the_window_and_the_places_of_the_losses() {
    for (window, places, waits) in [
        (8, "1,3", true),
        (12, "1,4", false),
        (32, "1,4", false),
        (48, "1,12", false),
        (32, "1,4,8", true),
        (48, "1,4,8", true),
        (48, "1,43,45", false),
        (32, "1,2,3,4,5", true),
    ] {
        let reno = lose(RENO, window, places);
        assert_eq!(reno.timeouts > 0, waits, "{window}: {places}: {reno:?}");
    }
    for (window, places) in [(12, "1,4"), (16, "1,4"), (48, "1,4")] {
        let linux = lose(LINUX, window, places);
        assert_eq!((linux.timeouts, linux.reductions), (0, 1), "{window}: {places}: {linux:?}");
    }
    for (window, places) in [(8, "1,3"), (16, "1,4,6,8"), (32, "1,2,3,4,5"), (64, "1,2,3,4,5,6,7,8")] {
        let newreno = lose(NEWRENO, window, places);
        assert!(newreno.timeouts == 0 && newreno.reductions <= 2, "{window}: {places}: {newreno:?}");
    }
}

/// All in flight is lost: one packet leaves, and not half a window (RFC 5681 section 3.1).
#[test]
fn a_time_out_lets_one_packet_go_whatever_the_profile() {
    for properties in [TAHOE, RENO, NEWRENO, LINUX] {
        let mut sender = Sender::at_window(properties, 48);
        sender.world.set_path(Target::Both, "down").expect("a change");
        sender.run(Duration::from_secs(2));
        sender.world.set_path(Target::Both, "up").expect("a change");
        let most = |sender: &Sender| sender.rows.iter().map(|row| row.2).max();
        // What was in flight already, at most.
        sender.forget();
        sender.run(Duration::from_secs(4));
        assert!(most(&sender) <= Some(2), "{properties:?}: {:?} at once", most(&sender));
        assert!(sender.window() >= 24, "{properties:?}: it has come up again");
    }
}

/// A receiver takes 3 ms for a packet, and the window holds the sender back: none leaves that the
/// window cuts short (RFC 1122 section 4.2.3.4).
#[test]
fn what_the_window_cuts_short_waits_in_each_tcp() {
    for profile in ["tcp-tahoe", "tcp-reno", "tcp-newreno"] {
        for (window, settings, avoids) in [(4096, "", true), (16_384, "", true), (4096, ",nagle=1", false)] {
            let settings = if settings.is_empty() { ",nagle=3" } else { settings };
            let pins = [
                format!("uts.profile={profile}"),
                format!("uts.profile.flow=sliding-window(window={window}{settings})"),
            ];
            let pins: Vec<&str> = pins.iter().map(String::as_str).collect();
            let mut sender = Sender::with(&pins, "rate=10mbit delay=100us buffer=200p", 300_000);
            let costs = Costs {
                copy_out: Cost::fixed(Duration::from_micros(100)),
                receive: Cost::fixed(Duration::from_millis(3)),
                receive_queue: Some(200),
                ..Costs::default()
            };
            sender.world.set_costs(0, costs).expect("valid costs");
            let end = Time::from_millis(20_000);
            assert!(sender.transfers.run(&mut sender.world, end), "{:?}", sender.transfers.progress);
            let packets = sender.world.take_packets(1);
            let mut bytes: Vec<u64> = (packets.iter())
                .filter(|(_, row)| row.kind == TraceKind::Sent && row.data.is_some())
                .map(|(_, row)| row.bytes)
                .collect();
            // The last carries what is left.
            bytes.pop();
            let small = bytes.iter().filter(|bytes| **bytes < 700).count();
            println!("{profile} {window}{settings}: {small} of {} are small", bytes.len());
            assert_eq!(small == 0, avoids, "{profile} {window}{settings}: {small} of {}", bytes.len());
        }
    }
}
