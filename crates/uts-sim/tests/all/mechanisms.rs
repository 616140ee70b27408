//! Known effects of mechanisms of one function, end to end and in virtual time.

use core::time::Duration;
use uts_engine::{ConnectionConfig, EndpointConfig, Stats};
use uts_functions::mechanism::Promise;
use uts_functions::{Function, Time, library};
use uts_path::{Direction, PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::transfer::{Transfers, checksum};
use uts_sim::{World, WorldConfig};

const PATH: &str = "rate=20mbit delay=20ms buffer=200p";

/// Time and counters of a transfer.
#[derive(Debug)]
struct Outcome {
    took: Duration,
    stats: Stats,
    /// The same of the server.
    receiver: Stats,
    /// Bytes that the server's application has read.
    received: u64,
    /// Packets from the server, its reports.
    packets_back: u64,
}

fn config(properties: &[&str]) -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    for property in properties.iter().chain(&["uts.adapt=off", "uts.consent=all"]) {
        if let Some(bytes) = property.strip_prefix("credit=") {
            config.credit_bytes_initial = bytes.parse().expect("bytes");
            continue;
        }
        config.requirements.assign(property).unwrap_or_else(|e| panic!("{property}: {e}"));
    }
    config
}

/// One client sends so many bytes. The path is as it says once the connection is there; `out` is
/// when it goes, and for how long.
fn carry(path: &str, bytes: u64, properties: &[&str], out: Option<(u64, u64)>) -> Outcome {
    let (link, loss) = path.split_once(" loss").map_or((path, None), |(link, loss)| (link, Some(loss)));
    let path = PathConfig::both(link.parse().expect("a valid path"));
    let server = EndpointConfig { accept: config(properties), ..EndpointConfig::default() };
    let world = WorldConfig { path, server, seed: 5, ..WorldConfig::default() };
    let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
    world.limit_steps(5_000_000);
    let mut transfers = Transfers::start(&mut world, &[(1, config(properties))], bytes);
    transfers.run(&mut world, Time::from_millis(200));
    if let Some(loss) = loss {
        world.set_path(Target::Both, &format!("{link} loss{loss}")).expect("a change");
    }
    if let Some((at, length)) = out {
        transfers.run(&mut world, Time::from_millis(at));
        world.set_path(Target::Both, "down").expect("a change");
        transfers.run(&mut world, Time::from_millis(at + length));
        world.set_path(Target::Both, "up").expect("a change");
    }
    let done = transfers.run(&mut world, Time::from_millis(600_000));
    let progress = &transfers.progress[&1];
    let stats = world.connection(1, progress.connection).map(|c| c.stats()).unwrap_or_default();
    let server = world.endpoint(0);
    let receiver = server.handles().next().and_then(|handle| server.peek(handle)).map(|c| c.stats());
    let receiver = receiver.unwrap_or_default();
    let packets_back = world.path_stats(Direction::Backward).packets_in;
    let at =
        format!("{properties:?} over {link}, {loss:?}: {} of {bytes} bytes, {stats:?}", progress.received);
    assert!(done && !world.is_exhausted(), "{at}, closed: {:?}", progress.closed);
    assert_eq!(progress.closed, None, "{at}");
    let is_whole = progress.checksum == checksum(bytes);
    assert!(is_whole || stats.bytes_given_up > 0, "{at}");
    let (from, to) = (progress.connected_at.expect("connected"), progress.done_at.expect("done"));
    println!("{at}: {:?}", to.since(from));
    Outcome { took: to.since(from), stats, receiver, received: progress.received, packets_back }
}

const FINDING: [&str; 7] = [
    "overtaken",
    "duplicates",
    "duplicates(partial=0)",
    "expiry",
    "expiry(frozen=1)",
    "expiry(frozen=1,back-off=0)",
    "status",
];

fn finding(mechanism: &str) -> String {
    format!("uts.profile.finding={mechanism}")
}

#[test]
fn where_nothing_is_lost_all_ways_of_finding_losses_are_as_fast() {
    let path = "rate=20mbit delay=20ms";
    let plain = carry(path, 1_000_000, &[], None);
    for mechanism in FINDING {
        let Outcome { took, stats, .. } = carry(path, 1_000_000, &[&finding(mechanism)], None);
        assert_eq!(stats.packets_lost, 0, "{mechanism}");
        if mechanism.contains("frozen=1") {
            // A time-out that is not worked out anew is too short for a queue that grows.
            assert!(stats.timeouts > 0 && stats.packets_late > 0, "{mechanism}");
            continue;
        }
        assert_eq!((stats.timeouts, stats.packets_late), (0, 0), "{mechanism}");
        assert!(took <= plain.took * 21 / 20, "{mechanism}: {took:?}, {:?} by default", plain.took);
    }
}

