//! The network against closed forms, within 0.1 %.
//!
//! If a figure is a mean over random arrivals, 0.1 % would take so many packets (10^8 and more for
//! M/D/1 at a load of 0.8, whose waits are correlated over tens of packets) that no test could pass
//! them. There the arrivals are drawn by array randomized quasi-Monte Carlo (L'Ecuyer, Lécot and
//! Tuffin, Operations Research 56(4), 2008). Many queues are driven side by side. At each step they
//! are sorted by their state, and given interarrival times of a point set that is evenly spread
//! over states and times. Each queue for itself still has exactly Poisson arrivals. The mean is
//! therefore that of M/D/1, but its variance is smaller by orders of magnitude. The arrivals are
//! then played through the network, and the test compares what the network's sink has seen.

use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uts_functions::Time;
use uts_path::{LinkConfig, PathConfig};
use uts_sim::cost::{Cost, Costs};
use uts_sim::network::Network;
use uts_sim::topology::{Chain, PointToPoint};
use uts_sim::traffic::{Arrival, Pattern, Received, Sink, Source, Traffic};

/// Precision that every figure is held to.
const PRECISION: f64 = 1e-3;

/// 1222 bytes of payload, 28 of headers, 10 Mbit/s: a service time of exactly one millisecond.
const PAYLOAD_BYTES: u16 = 1222;
const SERVICE_NS: u64 = 1_000_000;
const SERVER: &str = "rate=10mbit overhead=28";

fn path(text: &str) -> PathConfig {
    PathConfig::both(text.parse::<LinkConfig>().expect("a valid path"))
}

/// A source that sends through one path to a sink until nothing is under way.
fn play(
    path: PathConfig,
    pattern: Pattern,
    count: u64,
    seed: u64,
    records: bool,
) -> (Received, Vec<Arrival>) {
    let PointToPoint { topology, hosts, .. } = PointToPoint::new(path);
    let mut network = Network::new(&topology, seed).expect("a valid topology");
    let sink = if records { Sink::recording() } else { Sink::new() };
    let sink = network.attach(hosts[1], 9, Traffic::Sink(sink)).expect("a free port");
    let to = network.address(sink);
    let source = Source::new(to, PAYLOAD_BYTES, pattern, Time::ZERO, seed).with_count(count);
    let source = network.attach(hosts[0], 9, Traffic::Source(source)).expect("a free port");
    network.run_until(Time::NEVER);
    let from = network.address(source);
    let sink = network.app(sink).as_sink().expect("a sink");
    (sink.received(from), sink.arrivals().to_vec())
}

#[track_caller]
fn assert_near(what: &str, value: f64, expected: f64, precision: f64) {
    let error = value / expected - 1.0;
    println!("{what}: {value:.6}, closed form {expected:.6}, off by {:.4} %", error * 100.0);
    assert!(error.abs() < precision, "{what}: {value} is not within {precision} of {expected}");
}

// ---- transmission and propagation ----

/// A packet alone takes, at each path, its bits over the rate, and the delay. All is known to the
/// nanosecond. Each path rounds up to the next one.
#[test]
fn a_packet_alone_takes_transmission_and_propagation_at_each_path_of_a_chain() {
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut paths, mut expected_ns) = (Vec::new(), 0.0);
        for _ in 0..rng.random_range(1..=16) {
            let (rate_bps, delay_ns) =
                (rng.random_range(9_600..10_000_000_000), rng.random_range(0..400_000_000));
            let link = LinkConfig {
                rate_bps: Some(rate_bps),
                delay_ns,
                overhead_bytes: 28,
                ..LinkConfig::default()
            };
            paths.push(PathConfig::both(link));
            expected_ns += f64::from(PAYLOAD_BYTES + 28) * 8e9 / rate_bps as f64 + delay_ns as f64;
        }
        let hops = paths.len();
        let Chain { topology, hosts, .. } = Chain::new(paths);
        let mut network = Network::new(&topology, seed).expect("a valid topology");
        let sink = network.attach(hosts[1], 9, Traffic::Sink(Sink::new())).expect("a free port");
        let to = network.address(sink);
        let pattern = Pattern::Constant { packets: 1, per: Duration::from_secs(100) };
        let source = Source::new(to, PAYLOAD_BYTES, pattern, Time::from_millis(5), seed).with_count(10);
        let source = network.attach(hosts[0], 9, Traffic::Source(source)).expect("a free port");
        network.run_until(Time::NEVER);
        let received = network.app(sink).as_sink().expect("a sink").received(network.address(source));
        assert_eq!(received.packets, 10, "seed {seed}");
        let (least, most) = received.delay_range.expect("packets have arrived");
        assert_eq!(least, most, "seed {seed}: each packet is alone");
        let beyond_ns = least.as_nanos() as f64 - expected_ns;
        assert!(
            (-0.01..=hops as f64).contains(&beyond_ns),
            "seed {seed}: {beyond_ns} ns off over {hops} paths"
        );
        assert!((least.as_nanos() as f64 / expected_ns - 1.0).abs() < PRECISION, "seed {seed}");
    }
}

