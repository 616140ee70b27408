//! Batches of messages, in which many are handed over and read.

use crate::connection::flows::interface::Read;
use crate::connection::receive::presentations::Presented;
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use uts_functions::Time;
use uts_functions::segmentation::buffer::SendBuffer;
use uts_functions::sequencing::message_row::{MessageRow, Places};

/// Memory that messages are copied into is asked for so much at a time.
const MEMORY_BYTES: usize = 64 << 10;

/// Messages of one length are kept together up to so many bytes: a sender sets their memory free
/// when all of them have arrived.
const ROW_BYTES_MAX: usize = 16 << 10;

/// Messages one behind the other, in memory that they share. Of small ones many are handed over and
/// read so with next to no work for each, those of one length with least: no handle, no allocation,
/// no entry in a list.
///
/// ```
/// let mut batch = uts_engine::MessageBatch::new();
/// batch.push(b"one");
/// batch.push(b"two");
/// assert_eq!(batch.iter().collect::<Vec<_>>(), [b"one", b"two"]);
/// assert_eq!(batch.pop_front().as_deref(), Some(&b"one"[..]));
/// assert_eq!((batch.len(), batch.data_bytes()), (1, 3));
/// ```
#[derive(Debug, Default)]
pub struct MessageBatch {
    rows: VecDeque<MessageRow>,
    /// Messages of one length that were added last, and how many they are: a row before long.
    open: BytesMut,
    open_count: u32,
    len: usize,
    data_bytes: usize,
}

/// Bytes that are no whole number of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{bytes} bytes are no whole number of messages of {message_bytes} bytes each")]
pub struct UnevenMessages {
    /// Bytes that were to be messages.
    pub bytes: usize,
    /// Bytes that each was to have.
    pub message_bytes: usize,
}

impl MessageBatch {
    /// One without messages.
    pub fn new() -> Self {
        MessageBatch::default()
    }

    /// Adds a copy of a message behind the others.
    #[inline]
    pub fn push(&mut self, message: &[u8]) {
        let (held, count) = (self.open.len(), self.open_count as usize);
        if count > 0 && (message.len() * count != held || held + message.len() > ROW_BYTES_MAX) {
            self.close_row();
        }
        if self.open.capacity() - self.open.len() < message.len() {
            self.open.reserve(message.len().max(MEMORY_BYTES));
        }
        self.open.extend_from_slice(message);
        self.open_count += 1;
        self.len += 1;
        self.data_bytes += message.len();
    }

    /// Adds messages of so many bytes each, which stand one behind the other in `messages`, without
    /// copying them.
    ///
    /// # Errors
    /// [`UnevenMessages`] if that is no whole number of messages; nothing was added then.
    pub fn push_all(&mut self, mut messages: Bytes, message_bytes: usize) -> Result<(), UnevenMessages> {
        if messages.is_empty() {
            return Ok(());
        }
        let uneven = UnevenMessages { bytes: messages.len(), message_bytes };
        if messages.len().checked_rem(message_bytes) != Some(0) {
            return Err(uneven);
        }
        let row_bytes = (ROW_BYTES_MAX - ROW_BYTES_MAX % message_bytes).max(message_bytes);
        while !messages.is_empty() {
            let row = messages.split_to(row_bytes.min(messages.len()));
            let count = (row.len() / message_bytes) as u32;
            MessageRow::new(row, Places::side_by_side(0, message_bytes, count))
                .into_iter()
                .for_each(|row| self.push_row(row));
        }
        Ok(())
    }