#[test]
fn whatever_finds_losses_repairs_them_and_outlives_an_outage() {
    for mechanism in FINDING {
        for acknowledgement in ["delayed", "poll-status"] {
            let acknowledgement = format!("uts.profile.acknowledgement={acknowledgement}");
            let properties = [&finding(mechanism), acknowledgement.as_str()];
            let lossy = carry(&format!("{PATH} loss=0.03 jitter=3ms,reorder"), 300_000, &properties, None);
            assert!(lossy.stats.packets_lost > 0, "{mechanism}");
            let out = carry(PATH, 1_000_000, &properties, Some((400, 3000)));
            assert!(out.stats.timeouts > 0, "{mechanism}");
            assert!(out.took < Duration::from_secs(12), "{mechanism}: {:?}", out.took);
        }
    }
}

#[test]
fn without_back_off_an_outage_brings_more_time_outs() {
    let timeouts = |mechanism: &str| {
        let properties = [&finding(mechanism), "uts.profile.timing=fixed(timeout=300)"];
        carry(PATH, 400_000, &properties, Some((300, 8000))).stats.timeouts
    };
    let [backed_off, steady] = ["expiry(frozen=1)", "expiry(frozen=1,back-off=0)"].map(timeouts);
    assert!(steady >= 2 * backed_off, "{steady} time-outs without back-off, {backed_off} with");
}

/// A window of packets lets as many through in a round trip as it holds, here 40 ms and a little.
#[test]
fn windows_bound_what_a_round_trip_carries() {
    let path = "rate=100mbit delay=20ms";
    // About 1160 bytes each until larger packets are tried, which a window of one hinders too.
    for (flow, in_a_round, bytes) in [
        ("stop-and-wait", 1, 40_000),
        ("fixed-window(packets=15)", 15, 600_000),
        ("packet-group(packets=8)", 8, 320_000),
        ("blast-buffer(unit=20000)", 17, 600_000),
        ("sliding-window(window=20000)", 17, 600_000),
    ] {
        let acknowledgement = "uts.profile.acknowledgement=per-packet";
        let flow = format!("uts.profile.flow={flow}");
        // Else the first window would be the one before the profile is agreed.
        let credit = if flow.contains("sliding") { "credit=20000" } else { "credit=1000000" };
        let Outcome { took, stats, .. } = carry(path, bytes, &[&flow, acknowledgement, credit], None);
        let rounds = took.as_secs_f64() / 0.04;
        let packets = bytes as f64 / 1160.0;
        assert_eq!(stats.timeouts, 0, "{flow}");
        // What leaves before the profile is agreed is bound by the first window alone.
        let least = (packets - 20.0) / f64::from(in_a_round);
        assert!(rounds >= 0.8 * least && rounds <= 1.3 * least + 12.0, "{flow}: {rounds} rounds, {least}");
    }
}

#[test]
fn windows_outlive_losses_outages_and_whatever_reports() {
    for flow in [
        "stop-and-wait",
        "fixed-window",
        "packet-group",
        "blast-buffer(unit=5000)",
        "sliding-window(window=9000,update=0,threshold=23,nagle=1)",
        "sliding-window(window=1500,update=0,nagle=1)",
    ] {
        for acknowledgement in ["delayed", "poll-status"] {
            let acknowledgement = format!("uts.profile.acknowledgement={acknowledgement}");
            let flow = format!("uts.profile.flow={flow}");
            let properties = [flow.as_str(), acknowledgement.as_str()];
            carry(&format!("{PATH} loss=0.05 jitter=3ms,reorder"), 60_000, &properties, None);
            let out = carry(PATH, 60_000, &properties, Some((300, 2000)));
            assert!(out.took < Duration::from_secs(40), "{flow}: {:?}", out.took);
        }
    }
}

