//! The machines of an exchange. The network does anything to messages, and a lying end sends
//! anything.

use arbitrary::Unstructured;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use uts_engine::exchange::{EPOCH_SPAN, EVENTS_MAX, Event, GROUPS_MAX, Machine, Message, Side};
use uts_functions::Time;

type Letter = Message<u8, u8>;

const STEPS_MAX: usize = 300;

/// Messages under way.
const LETTERS_MAX: usize = 64;

/// One end, and what its owner keeps by its events.
struct End {
    machine: Machine<u8, u8>,
    side: Side,
    open: BTreeMap<u32, (u8, u8)>,
    using: BTreeMap<u8, u32>,
}

impl End {
    fn new(side: Side) -> Self {
        let mut machine = Machine::new(side, 0).with_tries_max(3);
        machine.set_pto(Duration::from_millis(100));
        End { machine, side, open: [(0, (0, 0))].into(), using: [(0, 0)].into() }
    }

    /// Takes out its messages and events. What an owner hears always fits what it heard before,
    /// whoever the peer is.
    fn drain(&mut self, out: &mut Vec<Letter>) {
        let mut events = 0;
        while let Some(event) = self.machine.poll_event() {
            events += 1;
            match event {
                Event::Open { epoch, group, profile } => {
                    assert_eq!(self.side, Side::DataReceiver);
                    assert!(
                        self.open.insert(epoch, (group, profile)).is_none(),
                        "epoch {epoch} was opened twice"
                    );
                }
                Event::Retire { epoch } => {
                    assert!(self.open.remove(&epoch).is_some(), "epoch {epoch} was retired and is not open");
                }
                Event::Use { epoch, group, .. } => {
                    assert_eq!(self.side, Side::DataSender);
                    let old = self.using.insert(group, epoch);
                    assert!(
                        old.is_none_or(|old| old < epoch),
                        "the sender went back from {old:?} to {epoch}"
                    );
                }
                _ => {}
            }
        }
        assert!(events <= EVENTS_MAX);
        let before = out.len();
        while let Some(letter) = self.machine.poll_message() {
            out.push(letter);
            assert!(out.len() - before <= 4, "it does not stop talking");
        }
        self.check();
    }

    /// P-17: five bits name at most one of the open epochs.
    fn check(&self) {
        if let (Some((oldest, _)), Some((newest, _))) =
            (self.open.first_key_value(), self.open.last_key_value())
        {
            assert!(newest - oldest < EPOCH_SPAN, "epochs {oldest} and {newest} are open at once");
        }
        for group in 0..GROUPS_MAX as u8 {
            let current = self.machine.current(group);
            if self.side == Side::DataSender {
                assert_eq!(current, self.using.get(&group).copied());
            }
        }
        let open: BTreeSet<u32> = self.open.keys().map(|epoch| epoch % EPOCH_SPAN).collect();
        assert_eq!(open.len(), self.open.len());
    }
}

pub fn run(data: &[u8]) {
    let _ = steps(&mut Unstructured::new(data));
}

fn steps(u: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let mut ends = [End::new(Side::DataSender), End::new(Side::DataReceiver)];
    let mut now = Time::ZERO;
    // To the sender of data, and to its receiver.
    let mut letters: [Vec<Letter>; 2] = [Vec::new(), Vec::new()];
    let mut is_honest = true;
    for _ in 0..STEPS_MAX {
        if u.is_empty() {
            break;
        }
        let of = usize::from(u.arbitrary::<bool>()?);
        match u.int_in_range(0..=7)? {
            0 => {
                let _ = ends[of].machine.request(now, u.int_in_range(0..=GROUPS_MAX as u8)?, u.arbitrary()?);
            }
            1..=3 if !letters[of].is_empty() => {
                let index = u.choose_index(letters[of].len())?;
                let letter =
                    if u.arbitrary()? { letters[of].remove(index) } else { letters[of][index].clone() };
                let accept = u.ratio(3, 4)?;
                ends[of].machine.handle(now, letter, |_, _| if accept { Ok(()) } else { Err(1) });
            }
            4 => {
                is_honest = false;
                let letter = lie(u)?;
                ends[of].machine.handle(now, letter, |_, _| Ok(()));
            }
            5 => {
                now += Duration::from_millis(u64::from(u.arbitrary::<u8>()?) * 10);
                ends[of].machine.handle_timeout(now);
            }
            6 if of == 1 => {
                let epoch = if u.arbitrary()? {
                    ends[0].using.values().max().copied().unwrap_or(0)
                } else {
                    u.arbitrary()?
                };
                is_honest &= ends[0].using.values().any(|used| *used == epoch);
                ends[1].machine.on_packet(now, epoch);
            }
            _ => {
                letters[of].pop();
            }
        }
        for (end, of) in ends.iter_mut().zip([1, 0]) {
            end.drain(&mut letters[of]);
            letters[of].truncate(LETTERS_MAX);
        }
        if is_honest {
            // What the sender uses the receiver reads.
            assert!(
                ends[0]
                    .using
                    .iter()
                    .all(|(group, epoch)| ends[1].open.get(epoch).is_some_and(|(of, _)| of == group))
            );
        }
    }
    rest(&mut ends, now);
    Ok(())
}

/// Left alone, each end comes to rest: it does not ask for ever.
fn rest(ends: &mut [End; 2], mut now: Time) {
    for end in ends {
        let mut due = 0;
        while let Some(at) = end.machine.poll_timeout() {
            now = now.max(at);
            end.machine.handle_timeout(now);
            end.drain(&mut Vec::new());
            due += 1;
            assert!(due < 100, "it never comes to rest");
        }
    }
}

fn lie(u: &mut Unstructured<'_>) -> arbitrary::Result<Letter> {
    let epoch = if u.ratio(9, 10)? { u32::from(u.int_in_range(0..=70u8)?) } else { u.arbitrary()? };
    Ok(match u.int_in_range(0..=4)? {
        0 => {
            let mut using = [None; GROUPS_MAX];
            for used in &mut using {
                if u.ratio(1, 4)? {
                    *used = Some(u32::from(u.int_in_range(0..=70u8)?));
                }
            }
            Message::Request {
                epoch,
                group: u.int_in_range(0..=GROUPS_MAX as u8)?,
                using,
                profile: u.arbitrary()?,
            }
        }
        1 => Message::Ack { epoch },
        2 => Message::Nak { epoch, refusal: u.arbitrary()? },
        3 => Message::Confirm { epoch },
        _ => Message::Stale {
            epoch,
            highest: if u.arbitrary()? { epoch.saturating_add(3) } else { u.arbitrary()? },
        },
    })
}
