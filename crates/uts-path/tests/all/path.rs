//! A path of two links and its schedule.

use uts_path::{Direction, LinkConfig, Path, PathConfig, Target};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn path(link: &str, schedule: &str, seed: u64, origin_ns: u64) -> Path<Vec<u8>> {
    let mut config = PathConfig::both(link.parse().unwrap());
    config.schedule = schedule.parse().unwrap();
    Path::new(config, seed, origin_ns).unwrap()
}

#[test]
fn the_directions_are_separate() {
    let config = PathConfig {
        forward: "delay=10ms".parse().unwrap(),
        backward: "delay=30ms".parse().unwrap(),
        ..PathConfig::default()
    };
    let mut path = Path::new(config, 1, 0).unwrap();
    path.send(0, Direction::Backward, vec![2], 1);
    path.send(0, Direction::Forward, vec![1], 1);
    assert_eq!(path.next_ns(), Some(10 * MS));
    assert_eq!(path.poll(10 * MS, Direction::Backward), None);
    assert_eq!(path.poll(10 * MS, Direction::Forward), Some(vec![1]));
    assert_eq!(path.next_ns(), Some(30 * MS));
    assert_eq!(path.poll(30 * MS, Direction::Backward), Some(vec![2]));
    assert_eq!(path.next_ns(), None);
}

#[test]
fn the_directions_have_their_own_luck() {
    let mut path = path("loss=0.5", "", 1, 0);
    let mut lost = [Vec::new(), Vec::new()];
    for at_ns in 0..200 {
        for (slot, direction) in Direction::ALL.into_iter().enumerate() {
            path.send(at_ns, direction, vec![0], 1);
            lost[slot].push(path.poll(at_ns, direction).is_none());
        }
    }
    assert_ne!(lost[0], lost[1]);
}

#[test]
fn changes_happen_at_their_own_instant() {
    let origin_ns = 77 * S;
    let mut path = path("rate=10mbit", "at=1500us fwd rate=5mbit; at=4ms both down", 1, origin_ns);
    for _ in 0..4 {
        path.send(origin_ns, Direction::Forward, vec![0; 1250], 1250);
    }
    assert_eq!(path.next_ns(), Some(origin_ns + MS));
    // Asked only long after: 1 ms; half of 1 ms and half of 2 ms; 2 ms more and down since 4 ms.
    let late_ns = origin_ns + S;
    path.advance(late_ns);
    assert_eq!(path.stats(Direction::Forward).dropped_outage, 2);
    let due_ns: Vec<u64> = std::iter::from_fn(|| path.poll_delivery(late_ns, Direction::Forward))
        .map(|d| d.due_ns - origin_ns)
        .collect();
    assert_eq!(due_ns, [MS, 2_500_000]);
    let applied: Vec<String> = std::iter::from_fn(|| path.poll_applied())
        .map(|a| format!("{} {} {}", a.at_ns - origin_ns, a.target.keyword(), a.change))
        .collect();
    assert_eq!(applied, ["1500000 fwd rate=5mbit", "4000000 both down"]);
    assert!(!path.config(Direction::Backward).up);
    assert_eq!(path.config(Direction::Backward).rate_bps, Some(10_000_000));
}

#[test]
fn a_change_may_wait_for_bytes() {
    let mut path = path("rate=8mbit buffer=2p", "at=3kB both loss=1; at=5kB fwd loss=0", 1, 0);
    // The third finds the buffer full: it has not entered.
    for _ in 0..3 {
        path.send(0, Direction::Forward, vec![0; 1000], 1000);
    }
    path.send(0, Direction::Backward, vec![0; 1000], 1000);
    assert_eq!(path.poll_applied(), None);
    // At 2 ms both have left; this one makes it 3000 and is the first to be lost.
    path.send(2 * MS, Direction::Forward, vec![0; 1000], 1000);
    assert_eq!(path.poll_applied().map(|a| a.at_ns), Some(2 * MS));
    path.advance(10 * MS);
    for at_ns in [10 * MS, 20 * MS] {
        path.send(at_ns, Direction::Forward, vec![0; 1000], 1000);
    }
    assert_eq!(path.poll_applied().map(|a| a.at_ns), Some(20 * MS));
    path.advance(30 * MS);
    let stats = path.stats(Direction::Forward);
    assert_eq!((stats.dropped_queue, stats.dropped_loss, stats.bytes_entered), (1, 2, 5000));
    assert_eq!(path.stats(Direction::Backward).dropped_loss, 0);
}

#[test]
fn next_names_changes_too() {
    let mut path = path("", "at=1s fwd down", 1, 5);
    assert_eq!(path.next_ns(), Some(S + 5));
    path.advance(S + 5);
    assert_eq!(path.next_ns(), None);
    assert!(!path.config(Direction::Forward).up);
}

#[test]
fn a_change_by_hand_is_told_of_and_resets_loss() {
    let mut path = path("", "", 1, 0);
    path.set(3, Target::Both, &"loss=1".parse().unwrap()).unwrap();
    path.send(4, Direction::Backward, vec![0], 1);
    path.advance(4);
    assert_eq!(path.stats(Direction::Backward).dropped_loss, 1);
    assert_eq!(path.poll_applied().map(|a| a.change.to_string()), Some("loss=1".into()));
    path.set(5, Target::One(Direction::Backward), &"loss=0".parse().unwrap()).unwrap();
    path.send(6, Direction::Backward, vec![0], 1);
    assert!(path.poll(6, Direction::Backward).is_some());
}

#[test]
fn errors_name_the_direction() {
    let bad = LinkConfig { duplicate: -1.0, ..LinkConfig::default() };
    let config = PathConfig { backward: bad, ..PathConfig::default() };
    let error = Path::<Vec<u8>>::new(config, 1, 0).unwrap_err();
    assert_eq!(error.to_string(), "backward duplicate: probability must be between 0 and 1");
}

#[test]
fn a_configuration_can_come_from_toml() {
    let text = "schedule = ['at=10s fwd loss=0.01', 'at=21MB both down']\n[forward]\nrate_bps = 1000000\n";
    let config: PathConfig = toml::from_str(text).unwrap();
    assert_eq!(config.schedule, "at=10s fwd loss=0.01; at=21MB both down".parse().unwrap());
    assert_eq!(config.forward.rate_bps, Some(1_000_000));
    let back: PathConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
    assert_eq!(back, config);
    assert!(toml::from_str::<PathConfig>("schedule = ['at=10s fwd loss=7']").is_err());
}
