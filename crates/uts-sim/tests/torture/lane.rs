//! Data of one flow in one direction: what was sent, and what came of it.

use crate::plan::LanePlan;
use bytes::Bytes;
use uts_engine::Read;

/// Something that was handed over in one go.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// Its first position in the flow.
    start: u64,
    /// Which message it is, or 0.
    index: u32,
    /// Where its bytes begin in the contents of that message or run.
    from: usize,
    len: usize,
    /// It was sent as a message.
    message: bool,
}

pub struct Lane {
    pub tag: u32,
    /// Which flow of the plan it belongs to.
    pub place: usize,
    pub plan: LanePlan,
    /// Messages or bytes sent so far.
    pub next: usize,
    pub is_finished: bool,
    pub is_settled: bool,
    pub is_ended: bool,
    items: Vec<Item>,
    position: u64,
    /// By position: what arrived. For messages their first position stands for all.
    arrived: Vec<bool>,
    last_position: Option<u64>,
    reads: usize,
}

/// The contents of a message, or a stretch of those of a run of bytes.
pub fn contents(tag: u32, index: u32, from: usize, len: usize, message: bool) -> Bytes {
    let mut data: Vec<u8> = (from..from + len)
        .map(|at| {
            let mixed = (at as u64 ^ u64::from(tag) << 40 ^ u64::from(index) << 20)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Of some flows, lz4 makes less.
            (mixed >> 56) as u8 & if tag.is_multiple_of(2) { 0x03 } else { 0xff }
        })
        .collect();
    if message {
        for (at, value) in [tag, index, len as u32].into_iter().enumerate() {
            data[at * 4..at * 4 + 4].copy_from_slice(&value.to_be_bytes());
        }
    }
    data.into()
}

impl Lane {
    pub fn new(tag: u32, place: usize, plan: LanePlan) -> Self {
        Lane {
            tag,
            place,
            plan,
            next: 0,
            is_finished: false,
            is_settled: false,
            is_ended: false,
            items: Vec::new(),
            position: 0,
            arrived: Vec::new(),
            last_position: None,
            reads: 0,
        }
    }

    /// Data to send next, if anything is left.
    pub fn next_data(&self) -> Option<Bytes> {
        if self.plan.messages {
            let len = *self.plan.sizes.get(self.next)?;
            return Some(contents(self.tag, self.next as u32, 0, len, true));
        }
        let left = self.plan.bytes() - self.next;
        (left > 0).then(|| contents(self.tag, 0, self.next, left.min(10_000), false))
    }

    /// The messages that come next, this many at the most.
    pub fn next_messages(&self, most: usize) -> impl Iterator<Item = Bytes> {
        let next = self.plan.sizes.iter().enumerate().skip(self.next).take(most);
        next.map(|(index, len)| contents(self.tag, index as u32, 0, *len, true))
    }

    /// Notes that so much of it was taken, as a message or as bytes.
    pub fn on_sent(&mut self, taken: usize, as_message: bool) {
        let (index, from) = if self.plan.messages { (self.next as u32, 0) } else { (0, self.next) };
        self.items.push(Item { start: self.position, index, from, len: taken, message: as_message });
        self.position += taken as u64 + u64::from(as_message);
        self.arrived.resize(self.position as usize, false);
        self.next += if self.plan.messages { 1 } else { taken };
    }

    /// Checks what was read.
    pub fn on_read(&mut self, read: &Read, ordered: bool) -> Result<(), String> {
        self.reads += 1;
        let place = match read {
            Read::Bytes(position, data) => self.on_bytes(*position, data)?,
            Read::Message(data) | Read::Timed { message: data, .. } => self.on_message(data)?,
            // What is missing in time is judged by what arrives in the end.
            Read::Missing { .. } => return Ok(()),
            Read::Damaged { .. } => return Err("a damaged message, which nobody asked for".to_owned()),
            Read::End => {
                self.is_ended = true;
                return Ok(());
            }
        };
        if ordered && self.last_position.is_some_and(|last| place < last) {
            return Err(format!("position {place} was read after {:?}", self.last_position));
        }
        self.last_position = Some(place);
        Ok(())
    }

    fn on_bytes(&mut self, position: u64, data: &[u8]) -> Result<u64, String> {
        let (mut at, mut rest) = (position, data);
        while !rest.is_empty() {
            let index =
                self.items.partition_point(|i| i.start <= at).checked_sub(1).ok_or("nothing was sent")?;
            let item = self.items[index];
            let skip = (at - item.start) as usize;
            if item.message || skip >= item.len {
                return Err(format!("bytes at position {at}, where a message was sent"));
            }
            let len = rest.len().min(item.len - skip);
            let whole = contents(self.tag, item.index, item.from, item.len, self.plan.messages);
            if whole[skip..skip + len] != rest[..len] {
                return Err(format!("bytes at position {at} are damaged"));
            }
            for place in at..at + len as u64 {
                if core::mem::replace(&mut self.arrived[place as usize], true) {
                    return Err(format!("position {place} was read twice"));
                }
            }
            at += len as u64;
            rest = &rest[len..];
        }
        Ok(position)
    }

    fn on_message(&mut self, data: &[u8]) -> Result<u64, String> {
        let word = |at: usize| data.get(at..at + 4).map(|w| u32::from_be_bytes([w[0], w[1], w[2], w[3]]));
        let index = word(4).ok_or_else(|| format!("a message of {} bytes", data.len()))?;
        let item = self.items.iter().find(|i| i.index == index && i.message && self.plan.messages);
        let item = *item.ok_or_else(|| format!("message {index} of {} bytes was never sent", data.len()))?;
        if contents(self.tag, index, 0, item.len, true) != data {
            return Err(format!("message {index} is damaged"));
        }
        let places = &mut self.arrived[item.start as usize..=item.start as usize + item.len];
        if places.iter().any(|place| *place) {
            return Err(format!("message {index} was read twice"));
        }
        places.fill(true);
        Ok(item.start)
    }

    /// Count of what has become of it: it grows as long as the flow goes on.
    pub fn steps(&self) -> usize {
        self.reads + self.position as usize + usize::from(self.is_settled) + usize::from(self.is_ended)
    }

    /// Positions that were sent and never read.
    pub fn missing(&self) -> usize {
        self.arrived.iter().filter(|a| !**a).count()
    }

    pub fn is_done(&self) -> bool {
        self.is_settled && self.is_ended
    }
}