/// A train of packets leaves the slowest path of a chain at its rate, and all others wait for none.
#[test]
fn a_train_takes_the_slowest_path_s_time_for_each_further_packet() {
    for seed in 0..100 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rates: Vec<u64> =
            (0..rng.random_range(1..=8)).map(|_| rng.random_range(64_000..1_000_000_000)).collect();
        let links = rates.iter().map(|rate| path(&format!("rate={rate}bit overhead=28 delay=3ms"))).collect();
        let Chain { topology, hosts, .. } = Chain::new(links);
        let mut network = Network::new(&topology, seed).expect("a valid topology");
        let sink = network.attach(hosts[1], 9, Traffic::Sink(Sink::recording())).expect("a free port");
        let to = network.address(sink);
        let pattern = Pattern::At(vec![Time::ZERO; 1000]);
        let source = Source::new(to, PAYLOAD_BYTES, pattern, Time::ZERO, seed);
        network.attach(hosts[0], 9, Traffic::Source(source)).expect("a free port");
        network.run_until(Time::NEVER);
        let arrivals = network.app(sink).as_sink().expect("a sink").arrivals();
        assert_eq!(arrivals.len(), 1000, "seed {seed}");
        let service = |rate: &u64| f64::from(PAYLOAD_BYTES + 28) * 8e9 / *rate as f64;
        let sum: f64 = rates.iter().map(|rate| service(rate) + 3e6).sum();
        let slowest = rates.iter().map(service).fold(0.0, f64::max);
        for (number, arrival) in arrivals.iter().enumerate() {
            let expected_ns = sum + number as f64 * slowest;
            let off_ns = arrival.at.as_nanos() as f64 - expected_ns;
            assert!(off_ns.abs() <= rates.len() as f64, "seed {seed}, packet {number}: {off_ns} ns off");
        }
    }
}

// ---- queues with Poisson arrivals ----

/// Queues that are driven side by side: a power of two.
const QUEUES: usize = 4096;

/// One queue: its work in nanoseconds before the next arrival, and the gaps between its arrivals so
/// far.
#[derive(Clone, Default)]
struct Queue {
    work_ns: u64,
    gaps_ns: Vec<u64>,
}

/// The arrivals of [`QUEUES`] queues at `load`, `steps` for each. `admits` says whether a packet
/// that finds this work is taken. The queues follow one another in time, with room for each to
/// empty.
fn poisson_arrivals(load: f64, steps: usize, seed: u64, admits: impl Fn(u64) -> bool) -> Vec<Time> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut queues = vec![Queue::default(); QUEUES];
    let mut order: Vec<usize> = (0..QUEUES).collect();
    for _ in 0..steps {
        order.sort_by_key(|n| queues[*n].work_ns);
        // Ranks and van der Corput's sequence make the Hammersley net. A random digital shift makes
        // each point uniform. The baker's transformation keeps it uniform, and makes the mean
        // converge still faster (Hickernell 2002).
        let (shift, offset) = (rng.random::<u32>(), rng.random::<f64>());
        for (rank, n) in order.iter().enumerate() {
            let point = ((rank as u32).reverse_bits() ^ shift) >> (u32::BITS - QUEUES.trailing_zeros());
            let uniform = 1.0 - (2.0 * (f64::from(point) + offset) / QUEUES as f64 - 1.0).abs();
            let gap_ns = (-libm::log1p(-uniform) / load * SERVICE_NS as f64) as u64;
            let queue = &mut queues[*n];
            let taken_ns = if admits(queue.work_ns) { SERVICE_NS } else { 0 };
            queue.work_ns = (queue.work_ns + taken_ns).saturating_sub(gap_ns);
            queue.gaps_ns.push(gap_ns);
        }
    }
    let mut now_ns = 0;
    let mut arrivals = Vec::with_capacity(QUEUES * steps);
    for queue in queues {
        for gap_ns in queue.gaps_ns {
            arrivals.push(Time::from_nanos(now_ns));
            now_ns += gap_ns;
        }
        now_ns += queue.work_ns + SERVICE_NS;
    }
    arrivals
}

