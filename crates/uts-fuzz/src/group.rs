//! A group with one sender: what its ends read, and what they do with it.

use crate::some_bytes;
use arbitrary::Unstructured;
use core::time::Duration;
use uts_functions::Time;
use uts_group::wire::{FromSender, MESSAGE_BYTES_MAX, Request};
use uts_group::{Event, Receiver, ReceiverSettings, Sender, SenderSettings};

/// Steps of a run, so that one does not take for ever.
const STEPS_MAX: usize = 400;

/// Bytes that either end may keep in these runs.
const KEPT_BYTES: usize = 20_000;

/// Events that one packet may cause: each block that a receiver keeps, and what lies before it.
const EVENTS_MAX: usize = 5000;

pub fn group(data: &[u8]) {
    if let Ok(packet) = FromSender::parse(data) {
        let mut again = Vec::new();
        packet.emit(&mut again);
        assert_eq!(again, data);
        assert_eq!(again.len(), packet.body.packet_bytes());
    }
    if let Ok(request) = Request::parse(data) {
        let mut again = Vec::new();
        request.emit(&mut again);
        assert_eq!(again, data);
    }
    let _ = try_group(&mut Unstructured::new(data));
}

/// A sender and a member, whose packets are lost, come late, or are made up by one who has the
/// keys.
fn try_group(u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let settings =
        SenderSettings { history_bytes: KEPT_BYTES, waiting_bytes: KEPT_BYTES, ..SenderSettings::default() };
    let mut now = Time::from_millis(5);
    let mut sender = Sender::new(settings, now);
    let first = sender.join(1);
    sender.on_round_trip(1, Duration::from_millis(20));
    let latency = u.arbitrary::<Option<u16>>()?.map(|ms| Duration::from_millis(ms.into()));
    let settings = ReceiverSettings { blocks: 32, bytes: KEPT_BYTES, latency, ..ReceiverSettings::default() };
    let mut receiver = Receiver::new(settings, first, 1);
    let (mut late, mut is_honest, mut has_ended) = (Vec::new(), true, false);
    for _ in 0..STEPS_MAX {
        if u.is_empty() {
            break;
        }
        match u.int_in_range(0..=9)? {
            0..=2 => {
                let message = vec![7; usize::from(u.arbitrary::<u16>()?) % (MESSAGE_BYTES_MAX + 1)];
                let _ = sender.send(now, &message);
            }
            3 => now += Duration::from_millis(u.arbitrary::<u16>()?.into()),
            4 => sender.end(),
            // A packet that was made up.
            5 => {
                if let Ok(packet) = FromSender::parse(some_bytes(u, 100)?) {
                    is_honest = false;
                    receiver.handle(now, u.arbitrary()?, packet);
                }
            }
            6 => {
                if let Ok(request) = Request::parse(some_bytes(u, 100)?) {
                    sender.handle_request(now, u.int_in_range(0..=2)?, &request);
                }
            }
            7 => {
                if let Some((number, packet)) = late.pop() {
                    receiver.handle(now, number, packet);
                }
            }
            _ => {
                now += Duration::from_millis(1);
                while let Some((number, packet)) = sender.poll_transmit(now) {
                    match u.int_in_range(0..=7)? {
                        0 => {}
                        1 => late.push((number, packet)),
                        _ => receiver.handle(now, number, packet),
                    }
                }
            }
        }
        has_ended |= take_all(&mut receiver, now);
        if let Some(request) = receiver.poll_request(now) {
            let mut bytes = Vec::new();
            request.emit(&mut bytes);
            assert_eq!(Request::parse(&bytes).as_ref(), Ok(&request));
            sender.handle_request(now, 1, &request);
        }
        assert!(receiver.next_timeout(now) > now);
        assert!(receiver.held_bytes() <= KEPT_BYTES + MESSAGE_BYTES_MAX + 6, "{}", receiver.held_bytes());
        assert!(sender.history_bytes() <= 3 * KEPT_BYTES, "{}", sender.history_bytes());
    }
    if is_honest && !has_ended {
        comes_to_an_end(&mut sender, &mut receiver, now);
    }
    Ok(())
}

/// Takes what the receiver hands over. Says whether that was the end.
fn take_all(receiver: &mut Receiver, now: Time) -> bool {
    for _ in 0..EVENTS_MAX {
        match receiver.poll_event(now) {
            None => return false,
            Some(Event::Ended) => return true,
            Some(event) => assert_ne!(event, Event::Missing(0)),
        }
    }
    panic!("{EVENTS_MAX} events at one instant");
}

/// Nothing is lost any more: the member hears of the end.
fn comes_to_an_end(sender: &mut Sender, receiver: &mut Receiver, mut now: Time) {
    sender.end();
    for _ in 0..20_000 {
        now += Duration::from_millis(5);
        while let Some((number, packet)) = sender.poll_transmit(now) {
            receiver.handle(now, number, packet);
        }
        if take_all(receiver, now) {
            return;
        }
        if let Some(request) = receiver.poll_request(now) {
            sender.handle_request(now, 1, &request);
        }
    }
    panic!("the member hears of no end: {:?} {:?}", sender.stats(), receiver.stats());
}