    /// Number of messages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no messages.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of all of them.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// All of them, from the first on.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.open.len() / self.open_count.max(1) as usize;
        let open = (0..self.open_count as usize).map(move |n| &self.open[n * bytes..(n + 1) * bytes]);
        self.rows.iter().flat_map(MessageRow::iter).chain(open)
    }

    /// Takes the first one out. It shares its memory, up to 64 KiB, with others: what is kept for
    /// long is better copied.
    pub fn pop_front(&mut self) -> Option<Bytes> {
        let message = self.front_row()?.pop_front()?;
        self.drop_empty_row();
        self.len -= 1;
        self.data_bytes -= message.len();
        Some(message)
    }

    /// Drops all of them.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.open.clear();
        (self.open_count, self.len, self.data_bytes) = (0, 0, 0);
    }

    /// Adds messages behind the others, as they are.
    pub(crate) fn push_row(&mut self, row: MessageRow) {
        self.close_row();
        self.len += row.len();
        self.data_bytes += row.data_bytes();
        self.rows.push_back(row);
    }

    fn close_row(&mut self) {
        let count = core::mem::take(&mut self.open_count);
        if count > 0 {
            let bytes = self.open.len() / count as usize;
            let places = Places::side_by_side(0, bytes, count);
            self.rows.extend(MessageRow::new(self.open.split().freeze(), places));
        }
    }

    fn front_row(&mut self) -> Option<&mut MessageRow> {
        if self.rows.is_empty() {
            self.close_row();
        }
        self.rows.front_mut()
    }

    fn drop_empty_row(&mut self) {
        if self.rows.front().is_some_and(MessageRow::is_empty) {
            self.rows.pop_front();
        }
    }

    /// The first messages, `most` at the most, all of one length.
    fn split_first(&mut self, most: usize) -> Option<MessageRow> {
        let first = self.front_row()?.split_first(most);
        self.drop_empty_row();
        self.len -= first.len();
        self.data_bytes -= first.data_bytes();
        Some(first)
    }
}

/// On what terms messages are handed over.
pub(in crate::connection) struct Terms {
    /// Bytes that the buffer may hold.
    pub capacity: usize,
    /// The longest message.
    pub bytes_max: usize,
    /// When they are worthless.
    pub expires: Option<Time>,
}

impl Terms {
    /// Number of these messages that are handed over, and their bytes.
    fn fit<'a>(&self, buffer: &SendBuffer, messages: impl IntoIterator<Item = &'a Bytes>) -> (usize, usize) {
        let sizes = messages.into_iter().map(Bytes::len).take_while(|size| *size <= self.bytes_max);
        buffer.fit(self.capacity, sizes)
    }
}

/// Source from which messages are handed over.
pub(in crate::connection) trait Queue {
    fn front(&mut self) -> Option<&[u8]>;
    fn take_front(&mut self) -> Option<Bytes>;

    /// Hands over those in front as they are, as many as fit, the last one whole, up to one that is
    /// too long. Says how many they were, and of how many bytes.
    fn hand_over(&mut self, buffer: &mut SendBuffer, terms: &Terms) -> (usize, usize);
}

impl Queue for VecDeque<Bytes> {
    fn front(&mut self) -> Option<&[u8]> {
        VecDeque::front(self).map(|message| &message[..])
    }

    fn take_front(&mut self) -> Option<Bytes> {
        self.pop_front()
    }

    fn hand_over(&mut self, buffer: &mut SendBuffer, terms: &Terms) -> (usize, usize) {
        let (count, bytes) = terms.fit(buffer, &*self);
        buffer.write_messages(self.drain(..count.min(self.len())), terms.expires);
        (count, bytes)
    }
}

impl Queue for Option<Bytes> {
    fn front(&mut self) -> Option<&[u8]> {
        self.as_deref()
    }

    fn take_front(&mut self) -> Option<Bytes> {
        self.take()
    }

    fn hand_over(&mut self, buffer: &mut SendBuffer, terms: &Terms) -> (usize, usize) {
        let (count, bytes) = terms.fit(buffer, &*self);
        buffer.write_messages(self.take_if(|_| count > 0).into_iter(), terms.expires);
        (count, bytes)
    }
}

impl Queue for MessageBatch {
    fn front(&mut self) -> Option<&[u8]> {
        self.front_row()?.iter().next()
    }

    fn take_front(&mut self) -> Option<Bytes> {
        self.pop_front()
    }