/// Plays `steps` arrivals of each queue through a path. The first `idle_steps`, while the queue is
/// still filling from empty, do not count. Returns the mean wait in service times, and the share of
/// packets that were lost.
fn play_queues(server: &str, arrivals: Vec<Time>, idle_steps: usize, steps: usize) -> (f64, f64) {
    let count = arrivals.len() as u64;
    let (_, seen) = play(path(server), Pattern::At(arrivals), count, 0, true);
    let steady = seen.iter().filter(|arrival| arrival.number as usize % steps >= idle_steps);
    let waits = steady.map(|arrival| arrival.at.since(arrival.sent_at).as_nanos() as u64 - SERVICE_NS);
    let (sum, number) = waits.fold((0, 0), |(sum, number), wait| (sum + wait, number + 1));
    let offered = (QUEUES * (steps - idle_steps)) as f64;
    (sum as f64 / f64::from(number) / SERVICE_NS as f64, 1.0 - f64::from(number) / offered)
}

/// The mean wait of M/D/1 is load / (2 (1 - load)) service times (Pollaczek and Khinchine). Over
/// seeds the mean of this test has a standard deviation of 0.02 %. 0.1 % is five of them.
#[test]
fn waits_are_those_of_an_md1_queue() {
    for (load, idle_steps, steps) in [(0.3, 40, 100), (0.5, 80, 160), (0.8, 250, 550)] {
        let seed = 1;
        let arrivals = poisson_arrivals(load, steps, seed, |_| true);
        let (wait, loss) = play_queues(SERVER, arrivals, idle_steps, steps);
        assert_eq!(loss, 0.0, "seed {seed}: nothing is lost");
        let expected = load / (2.0 * (1.0 - load));
        assert_near(&format!("M/D/1 at {load}, seed {seed}: mean wait"), wait, expected, PRECISION);
    }
}

/// The same queue before a processor: a host that takes a millisecond to receive each packet.
#[test]
fn waits_for_a_processor_are_those_of_an_md1_queue() {
    for (load, idle_steps, steps) in [(0.3, 40, 100), (0.8, 250, 550)] {
        let seed = 1;
        let arrivals = poisson_arrivals(load, steps, seed, |_| true);
        let PointToPoint { topology, hosts, .. } = PointToPoint::new(PathConfig::default());
        let mut network = Network::new(&topology, seed).expect("a valid topology");
        let receive = Cost::fixed(Duration::from_nanos(SERVICE_NS));
        network.set_costs(hosts[1], Costs { receive, ..Costs::default() }).expect("valid costs");
        let sink = network.attach(hosts[1], 9, Traffic::Sink(Sink::recording())).expect("a free port");
        let (to, count) = (network.address(sink), arrivals.len() as u64);
        let source = Source::new(to, PAYLOAD_BYTES, Pattern::At(arrivals), Time::ZERO, seed);
        network.attach(hosts[0], 9, Traffic::Source(source.with_count(count))).expect("a free port");
        network.run_until(Time::NEVER);
        let seen = network.app(sink).as_sink().expect("a sink").arrivals();
        assert_eq!(seen.len() as u64, count, "seed {seed}: nothing is lost");
        assert_eq!(network.host_counters(hosts[1]).busy, Duration::from_nanos(SERVICE_NS * count));
        let steady = seen.iter().filter(|arrival| arrival.number as usize % steps >= idle_steps);
        let waits = steady.map(|arrival| arrival.at.since(arrival.sent_at).as_nanos() as u64 - SERVICE_NS);
        let (sum, number) = waits.fold((0, 0), |(sum, number), wait| (sum + wait, number + 1));
        let (wait, expected) =
            (sum as f64 / f64::from(number) / SERVICE_NS as f64, load / (2.0 * (1.0 - load)));
        assert_near(&format!("M/D/1 processor at {load}, seed {seed}: mean wait"), wait, expected, PRECISION);
    }
}

