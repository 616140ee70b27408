//! A log of what was sent and shown, from which the record is made.

use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use uts::levels::Why;
use uts::{ConnectionEvent, ExchangeEvent};
use uts_record::call::{Change, Exchange, Shown, Stream};

/// Kind of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Voice,
    Picture,
    Pointer,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Voice, Kind::Picture, Kind::Pointer];

    /// Time between two messages.
    pub fn every(self) -> Duration {
        Duration::from_millis(match self {
            Kind::Voice => 20,
            Kind::Picture => 40,
            Kind::Pointer => 50,
        })
    }
}

/// Log of one stream.
#[derive(Clone, Debug)]
pub(super) struct Log {
    begun: Instant,
    stream: Arc<Mutex<Stream>>,
}

impl Log {
    pub fn new(begun: Instant, from: usize, to: usize) -> Self {
        let (voice, picture) = (nothing_shown(Kind::Voice), nothing_shown(Kind::Picture));
        let stream = Stream { from, to, voice, picture, ..Stream::default() };
        Log { begun, stream: Arc::new(Mutex::new(stream)) }
    }

    /// True if it is the log of what one sends to the other.
    pub fn is_of(&self, from: usize, to: usize) -> bool {
        let stream = self.lock();
        (stream.from, stream.to) == (from, to)
    }

    /// Time since the call began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn now_ms(&self) -> u32 {
        millis(self.elapsed())
    }

    fn now_s(&self) -> f64 {
        f64::from(self.now_ms()) / 1e3
    }

    fn lock(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message was made that is to be shown.
    pub fn made(&self, kind: Kind) -> u32 {
        let at = self.now_ms();
        of(&mut self.lock(), kind).made_ms.push(at);
        at
    }

    /// A message is shown now that was made then.
    pub fn shown(&self, kind: Kind, made_ms: u32, level: u8) {
        let at = self.now_ms();
        let mut stream = self.lock();
        let delay = |at: u32, made: u32| i64::from(at) - i64::from(made);
        let heard = stream.voice.shown_ms.last().zip(stream.voice.shown_made_ms.last());
        let heard = heard.map(|(at, made)| delay(*at, *made));
        let skew = heard.filter(|_| kind != Kind::Voice).map(|heard| heard - delay(at, made_ms));
        let shown = of(&mut stream, kind);
        shown.skew_ms.push(skew.map(|skew| i32::try_from(skew).unwrap_or(i32::MAX)));
        shown.shown_made_ms.push(made_ms);
        shown.shown_ms.push(at);
        shown.level.push(level);
    }

    /// Another level holds.
    pub fn level(&self, to: usize, why: Why) {
        self.lock().changes.push(Change { t_s: self.now_s(), to, why: why.to_string() });
    }

    /// Something has become of the connection; the sender's own exchanges are of interest.
    pub fn event(&self, event: &ConnectionEvent) {
        let ConnectionEvent::Exchange(step) = event else { return };
        let t_s = self.now_s();
        let exchanges = &mut self.lock().exchanges;
        match &**step {
            ExchangeEvent::Requested { group, seen, changes, expects, .. } => {
                let of = if *group == 0 { "the picture" } else { "another flow" };
                exchanges.push(Exchange {
                    t_s,
                    of: of.to_owned(),
                    seen: seen.clone(),
                    changes: changes.clone(),
                    expects: expects.clone(),
                    brought: String::new(),
                });
            }
            ExchangeEvent::Brought { line, .. } => {
                if let Some(exchange) =
                    exchanges.iter_mut().rev().find(|exchange| exchange.of == "the picture")
                {
                    exchange.brought.clone_from(line);
                }
            }
            _ => {}
        }
    }

    /// The stream, as it was logged.
    pub fn finish(&self) -> Stream {
        self.lock().clone()
    }
}

fn of(stream: &mut Stream, kind: Kind) -> &mut Shown {
    match kind {
        Kind::Voice => &mut stream.voice,
        Kind::Picture => &mut stream.picture,
        Kind::Pointer => stream.pointer.get_or_insert_with(|| nothing_shown(kind)),
    }
}

fn nothing_shown(kind: Kind) -> Shown {
    Shown { every_ms: millis(kind.every()).into(), ..Shown::default() }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