#[test]
fn reports_are_as_many_as_their_mechanism_has_it() {
    let back = |acknowledgement: &str| {
        let acknowledgement = format!("uts.profile.acknowledgement={acknowledgement}");
        carry("rate=20mbit delay=20ms", 1_000_000, &[&acknowledgement], None).packets_back
    };
    let [each, every, missing, adaptive] =
        ["per-packet", "every(packets=16)", "missing", "adaptive(interval=10)"].map(back);
    assert!(
        every < each / 4 && missing < each / 4,
        "{each} by packet, {every} by 16, {missing} of what lacks"
    );
    // A report each 10 ms of 420, and those before the profile is agreed.
    assert!(adaptive < 110 && adaptive > 40, "{adaptive}");
}

/// TCP's pair, and every other way to report with every way to find losses.
#[test]
fn every_way_to_report_goes_with_every_way_to_find_losses() {
    for acknowledgement in ["every", "in-order", "missing", "adaptive", "piggybacked"] {
        for mechanism in FINDING {
            let acknowledgement = format!("uts.profile.acknowledgement={acknowledgement}");
            let properties = [&finding(mechanism), acknowledgement.as_str()];
            let path = format!("{PATH} loss=0.05 jitter=3ms,reorder");
            let lossy = carry(&path, 150_000, &properties, None);
            assert!(lossy.took < Duration::from_secs(30), "{properties:?}: {:?}", lossy.took);
        }
    }
}

/// A receiver that keeps nothing behind a gap, or little and then gives all of it up: whatever
/// finds losses and repeats, all arrives, once (acknowledgement.md R-22).
#[test]
fn what_a_receiver_gives_up_is_sent_again() {
    for keep in [0, 1, 3, 10] {
        for mechanism in FINDING {
            for (retransmission, form) in [("go-back-n", "no-preference"), ("selective", "require")] {
                let acknowledgement = format!("uts.profile.acknowledgement=in-order(keep={keep})");
                let retransmission = format!("uts.profile.retransmission={retransmission}");
                let boundaries = format!("preserveMsgBoundaries={form}");
                let properties =
                    [&finding(mechanism), acknowledgement.as_str(), &retransmission, &boundaries];
                let path = format!("{PATH} loss=0.05 jitter=3ms,reorder");
                let Outcome { stats, receiver, took, .. } = carry(&path, 600_000, &properties, None);
                assert_eq!((stats.bytes_given_up, receiver.positions_skipped), (0, 0), "{properties:?}");
                assert!(keep == 10 || receiver.dropped_overrun > 0, "{properties:?}: {receiver:?}");
                // Losses in a row look like a path of small packets, each with a timer.
                assert!(took < Duration::from_secs(75), "{properties:?}: {took:?}");
            }
        }
    }
}

/// Protocols whose receivers gave up what was out of order.
#[test]
fn profiles_of_receivers_without_buffers_carry_whole() {
    for profile in ["hdlc", "tcp-reno-2.1"] {
        let profile = format!("uts.profile={profile}");
        let path = "rate=20mbit delay=20ms buffer=20p loss=0.02";
        let Outcome { stats, receiver, received, .. } = carry(path, 2_000_000, &[&profile], None);
        assert_eq!((received, stats.bytes_given_up), (2_000_000, 0), "{profile}");
        assert!(receiver.dropped_overrun > 0, "{profile}: {receiver:?}");
    }
}

/// Redundancy brings packets back whose data a receiver would give up: the sender was told of them.
#[test]
fn what_redundancy_brought_back_is_not_given_up() {
    for fec in ["xor", "reed-solomon", "sliding-window"] {
        for keep in [0, 1, 4] {
            let acknowledgement = format!("uts.profile.acknowledgement=in-order(keep={keep})");
            let fec = format!("uts.profile.fec={fec}");
            let path = format!("{PATH} loss=0.08 jitter=3ms,reorder");
            let Outcome { receiver, .. } = carry(&path, 300_000, &[&fec, &acknowledgement], None);
            assert!(receiver.packets_recovered > 0 || keep == 0, "{fec}: {receiver:?}");
        }
    }
}

#[test]
fn what_is_lost_for_the_last_time_is_given_up() {
    let carried = |retransmission: &str| {
        let retransmission = format!("uts.profile.retransmission={retransmission}");
        carry(&format!("{PATH} loss=0.1"), 400_000, &[&retransmission, "reliability=prefer"], None)
    };
    for whole in ["count-limited(tries=255)", "deadline-limited(deadline=60000)"] {
        let outcome = carried(whole);
        assert_eq!((outcome.received, outcome.stats.bytes_given_up), (400_000, 0), "{whole}");
    }
    let [once, twice] = ["count-limited(tries=1)", "count-limited(tries=2)"].map(carried);
    assert!(once.received < 380_000 && twice.received > once.received, "{once:?} {twice:?}");
    let soon = carried("deadline-limited(deadline=1)");
    assert!(soon.received < 380_000, "{soon:?}");
}

