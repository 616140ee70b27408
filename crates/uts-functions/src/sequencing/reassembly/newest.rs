//! The newest of what is whole.

use super::{Delivery, Reassembly};

impl Reassembly {
    /// The newest whole message that begins at `from` or behind. Whole messages before it are
    /// passed over: they count as given up. Without a message, what [`Reassembly::pop_any`] has.
    pub fn pop_newest(&mut self, from: u64, bytes_max: usize) -> Option<Delivery> {
        if let Some(message) = self.pop_unplaced() {
            return Some(message);
        }
        // sequencing.md R-5: what was given up is counted first.
        if !self.skipped.is_empty() || !self.run.is_empty() {
            return self.pop_any(bytes_max);
        }
        // The end comes behind all messages.
        let fin = self.fin.take();
        let (mut newest, mut passed_over): (Option<(u64, Delivery)>, Vec<_>) = (None, Vec::new());
        // Who asks for no bytes gets none.
        while let Some(next) = self.pop_any(0) {
            let (start, bytes) = match &next {
                Delivery::Message(start, data)
                | Delivery::Presented(start, data)
                | Delivery::Damaged(start, data, _) => (*start, data.len() as u64),
                // None of these comes: bytes were not asked for, and there is neither gap nor end.
                Delivery::Bytes(..) | Delivery::PresentedBytes(..) | Delivery::Skipped(_) | Delivery::End => {
                    break;
                }
            };
            // sequencing.md.
            let is_newest = start >= from && newest.as_ref().is_none_or(|(newest, _)| start > *newest);
            if !is_newest {
                passed_over.push(start..start + bytes + 1);
            } else if let Some((start, before)) = newest.replace((start, next)) {
                passed_over.push(start..start + before.message_bytes() + 1);
            }
        }
        for range in passed_over {
            self.skipped.insert(range);
        }
        self.fin = fin;
        newest.map(|(_, message)| message).or_else(|| self.pop_any(bytes_max))
    }
}

impl Delivery {
    fn message_bytes(&self) -> u64 {
        match self {
            Delivery::Message(_, data) | Delivery::Presented(_, data) | Delivery::Damaged(_, data, _) => {
                data.len() as u64
            }
            Delivery::Bytes(..) | Delivery::PresentedBytes(..) | Delivery::Skipped(_) | Delivery::End => 0,
        }
    }
}