/// The share that M/D/1/K loses, K packets with the one in service, from the chain at departures
/// (Gross and Harris, Fundamentals of Queueing Theory, section 5.1.8).
fn md1k_loss(load: f64, capacity: usize) -> f64 {
    let mut arrivals = vec![(-load).exp()];
    for k in 1..=capacity {
        arrivals.push(arrivals[k - 1] * load / k as f64);
    }
    let mut states = vec![1.0];
    for j in 0..capacity - 1 {
        let came: f64 = (1..=j).map(|i| states[i] * arrivals[j - i + 1]).sum();
        states.push((states[j] - arrivals[j] - came) / arrivals[0]);
    }
    let idle = 1.0 / states.iter().sum::<f64>();
    1.0 - 1.0 / (idle + load)
}

/// A buffer of K packets loses what M/D/1/K loses. Standard deviations over seeds: below 0.03 %.
#[test]
fn a_full_buffer_loses_what_an_md1k_queue_loses() {
    for (load, capacity) in [(0.8, 2), (1.0, 4), (1.5, 8)] {
        let (seed, idle_steps, steps) = (2, 60, 300);
        let room_ns = (capacity as u64 - 1) * SERVICE_NS;
        let arrivals = poisson_arrivals(load, steps, seed, |work_ns| work_ns <= room_ns);
        let server = format!("{SERVER} buffer={capacity}p");
        let (_, loss) = play_queues(&server, arrivals, idle_steps, steps);
        let expected = md1k_loss(load, capacity);
        assert_near(&format!("M/D/1/{capacity} at {load}, seed {seed}: loss"), loss, expected, PRECISION);
    }
}

/// The source itself, in a plain run: gaps with the mean, the variance and the independence of a
/// Poisson process, and the wait that follows. Each is within five standard errors, which the run
/// estimates from its own batches.
#[test]
fn a_poisson_source_is_one() {
    const BATCHES: usize = 40;
    let (seed, load, count) = (3, 0.5, 1_000_000);
    let mean = Duration::from_nanos((SERVICE_NS as f64 / load) as u64);
    let (_, seen) = play(path(SERVER), Pattern::Poisson { mean }, count, seed, true);
    assert_eq!(seen.len() as u64, count);
    let gaps: Vec<f64> = seen
        .windows(2)
        .map(|pair| pair[1].sent_at.since(pair[0].sent_at).as_nanos() as f64 / mean.as_nanos() as f64)
        .collect();
    let batch_means = |values: Vec<f64>| {
        let batch = values.len() / BATCHES;
        let means: Vec<f64> =
            values.chunks_exact(batch).map(|c| c.iter().sum::<f64>() / batch as f64).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (means.len() - 1) as f64;
        (mean, (variance / means.len() as f64).sqrt())
    };
    let waits = seen.iter().map(|a| (a.at.since(a.sent_at).as_nanos() as f64 / SERVICE_NS as f64) - 1.0);
    let figures = [
        ("mean gap", gaps.clone(), 1.0),
        ("mean square of gaps", gaps.iter().map(|g| g * g).collect(), 2.0),
        ("mean product of neighbours", gaps.windows(2).map(|g| g[0] * g[1]).collect(), 1.0),
        (
            "share of gaps below the mean",
            gaps.iter().map(|g| f64::from(*g < 1.0)).collect(),
            1.0 - (-1.0f64).exp(),
        ),
        ("wait", waits.collect(), load / (2.0 * (1.0 - load))),
    ];
    for (what, values, expected) in figures {
        let (value, error) = batch_means(values);
        println!("seed {seed}, {what}: {value:.5} +- {error:.5}, expected {expected:.5}");
        assert!((value - expected).abs() < 5.0 * error, "seed {seed}, {what}: {value} is not {expected}");
        assert!(error < 0.01 * expected, "seed {seed}, {what}: too uncertain to tell");
    }
}

// ---- loss ----

