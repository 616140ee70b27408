//! Many small messages in memory that they share: what they have in common is held once, so that
//! for each there is neither a handle nor an entry in a list.

use bytes::{Buf, Bytes};

/// Where whole messages of one length lie in a piece of memory, at even distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Where the first byte of the first one is.
    pub from: usize,
    /// Bytes of each.
    pub bytes: usize,
    /// From the beginning of one to that of the next, in bytes.
    pub stride: usize,
    /// Number of messages.
    pub count: u32,
    /// They are in the form that a presentation mechanism gave them.
    pub presented: bool,
}

impl Places {
    /// Of a single message between two places.
    pub fn one(from: usize, to: usize, presented: bool) -> Self {
        let bytes = to - from;
        Places { from, bytes, stride: bytes, count: 1, presented }
    }

    /// Of messages one behind the other, with nothing between them.
    pub fn side_by_side(from: usize, bytes: usize, count: u32) -> Self {
        Places { from, bytes, stride: bytes, count, presented: false }
    }

    /// Bytes of all.
    #[inline]
    pub fn data_bytes(&self) -> usize {
        self.bytes * self.count as usize
    }

    /// Positions of all in a flow: each ends with one of its own (segmentation.md R-1).
    #[inline]
    pub fn positions(&self) -> u64 {
        (self.bytes as u64 + 1) * u64::from(self.count)
    }

    /// Adds a message that lies between these places, if it goes on as the others do. Says whether
    /// it did.
    #[inline]
    pub fn extend(&mut self, from: usize, to: usize) -> bool {
        if to - from != self.bytes {
            return false;
        }
        if self.count == 1 {
            self.stride = from - self.from;
        } else if from != self.from + self.stride * self.count as usize {
            return false;
        }
        self.count += 1;
        true
    }

    /// Where the last one ends.
    #[inline]
    pub fn end(&self) -> usize {
        self.from + self.stride * (self.count as usize).saturating_sub(1) + self.bytes
    }

    /// Where the message `index` lies.
    #[inline]
    fn place(&self, index: u32) -> core::ops::Range<usize> {
        let from = self.from + index as usize * self.stride;
        from..from + self.bytes
    }

    /// The first `count` of them, which are no longer among these.
    #[inline]
    pub fn split_first(&mut self, count: u32) -> Places {
        let first = Places { count: count.min(self.count), ..*self };
        self.from += first.count as usize * self.stride;
        self.count -= first.count;
        first
    }
}

/// Messages of one length in memory that they share.
#[derive(Clone, Debug)]
pub struct MessageRow {
    data: Bytes,
    places: Places,
}

impl MessageRow {
    /// Messages that lie so in `data`; `None` if they reach beyond it.
    pub fn new(data: Bytes, places: Places) -> Option<Self> {
        let last = places.stride.checked_mul(places.count.saturating_sub(1) as usize)?;
        let end = places.from.checked_add(last)?.checked_add(places.bytes)?;
        (end <= data.len()).then_some(MessageRow { data, places })
    }

    /// A single message.
    pub fn one(data: Bytes, presented: bool) -> Self {
        let places = Places::one(0, data.len(), presented);
        MessageRow { data, places }
    }

    /// Number of messages in the row.
    #[inline]
    pub fn len(&self) -> usize {
        self.places.count as usize
    }

