//! Flows that are shown together, end to end and in virtual time: sound with small messages, a
//! picture whose messages take long to leave, and a pointer. Without synchronisation they drift
//! apart by more than is borne, with it they do not.

use crate::one_client::{CLIENT, OneClient, SERVER, with};
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::sync::{Bounds, Group, Skew};
use uts_engine::{ConnectionConfig, Event, FlowId, FlowOptions, MediaTime, MessageOptions, Read};
use uts_functions::Time;

/// What one flow sends: bytes of a message, how often, and the playout that it asks for.
struct Source {
    bytes: usize,
    every: Duration,
    properties: &'static [&'static str],
}

const SOUND: Source = Source {
    bytes: 160,
    every: Duration::from_millis(20),
    properties: &["uts.profile.playout=adaptive(max=1000)"],
};

/// Pictures of 25 in a second, which are shown late so that nothing of them is missed.
const PICTURE: Source = Source {
    bytes: 12_000,
    every: Duration::from_millis(40),
    properties: &["uts.profile.playout=fixed(delay=450)"],
};

/// A pointer, which is shown as soon as the jitter allows.
const POINTER: Source = Source {
    bytes: 20,
    every: Duration::from_millis(100),
    properties: &["uts.profile.playout=fixed(delay=60)"],
};

/// The second channel of a sound, through a slower decoder.
const CHANNEL: Source = Source {
    bytes: 160,
    every: Duration::from_millis(20),
    properties: &["uts.profile.playout=fixed(delay=90)"],
};

fn config() -> ConnectionConfig {
    let consent = "uts.consent=playout/fixed,playout/adaptive";
    with(ConnectionConfig::default(), &[consent], &["preserveMsgBoundaries=require", "reliability=prefer"])
}

/// What a message is worth at the instant at which it is to be shown.
struct Showing {
    flow: usize,
    media: MediaTime,
}

/// The skews of all flows but the first beside the first, over a path, held or not.
fn skews(path: &str, others: &[(&Source, Bounds)], is_held: bool, seed: u64) -> Vec<Skew> {
    let mut ends = OneClient::connected("rate=20mbit delay=30ms", config(), config(), seed);
    ends.set_path(path);
    let sources: Vec<&Source> =
        core::iter::once(&SOUND).chain(others.iter().map(|(source, _)| *source)).collect();
    let mut group = Group::new();
    let mut members = vec![group.reference()];
    members.extend(others.iter().map(|(_, bounds)| group.add(*bounds)));
    let flows: Vec<FlowId> = sources
        .iter()
        .map(|source| {
            let requirements = with(config(), source.properties, &[]).requirements;
            ends.at(CLIENT).open_flow(FlowOptions::requiring(requirements)).expect("a flow")
        })
        .collect();
    let begin = ends.world.now();
    let mut next: Vec<Time> = sources.iter().map(|_| begin).collect();
    let mut to_show: BTreeMap<(Time, usize), Vec<Showing>> = BTreeMap::new();
    let until = begin + Duration::from_secs(30);
    let mut count = 0;
    while ends.world.now() < until {
        let soonest = next.iter().min().copied().unwrap_or(until);
        let showing = to_show.first_key_value().map_or(until, |((at, _), _)| *at);
        let happening = ends.next(soonest.min(showing).min(until));
        let now = ends.world.now();
        while let Some(entry) = to_show.first_entry().filter(|entry| entry.key().0 <= now) {
            for Showing { flow, media } in entry.remove() {
                group.shown(members[flow], now.since(Time::ZERO), media);
            }
        }
        for (place, source) in sources.iter().enumerate() {
            if next[place] <= now {
                next[place] += source.every;
                let message = vec![7; source.bytes].into();
                let _ = ends.at(CLIENT).send_message(now, flows[place], message, MessageOptions::default());
            }
        }
        let Some(happening) = happening else { continue };
        let Event::Readable(flow) = happening.event else { continue };
        let Some(place) = flows.iter().position(|known| *known == flow && happening.node == SERVER) else {
            continue;
        };
        while let Ok(read) = ends.at(SERVER).read(now, flow, 1 << 20) {
            let Read::Timed { timing, .. } = read else { continue };
            let hold = group.hold(members[place], &timing);
            let hold = if is_held { hold } else { Duration::ZERO };
            count += 1;
            to_show
                .entry((now + hold, count))
                .or_default()
                .push(Showing { flow: place, media: timing.media });
        }
    }
    members[1..].iter().map(|member| group.skew(*member)).collect()
}

const PATHS: [&str; 3] =
    ["rate=6mbit delay=30ms", "rate=6mbit delay=30ms jitter=25ms", "rate=6mbit delay=60ms jitter=10ms"];

#[test]
fn lips_and_pointer_are_synchronised_over_any_path() {
    let others = [(&PICTURE, Bounds::PICTURE), (&POINTER, Bounds::POINTER_CLOSE)];
    for path in PATHS {
        for seed in 1..3 {
            let (apart, together) = (skews(path, &others, false, seed), skews(path, &others, true, seed));
            println!("{path}, seed {seed}: apart {apart:?}\n  together {together:?}");
            assert!(apart[0].out > 300, "{path}: the picture lags far behind by itself: {apart:?}");
            // The first pictures come when sound has been heard for a while, which then slows down.
            for (skew, bound_ms) in together.iter().zip([80, 250]) {
                let all = skew.within + skew.tolerated + skew.out;
                assert!(all > 200 && skew.within * 100 >= all * 85, "{path}, seed {seed}: {skew:?}");
                assert!(skew.p99 <= Duration::from_millis(bound_ms), "{path}, seed {seed}: {skew:?}");
            }
        }
    }
}

/// A pointer may lag behind by more than a picture may: nothing is held for it that need not be.
#[test]
fn a_pointer_is_given_more_room_than_a_picture() {
    let slow = Source { properties: &["uts.profile.playout=fixed(delay=700)"], ..POINTER };
    let pointer = skews(PATHS[0], &[(&slow, Bounds::POINTER)], true, 1);
    let picture = skews(PATHS[0], &[(&slow, Bounds::PICTURE)], true, 1);
    assert!(pointer[0].last_us < -500_000 && pointer[0].tolerated + pointer[0].out == 0, "{pointer:?}");
    assert!(picture[0].last_us > -90_000, "{picture:?}");
}

/// Two channels of a sound.
#[test]
fn channels_are_synchronised_to_5_ms() {
    for (path, seed) in [(PATHS[0], 1), (PATHS[1], 2)] {
        let (apart, together) = (
            skews(path, &[(&CHANNEL, Bounds::TIGHT)], false, seed),
            skews(path, &[(&CHANNEL, Bounds::TIGHT)], true, seed),
        );
        println!("{path}: apart {apart:?}, together {together:?}");
        assert!(apart[0].out * 10 > apart[0].within, "{apart:?}");
        let all = together[0].within + together[0].tolerated + together[0].out;
        assert!(together[0].within * 100 >= all * 90, "{path}: {together:?}");
    }
}