/// Arrivals at rate R to a link of rate C lose exactly 1 - C/R, apart from one buffer's worth at
/// the start. The link carries exactly C.
#[test]
fn an_overloaded_link_carries_its_rate_and_loses_the_rest() {
    const PACKETS: u64 = 400_000;
    for (rate_bps, buffer) in
        [(10_100_000u64, "2p"), (12_345_678, "7p"), (20_000_000, "64p"), (97_000_000, "9kB")]
    {
        let link = path(&format!("{SERVER} delay=20ms buffer={buffer}"));
        let pattern = Pattern::Greedy { rate_bps, overhead_bytes: 28 };
        let (received, _) = play(link, pattern, PACKETS, 0, false);
        let loss = 1.0 - received.packets as f64 / PACKETS as f64;
        let expected = 1.0 - 10_000_000.0 / rate_bps as f64;
        println!("{rate_bps} bit/s into {buffer}: lost {loss:.6}, closed form {expected:.6}");
        // A buffer's worth, and the packet in transmission as the last one comes.
        assert!((loss - expected).abs() <= 65.0 / PACKETS as f64, "{rate_bps}: {loss} is not {expected}");
    }
}

/// Share lost and mean burst of the Gilbert-Elliott model.
fn gilbert_elliott(loss: f64, burst: f64, packets: u64, seed: u64) -> (f64, f64) {
    let link = path(&format!("delay=10ms loss=ge:{loss},{burst}"));
    let pattern = Pattern::Constant { packets: 1_000_000, per: Duration::from_secs(1) };
    let (received, _) = play(link, pattern, packets, seed, false);
    assert_eq!(received.late, 0);
    let lost = packets - received.packets;
    // What is lost after the last arrival leaves no gap.
    (lost as f64 / packets as f64, received.missing as f64 / received.gaps as f64)
}

/// Of B bursts of mean m, geometric, and gaps of mean g, the mean burst has the relative variance
/// (1 - 1/m) / B, and the share s of losses (1 - s)^2 ((1 - 1/m) + (1 - 1/g)) / B. Here 0.1 % is
/// three standard deviations of either.
#[test]
fn bursts_of_loss_are_those_of_the_gilbert_elliott_model() {
    let (loss, burst, packets, seed) = (0.4, 1.5, 11_000_000, 4);
    let (share, mean) = gilbert_elliott(loss, burst, packets, seed);
    assert_near(&format!("seed {seed}: share lost"), share, loss, PRECISION);
    assert_near(&format!("seed {seed}: mean burst"), mean, burst, PRECISION);
}

/// Rarer and longer bursts, within four standard deviations of 10^6 packets.
#[test]
fn rare_long_bursts_are_those_of_the_gilbert_elliott_model() {
    for (loss, burst, seed) in [(0.05, 4.0, 5), (0.01, 8.0, 6), (0.5, 4.0, 7)] {
        long_bursts(loss, burst, 1_000_000, seed);
    }
}

/// The same until 0.1 % is three standard deviations: `cargo test --release -p uts-sim --test
/// closed_forms -- --ignored`.
#[test]
#[ignore = "takes a minute"]
fn rare_long_bursts_within_a_thousandth() {
    for (loss, burst, packets, seed) in [(0.5, 4.0, 54_000_000, 8), (0.2, 4.0, 200_000_000, 9)] {
        let (share, mean) = gilbert_elliott(loss, burst, packets, seed);
        assert_near(&format!("seed {seed}: share lost"), share, loss, PRECISION);
        assert_near(&format!("seed {seed}: mean burst"), mean, burst, PRECISION);
    }
}

fn long_bursts(loss: f64, burst: f64, packets: u64, seed: u64) {
    let bursts = packets as f64 * loss / burst;
    let gap = (1.0 - loss) / loss * burst;
    let (burst_variance, gap_variance) = (1.0 - 1.0 / burst, 1.0 - 1.0 / gap);
    let share_error = (1.0 - loss) * ((burst_variance + gap_variance) / bursts).sqrt();
    let (share, mean) = gilbert_elliott(loss, burst, packets, seed);
    assert_near(&format!("seed {seed}: share lost"), share, loss, 4.0 * share_error);
    assert_near(&format!("seed {seed}: mean burst"), mean, burst, 4.0 * (burst_variance / bursts).sqrt());
}