/// A connection that sends so many bytes, and is over.
fn meet(world: &mut World, config: &ConnectionConfig, bytes: u64) {
    let until = world.now() + Duration::from_secs(10);
    let mut transfers = Transfers::start(world, &[(1, config.clone())], bytes);
    assert!(transfers.run(world, until), "{:?}", transfers.progress);
    let now = world.now();
    let handle = transfers.progress[&1].connection;
    world.connection(1, handle).expect("open").close(now, 0, "");
    world.run_for(Duration::from_secs(20));
}

/// The first packets of a connection are lost. Who has met the peer before knows when to repeat.
#[test]
fn who_knows_the_path_repeats_its_first_packets_sooner() {
    let waits = |has_met: bool| {
        let path = PathConfig::both("rate=20mbit delay=20ms".parse().expect("a valid path"));
        let world = WorldConfig { path, seed: 5, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        if has_met {
            meet(&mut world, &config(&[]), 50_000);
        }
        world.set_path(Target::Both, "down").expect("a change");
        let start = world.now();
        let mut transfers = Transfers::start(&mut world, &[(1, config(&[]))], 1000);
        transfers.run(&mut world, start + Duration::from_millis(30));
        world.set_path(Target::Both, "up").expect("a change");
        assert!(transfers.run(&mut world, start + Duration::from_secs(10)));
        transfers.progress[&1].connected_at.expect("connected").since(start)
    };
    let (knows, guesses) = (waits(true), waits(false));
    assert!(
        guesses > Duration::from_millis(999) && knows < Duration::from_millis(400),
        "{knows:?} {guesses:?}"
    );
}

/// A transfer that is over before slow start has filled the path.
#[test]
fn careful_resume_begins_with_half_of_what_the_last_connection_had() {
    let takes = |mechanism: &str, has_met: bool| {
        let path = PathConfig::both("rate=50mbit delay=50ms buffer=500p".parse().expect("a valid path"));
        let world = WorldConfig { path, seed: 7, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        let config = config(&[&format!("uts.profile.congestion={mechanism}"), "credit=2000000"]);
        if has_met {
            meet(&mut world, &config, 4_000_000);
        }
        let mut transfers = Transfers::start(&mut world, &[(1, config)], 400_000);
        assert!(transfers.run(&mut world, Time::from_millis(60_000)), "{:?}", transfers.progress);
        let progress = &transfers.progress[&1];
        progress.done_at.expect("done").since(progress.connected_at.expect("connected"))
    };
    let (resumes, first) = (takes("careful-resume", true), takes("careful-resume", false));
    assert!(resumes < first.mul_f64(0.7), "{resumes:?} {first:?}");
    let (again, cubic) = (takes("cubic", true), takes("cubic", false));
    assert!(again > cubic.mul_f64(0.95), "who tests nothing takes nothing for granted: {again:?} {cubic:?}");
}

/// An optional mechanism comes with the first exchange. Until then another yields to the path.
#[test]
fn who_is_to_yield_does_so_from_the_first_packet_on() {
    let list = library::of(Function::Congestion);
    let yielding = list.into_iter().filter(|m| m.facts.promises.contains(&Promise::Restraint));
    let pins = yielding.map(|m| format!("uts.profile.congestion={}", m.name));
    // Those of old that have a window or a rate instead.
    let profiles = ["rx-3.1", "rx-hex", "xtp", "netblt", "vmtp", "v-blast-3"];
    for pin in pins.chain(profiles.map(|name| format!("uts.profile={name}"))) {
        let path = PathConfig::both("rate=20mbit delay=50ms buffer=200p".parse().expect("a valid path"));
        let world = WorldConfig { path, seed: 3, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        let config = config(&[&pin, "credit=8000000"]);
        let mut transfers = Transfers::start(&mut world, &[(1, config)], 2_000_000);
        while transfers.progress[&1].connected_at.is_none() {
            let soon = world.now() + Duration::from_millis(5);
            transfers.run(&mut world, soon);
        }
        let connected_at = transfers.progress[&1].connected_at.expect("connected");
        transfers.run(&mut world, connected_at + Duration::from_millis(95));
        let handle = transfers.progress[&1].connection;
        let sent = world.connection(1, handle).expect("open").stats().bytes_sent;
        assert!(sent < 30_000, "{pin}: {sent} bytes before a report");
    }
}

/// Some packets in a row are lost. Tahoe sends all anew, NewReno finds one loss in a round trip,
/// and Reno waits for its timer, of a second at least (Fall and Floyd, 1996).
#[test]
fn the_tcps_of_old_answer_losses_in_a_row_as_they_did() {
    let answer = |profile: &str| {
        let path = PathConfig::both("rate=2mbit delay=20ms buffer=40p".parse().expect("a valid path"));
        let mut world =
            World::new(WorldConfig { path, ..WorldConfig::default() }, Identities::new().expect("keys"))
                .expect("a valid world");
        let config = config(&[&format!("uts.profile={profile}")]);
        let mut transfers = Transfers::start(&mut world, &[(1, config)], 200_000);
        for (until_ms, loss) in [(700, "loss=1"), (725, "loss=0")] {
            transfers.run(&mut world, Time::from_millis(until_ms));
            world.set_path(Target::One(Direction::Forward), loss).expect("a change");
        }
        assert!(transfers.run(&mut world, Time::from_millis(60_000)), "{:?}", transfers.progress);
        let progress = &transfers.progress[&1];
        let stats = world.connection(1, progress.connection).expect("open").stats();
        let took = progress.done_at.expect("done").since(Time::ZERO);
        Outcome { took, stats, receiver: Stats::default(), received: 200_000, packets_back: 0 }
    };
    let [tahoe, reno, new_reno] = ["tcp-tahoe", "tcp-reno", "tcp-newreno"].map(answer);
    for (outcome, timeouts) in [(&tahoe, 0), (&reno, 1), (&new_reno, 0)] {
        assert_eq!(outcome.stats.timeouts, timeouts, "{outcome:?}");
        assert!((3..=30).contains(&outcome.stats.packets_lost), "{outcome:?}");
    }
    let late = [&tahoe, &new_reno].map(|outcome| outcome.stats.packets_late);
    assert!(late[0] > 0 && late[1] == 0, "what Tahoe takes for lost is there: {late:?}");
    let second = Duration::from_secs(1);
    assert!(new_reno.took + second / 2 < reno.took && tahoe.took + second / 2 < reno.took, "{reno:?}");
}

/// A profile with a window instead of congestion control repeats nothing where nothing is lost.
#[test]
fn windows_of_old_overrun_no_path_that_holds_them() {
    for profile in ["rx-3.1", "rx-hex", "vmtp", "tcp-tahoe", "v-blast-1", "v-blast-3"] {
        // Rx's timers are of single packets: the first are too short, see below.
        let most = if profile == "rx-hex" { 0.12 } else { 0.02 };
        let pin = format!("uts.profile={profile}");
        let done = carry("rate=10mbit delay=100us buffer=100p", 1_000_000, &[&pin], None);
        let repeated = done.stats.bytes_repeated as f64 / 1e6;
        assert!(repeated < most, "{profile}: {repeated:.3} of the data were repeated, {done:?}");
    }
}

/// "When RTT exceeds RTO, packets are retransmitted. However, the increase in RTT, and especially
/// in MDEV, allows Rx to adapt almost immediately" (The Rx Hex, figure 11). On an idle Ethernet it
/// is the window of 15 packets, sent at once, that makes the round trip longer than it was without
/// one: only the first windows are repeated, and none where time-outs are no shorter than a window.
#[test]
fn the_rx_hex_repeats_its_first_windows_on_an_idle_ethernet() {
    let path = "rate=10mbit delay=100us buffer=100p";
    let outcome = |bytes, timing: &str| {
        let timing = format!("uts.profile.timing=jacobson(k=2{timing})");
        carry(path, bytes, &["uts.profile=rx-hex", &timing], None)
    };
    let (short, long) = (outcome(500_000, ""), outcome(5_000_000, ""));
    assert!((1..=6).contains(&short.stats.timeouts), "{short:?}");
    // Of ten times as much data hardly more is repeated.
    assert!(long.stats.timeouts <= short.stats.timeouts + 2, "{long:?}");
    assert!(long.stats.bytes_repeated < 2 * short.stats.bytes_repeated, "{long:?}");
    let spared = outcome(500_000, ",floor=40000");
    assert_eq!((spared.stats.timeouts, spared.stats.bytes_repeated), (0, 0), "{spared:?}");
}
