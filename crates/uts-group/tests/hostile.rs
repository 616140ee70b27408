//! Packets and requests that nobody honest makes: memory, time and what is sent for them stay
//! within bounds.

use bytes::Bytes;
use core::time::Duration;
use proptest::prelude::*;
use uts_functions::{Rate, Time};
use uts_group::wire::{Advertised, Body, FromSender, Lack, Request};
use uts_group::{Event, Receiver, ReceiverSettings, SendError, Sender, SenderSettings};

const MS: fn(u64) -> Duration = Duration::from_millis;

fn block() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..40, any::<u32>()]
}

fn body() -> impl Strategy<Value = Body> {
    let bytes = |from| prop::collection::vec(any::<u8>(), from..60).prop_map(Bytes::from);
    prop_oneof![
        (block(), 0u8..64, 0u8..=64, bytes(4)).prop_map(|(block, index, before, source)| Body::Source {
            block,
            index,
            before,
            source
        }),
        (block(), 1u8..=64, 0u8..32, any::<u8>(), bytes(6)).prop_map(
            |(block, count, parity, more, symbol)| Body::Parity { block, count, parity, more, symbol }
        ),
        (block(), 0u8..=64, any::<bool>(), prop::collection::vec((block(), 1u8..), 0..16)).prop_map(
            |(block, count, is_end, repairs)| Body::Status { last: (block, count), is_end, repairs }
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever a sender says, a receiver keeps what it may, asks within bounds and comes to rest.
    #[test]
    fn a_receiver_keeps_within_its_bounds(
        bodies in prop::collection::vec((body(), 0u64..200, block()), 1..120),
        latency in prop::option::of(1u64..500),
        first in block(),
    ) {
        let settings = ReceiverSettings { blocks: 32, bytes: 4000, latency: latency.map(MS), ..ReceiverSettings::default() };
        let mut receiver = Receiver::new(settings, first, 1);
        let mut now = Time::from_millis(5);
        for (number, (body, wait, oldest)) in bodies.into_iter().enumerate() {
            let advertised = Advertised { grtt: 150, backoff: 4, members: 9, oldest, ..Advertised::default() };
            receiver.handle(now, number as u64, FromSender { advertised, body });
            prop_assert!(receiver.held_bytes() <= 4000 + 60, "{} bytes", receiver.held_bytes());
            let mut events = 0;
            while let Some(event) = receiver.poll_event(now) {
                prop_assert!(!matches!(event, Event::Missing(0)));
                events += 1;
                prop_assert!(events < 5000);
            }
            if let Some(request) = receiver.poll_request(now) {
                prop_assert!((1..=16).contains(&request.lacks.len()));
                prop_assert!(request.lacks.iter().all(|lack| (1..=64).contains(&lack.needs)));
                prop_assert!(receiver.poll_request(now).is_none());
            }
            prop_assert!(receiver.next_timeout(now) > now);
            now += MS(wait);
        }
    }

    /// Whatever a member asks, what is sent for it stays a share of what is sent anyway.
    #[test]
    fn a_member_that_asks_for_all_gets_its_share(
        asked in prop::collection::vec((0u32..30, 1u8..=64, any::<u64>(), any::<u64>(), any::<u32>()), 1..60),
    ) {
        let settings = SenderSettings { sources: 8, parities: 0, ..SenderSettings::default() };
        let mut sender = Sender::new(settings, Time::ZERO);
        sender.join(1);
        sender.on_round_trip(1, MS(20));
        let mut now = Time::ZERO;
        let mut asked = asked.into_iter().cycle();
        for _ in 0..1000 {
            now += MS(2);
            prop_assert_eq!(sender.send(now, &[7; 100]), Ok(()));
            let lacks = asked.by_ref().take(16).map(|(block, needs, missing, ..)| Lack { block, needs, missing }).collect();
            let (.., seen, echo) = asked.next().unwrap_or_default();
            sender.handle_request(now, 1, &Request { echo, seen, lacks });
            while sender.poll_transmit(now).is_some() {}
        }
        let stats = sender.stats();
        prop_assert_eq!(stats.requests, 1000);
        // A quarter of the sources, and the reserve of eight blocks.
        prop_assert!(stats.repairs <= 1000 / 4 + 8 * 8 + 1, "{:?}", stats);
        prop_assert!(sender.grtt() <= MS(4 * 20 + 20 + 1), "{:?}", sender.grtt());
    }
}

#[test]
fn somebody_who_is_no_member_has_nothing_sent() {
    let mut sender = Sender::new(SenderSettings { parities: 0, ..SenderSettings::default() }, Time::ZERO);
    for _ in 0..16 {
        sender.send(Time::ZERO, b"message").expect("sent");
    }
    let lacks = vec![Lack { block: 0, needs: 16, missing: u64::MAX }];
    sender.handle_request(Time::from_millis(1), 7, &Request { echo: 0, seen: 0, lacks });
    let mut now = Time::from_millis(1);
    for _ in 0..100 {
        now += MS(1);
        while sender.poll_transmit(now).is_some() {}
    }
    assert_eq!((sender.stats().repairs, sender.stats().requests), (0, 0));
}

#[test]
fn a_sender_keeps_and_takes_what_it_may() {
    let settings = SenderSettings {
        history_bytes: 20_000,
        waiting_bytes: 10_000,
        rate: Rate::from_bits_per_sec(8_000_000),
        ..SenderSettings::default()
    };
    let mut sender = Sender::new(settings, Time::ZERO);
    assert_eq!(sender.send(Time::ZERO, &[0; 1329]), Err(SendError::TooLong(1329)));
    let mut taken = 0;
    while sender.send(Time::ZERO, &[0; 1000]).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, 10);
    let mut now = Time::ZERO;
    for _ in 0..2000 {
        now += MS(1);
        let _ = sender.send(now, &[0; 1000]);
        while sender.poll_transmit(now).is_some() {}
        assert!(sender.history_bytes() < 60_000, "{}", sender.history_bytes());
    }
    // 8 Mbit/s are 1000 bytes a millisecond, headers included.
    let sources = sender.stats().sources;
    assert!((1500..1900).contains(&sources), "{sources}");
    sender.end();
    assert_eq!(sender.send(now, b"more"), Err(SendError::Ended));
}