    fn hand_over(&mut self, buffer: &mut SendBuffer, terms: &Terms) -> (usize, usize) {
        let Terms { capacity, bytes_max, expires } = *terms;
        let (mut count, mut bytes) = (0, 0);
        while buffer.load_bytes() < capacity
            && let Some(message_bytes) = self.front_row().map(|row| row.message_bytes())
            && message_bytes <= bytes_max
        {
            let room = capacity.saturating_sub(buffer.held_bytes());
            // Of empty ones each counts for itself.
            let most = room.checked_div(message_bytes).map_or(1, |_| room.div_ceil(message_bytes));
            let Some(row) = self.split_first(most) else { break };
            let messages = row.len();
            count += messages;
            bytes += row.data_bytes();
            buffer.write_row(row.into_bytes(), messages as u32, expires);
        }
        (count, bytes)
    }
}

/// Sink for what is read.
pub trait ReadSink {
    /// One more. Says whether more is wanted.
    fn put(&mut self, read: Read) -> bool;

    /// Messages, of which as many are taken as are wanted. Says whether more is wanted.
    #[inline]
    fn put_row(&mut self, row: &mut MessageRow) -> bool {
        row.pop_each(|message| self.put(Read::Message(message)))
    }

    /// A message in the form in which it came. Says whether more is wanted.
    ///
    /// # Errors
    /// Says what is wrong with it.
    fn put_presented(&mut self, presented: Presented) -> Result<bool, String> {
        Ok(self.put(Read::Message(presented.open()?)))
    }
}

impl<F: FnMut(Read) -> bool> ReadSink for F {
    #[inline]
    fn put(&mut self, read: Read) -> bool {
        self(read)
    }
}

/// Reads messages into a batch, and whatever else comes elsewhere.
pub struct IntoBatch<'a, F> {
    batch: &'a mut MessageBatch,
    most: usize,
    other: F,
}

impl<'a, F: FnMut(Read) -> bool> IntoBatch<'a, F> {
    /// Up to `most` messages go into the batch, what is none to `other`, which says whether more is
    /// wanted.
    pub fn new(batch: &'a mut MessageBatch, most: usize, other: F) -> Self {
        IntoBatch { batch, most, other }
    }
}

