//! Handing over: what is next in order of position, or whatever is whole.

use super::{Delivery, Piece, Ready, Reassembly};
use bytes::{Bytes, BytesMut};

impl Reassembly {
    pub(super) fn take_piece(&mut self, start: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&start)?;
        self.held_bytes -= piece.data.len();
        self.begins.remove(&start);
        if piece.end {
            self.ends.remove(&(start + piece.data.len() as u64));
        }
        Some(piece)
    }

    /// Bytes of the run, where nothing else waits to be handed over.
    fn pop_run(&mut self, bytes_max: usize) -> Option<Delivery> {
        if !(self.pieces.is_empty() && self.ready.is_empty() && self.skipped.is_empty()) {
            return None;
        }
        let (start, data) = self.run.read(bytes_max)?;
        self.held_bytes -= data.len();
        self.delivered.insert(start..start + data.len() as u64);
        Some(Delivery::Bytes(start, data))
    }

    /// Takes out the next data in order of position.
    pub fn pop_front(&mut self, bytes_max: usize) -> Option<Delivery> {
        if let Some(message) = self.pop_unplaced() {
            return Some(message);
        }
        if let Some(message) = self.pop_next_whole() {
            return Some(message);
        }
        // A gap may lie before the run.
        if self.run.start() == self.consumed()
            && let Some(bytes) = self.pop_run(bytes_max)
        {
            return Some(bytes);
        }
        if bytes_max > 0 {
            self.end_run();
        }
        if self.pieces.is_empty() && self.skipped.is_empty() {
            return self.pop_end();
        }
        let at = self.delivered.run_end(0);
        // sequencing.md R-5. What was given up is reported at the place where it is missing: once
        // everything below it was handed over.
        let before = self.skipped.count();
        self.skipped.remove_below(at);
        if self.skipped.count() < before {
            return Some(Delivery::Skipped(before - self.skipped.count()));
        }
        // sequencing.md R-8.
        match self.pieces.get(&at) {
            None => self.pop_end(),
            Some(piece) if piece.message => self.pop_message(at),
            Some(_) => self.pop_bytes(at, bytes_max),
        }
    }

    /// Whatever is whole, in order of completion.
    pub fn pop_any(&mut self, bytes_max: usize) -> Option<Delivery> {
        if let Some(message) = self.pop_unplaced() {
            return Some(message);
        }
        if let Some(bytes) = self.pop_run(bytes_max) {
            return Some(bytes);
        }
        self.end_run();
        // sequencing.md R-5.
        if !self.skipped.is_empty() {
            let positions = self.skipped.count();
            self.skipped.clear();
            return Some(Delivery::Skipped(positions));
        }
        // sequencing.md R-9.
        loop {
            if let Some(message) = self.pop_front_whole() {
                return Some(message);
            }
            let Some(Ready { start, .. }) = self.ready.pop_front() else { break };
            let delivery = match self.pieces.get(&start) {
                None => None,
                Some(piece) if piece.message => self.pop_message(start),
                Some(_) if bytes_max == 0 => {
                    // Who asks for nothing leaves it where it is.
                    self.ready.push_front(Ready { start, whole: None });
                    return None;
                }
                Some(_) => self.pop_bytes(start, bytes_max),
            };
            if delivery.is_some() {
                return delivery;
            }
        }
        if !self.unindexed {
            return self.pop_end();
        }
        // sequencing.md: pieces that arrived while another mechanism was in charge are not
        // in `ready`: look in order of position.
        let waiting =
            self.pieces.iter().find(|(start, p)| !p.message || self.whole_message_around(**start).is_some());
        match waiting.map(|(start, piece)| (*start, piece.message)) {
            Some((start, true)) => {
                let begin = self.whole_message_around(start)?.start;
                self.pop_message(begin)
            }
            Some((start, false)) => self.pop_bytes(start, bytes_max),
            None => {
                self.unindexed = false;
                self.pop_end()
            }
        }
    }

    fn pop_end(&mut self) -> Option<Delivery> {
        // sequencing.md R-6.
        let fin = self.fin?;
        if self.end_delivered || self.delivered.run_end(0) != fin {
            return None;
        }
        self.end_delivered = true;
        self.delivered.insert(fin..fin + 1);
        Some(Delivery::End)
    }

    fn pop_bytes(&mut self, start: u64, bytes_max: usize) -> Option<Delivery> {
        if bytes_max == 0 {
            return None;
        }
        let mut piece = self.take_piece(start)?;
        if piece.data.len() > bytes_max {
            let rest = piece.data.split_off(bytes_max);
            let rest_start = start + bytes_max as u64;
            self.held_bytes += rest.len();
            self.pieces.insert(rest_start, Piece { data: rest, ..piece });
            self.ready.push_front(Ready { start: rest_start, whole: None });
        }
        self.delivered.insert(start..start + piece.data.len() as u64);
        let delivery = if piece.presented { Delivery::PresentedBytes } else { Delivery::Bytes };
        Some(delivery(start, piece.data))
    }

    pub(super) fn pop_message(&mut self, start: u64) -> Option<Delivery> {
        let whole = self.whole_message_around(start)?;
        let first = self.take_piece(whole.start)?;
        let mut at = whole.start + first.positions();
        let presented = first.presented;
        let data = if at == whole.end {
            first.data
        } else {
            let mut joined = BytesMut::with_capacity((whole.end - whole.start) as usize);
            joined.extend_from_slice(&first.data);
            while at < whole.end {
                let piece = self.take_piece(at)?;
                at += piece.positions();
                joined.extend_from_slice(&piece.data);
            }
            joined.freeze()
        };
        self.delivered.insert(whole.clone());
        if let Some(right_bytes) = self.take_damage(&whole) {
            return Some(Delivery::Damaged(whole.start, data, right_bytes));
        }
        Some(delivery(whole.start, data, presented))
    }
}

pub(super) fn delivery(position: u64, message: Bytes, presented: bool) -> Delivery {
    if presented { Delivery::Presented(position, message) } else { Delivery::Message(position, message) }
}