    /// True if there are no messages.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.count == 0
    }

    /// Bytes of each.
    #[inline]
    pub fn message_bytes(&self) -> usize {
        self.places.bytes
    }

    /// Bytes of all.
    #[inline]
    pub fn data_bytes(&self) -> usize {
        self.places.data_bytes()
    }

    /// Positions of all in a flow: each ends with one of its own (segmentation.md R-1).
    #[inline]
    pub fn positions(&self) -> u64 {
        self.places.positions()
    }

    /// True if they are in the form that a presentation mechanism gave them.
    #[inline]
    pub fn is_presented(&self) -> bool {
        self.places.presented
    }

    /// All of them, from the first on.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.places.count).map(|index| self.data.get(self.places.place(index)).unwrap_or_default())
    }

    /// Takes the first one out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<Bytes> {
        let place = self.places.place(0);
        match self.places.count {
            0 => None,
            // Whoever is last takes the memory itself.
            1 => {
                self.places.count = 0;
                let mut message = core::mem::take(&mut self.data);
                if place.len() < message.len() {
                    message.truncate(place.end);
                    message.advance(place.start);
                }
                Some(message)
            }
            _ => {
                self.places.split_first(1);
                Some(self.data.slice(place))
            }
        }
    }

    /// Takes one out after the other until `put` wants no more; says whether it does.
    #[inline]
    pub fn pop_each(&mut self, mut put: impl FnMut(Bytes) -> bool) -> bool {
        while let Some(message) = self.pop_front() {
            if !put(message) {
                return false;
            }
        }
        true
    }

    /// The first `count` of them, which are no longer in this row.
    pub fn split_first(&mut self, count: usize) -> MessageRow {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if count >= self.places.count {
            let empty = Places { count: 0, ..self.places };
            let data = core::mem::take(&mut self.data);
            return MessageRow { data, places: core::mem::replace(&mut self.places, empty) };
        }
        MessageRow { data: self.data.clone(), places: self.places.split_first(count) }
    }

    /// All of them one behind the other, with nothing between them: copied if they are not.
    pub fn into_bytes(self) -> Bytes {
        let Places { from, bytes, stride, count, .. } = self.places;
        if stride != bytes && count > 1 {
            return self.iter().flatten().copied().collect();
        }
        let mut data = self.data;
        data.truncate(from + bytes * count as usize);
        data.advance(from);
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &'static str, from: usize, bytes: usize, stride: usize, count: u32) -> Option<MessageRow> {
        let places = Places { from, bytes, stride, count, presented: false };
        MessageRow::new(Bytes::from_static(text.as_bytes()), places)
    }

    #[test]
    fn messages_are_taken_one_by_one_and_many_at_a_time() {
        let mut row = row("..one..two..six..ten.", 2, 3, 5, 4).expect("it lies within");
        assert_eq!((row.len(), row.message_bytes(), row.data_bytes()), (4, 3, 12));
        assert_eq!(row.iter().collect::<Vec<_>>(), [b"one", b"two", b"six", b"ten"]);
        assert_eq!(row.pop_front().as_deref(), Some(&b"one"[..]));
        let mut first = row.split_first(2);
        assert_eq!((first.len(), row.len()), (2, 1));
        assert_eq!(first.clone().into_bytes(), "twosix");
        assert_eq!((first.pop_front(), first.pop_front()), (Some("two".into()), Some("six".into())));
        assert_eq!((first.pop_front(), first.is_empty()), (None, true));
        let rest = row.split_first(9);
        assert_eq!((rest.into_bytes(), row.is_empty(), row.pop_front()), ("ten".into(), true, None));
    }

    #[test]
    fn what_stands_side_by_side_is_not_copied() {
        let row = row(".onetwosix", 1, 3, 3, 3).expect("it lies within");
        let first = row.iter().next().expect("three").as_ptr();
        let bytes = row.into_bytes();
        assert_eq!((bytes.as_ptr(), &bytes[..]), (first, &b"onetwosix"[..]));
    }

    #[test]
    fn a_row_lies_within_its_memory() {
        assert!(row("0123456789", 1, 3, 3, 3).is_some());
        for (from, bytes, stride, count) in
            [(2, 3, 3, 3), (0, 11, 11, 1), (usize::MAX, 1, 1, 1), (0, 1, usize::MAX, 9)]
        {
            assert!(row("0123456789", from, bytes, stride, count).is_none());
        }
        assert!(row("", 0, 0, 0, 5).is_some_and(|row| row.iter().count() == 5));
    }

    #[test]
    fn places_go_on_as_they_began() {
        let mut places = Places::one(4, 7, false);
        assert!(!places.extend(9, 13), "of another length");
        assert!(places.extend(9, 12) && places.extend(14, 17));
        assert!(!places.extend(20, 23), "at another distance");
        assert_eq!(places, Places { from: 4, bytes: 3, stride: 5, count: 3, presented: false });
        assert_eq!((places.positions(), places.data_bytes()), (12, 9));
    }
}