impl<F: FnMut(Read) -> bool> ReadSink for IntoBatch<'_, F> {
    fn put(&mut self, read: Read) -> bool {
        match read {
            Read::Message(message) => self.put_row(&mut MessageRow::one(message, false)),
            other => (self.other)(other),
        }
    }

    fn put_row(&mut self, row: &mut MessageRow) -> bool {
        let taken = row.split_first(self.most);
        self.most -= taken.len();
        if !taken.is_empty() {
            self.batch.push_row(taken);
        }
        self.most > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(messages: &[&str]) -> MessageBatch {
        let mut batch = MessageBatch::new();
        messages.iter().for_each(|message| batch.push(message.as_bytes()));
        batch
    }

    fn terms(capacity: usize, bytes_max: usize) -> Terms {
        Terms { capacity, bytes_max, expires: None }
    }

    fn texts(batch: &MessageBatch) -> Vec<&str> {
        batch.iter().map(|message| core::str::from_utf8(message).expect("text")).collect()
    }

    #[test]
    fn messages_of_any_lengths_come_out_as_they_went_in() {
        let all = ["one", "two", "", "", "three", "", "four", "five", "six"];
        let mut batch = batch(&all);
        assert_eq!((batch.len(), batch.data_bytes()), (9, 22));
        assert_eq!(texts(&batch), all);
        for left in (0..9).rev() {
            assert_eq!(batch.pop_front().as_deref(), Some(all[8 - left].as_bytes()));
            assert_eq!((batch.len(), texts(&batch)), (left, all[9 - left..].to_vec()));
        }
        assert!(batch.pop_front().is_none() && batch.is_empty() && batch.data_bytes() == 0);
        batch.push(b"again");
        batch.clear();
        assert!(batch.iter().next().is_none() && batch.is_empty() && batch.pop_front().is_none());
    }

    #[test]
    fn rows_end_where_their_memory_would_be_held_for_long() {
        let sizes = |mut batch: MessageBatch| -> Vec<usize> {
            core::iter::from_fn(|| batch.split_first(usize::MAX)).map(|row| row.len()).collect()
        };
        let mut batch = MessageBatch::new();
        (0..400).for_each(|_| batch.push(&[7; 100]));
        batch.push(&[7; 3 * ROW_BYTES_MAX]);
        assert_eq!(sizes(batch), [163, 163, 74, 1]);
        let mut batch = MessageBatch::new();
        batch.push(b"before");
        batch.push_all(vec![7; 40_000].into(), 100).expect("400 messages");
        batch.push_all(vec![7; 6 * ROW_BYTES_MAX].into(), 3 * ROW_BYTES_MAX).expect("two messages");
        assert_eq!(sizes(batch), [1, 163, 163, 74, 1, 1]);
    }

    #[test]
    fn what_is_added_at_once_is_a_whole_number_of_messages_and_not_copied() {
        let mut batch = MessageBatch::new();
        let data = Bytes::from_static(b"onetwosix");
        batch.push_all(data.clone(), 3).expect("three");
        assert_eq!((batch.len(), batch.data_bytes(), texts(&batch)), (3, 9, vec!["one", "two", "six"]));
        assert_eq!(batch.pop_front().map(|first| first.as_ptr()), Some(data.as_ptr()));
        for message_bytes in [0, 2, 10, usize::MAX] {
            let uneven = batch.push_all(data.clone(), message_bytes).expect_err("no whole number");
            let text = format!("9 bytes are no whole number of messages of {message_bytes} bytes each");
            assert_eq!((uneven.to_string(), batch.len()), (text, 2));
        }
        assert_eq!((batch.push_all(Bytes::new(), 0), batch.len()), (Ok(()), 2));
    }

    #[test]
    fn as_many_are_handed_over_as_fit_the_last_one_whole() {
        for (capacity, count, bytes) in
            [(0, 0, 0), (1, 1, 10), (10, 1, 10), (11, 2, 20), (31, 4, 44), (1000, 6, 70)]
        {
            let mut batch = batch(&[
                "0123456789",
                "0123456789",
                "0123456789",
                "0123456789abcd",
                "0123456789abcd",
                "0123456789ab",
            ]);
            let mut buffer = SendBuffer::default();
            let handed = batch.hand_over(&mut buffer, &terms(capacity, 14));
            assert_eq!(
                (handed, buffer.held_bytes(), batch.len()),
                ((count, bytes), bytes, 6 - count),
                "{capacity}"
            );
        }
        // What is too large stays, with what is behind it.
        let mut mixed = batch(&["0123456789", "0123456789abcdef", "0"]);
        assert_eq!(mixed.hand_over(&mut SendBuffer::default(), &terms(1000, 15)), (1, 10));
        assert_eq!(texts(&mixed), ["0123456789abcdef", "0"]);
        // Empty ones are bounded, too.
        let mut empty = batch(&[""; 500]);
        let mut buffer = SendBuffer::default();
        let (count, bytes) = empty.hand_over(&mut buffer, &terms(600, 15));
        assert!(bytes == 0 && (40..60).contains(&count) && buffer.load_bytes() >= 600, "{count}");
    }

    #[test]
    fn no_more_is_read_than_is_wanted() {
        let row = || MessageRow::new("onetwosix".into(), Places::side_by_side(0, 3, 3));
        let (mut batch, mut others) = (MessageBatch::new(), Vec::new());
        let mut sink = IntoBatch::new(&mut batch, 5, |read| {
            others.push(read);
            false
        });
        let mut rest = row().expect("three");
        assert!(sink.put_row(&mut rest) && rest.is_empty());
        assert!(sink.put(Read::Message("alone".into())) && !sink.put(Read::End));
        let mut rest = row().expect("three");
        assert!(!sink.put_row(&mut rest));
        assert_eq!((rest.len(), texts(&batch)), (2, vec!["one", "two", "six", "alone", "one"]));
        assert_eq!(others, [Read::End]);
    }
}
