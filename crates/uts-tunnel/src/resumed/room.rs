//! Room for one direction of a stream. It begins small, grows while it is full, and is given back
//! when nothing is held. Where somebody pays for it, it grows as far as the payer may go.

use super::wire::DATA_BYTES_MAX;
use uts_ledger::{Charge, Payer, Refused, Resource};

/// Room that a direction has at the least, in bytes. Chosen: what a stream of this program holds
/// that is carried by its flow alone.
pub const LEAST_BYTES: usize = 8 << 10;

/// See the head of this file.
pub struct Room {
    bytes: usize,
    least: usize,
    most: usize,
    /// Payer, if there is one, and bytes that are paid for each byte of room.
    payer: Option<(Payer, usize)>,
    held: Vec<Charge>,
}

impl Room {
    /// Room for so many bytes from the begin, for which nobody pays.
    pub fn whole(bytes: usize) -> Room {
        Room { bytes, least: bytes, most: bytes, payer: None, held: Vec::new() }
    }

    /// Room for up to `most` bytes, for each of which `copies` are paid.
    ///
    /// # Errors
    /// There is not even the least.
    pub fn paid(payer: &Payer, most: usize, copies: usize) -> Result<Room, Refused> {
        let least = LEAST_BYTES.min(most);
        let held = vec![payer.charge(Resource::Memory, least * copies)?];
        Ok(Room { bytes: least, least, most, payer: Some((payer.clone(), copies)), held })
    }

    /// Bytes that there is room for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows to twice as much, as far as that is to be had. True if it has grown.
    pub fn grow(&mut self) -> bool {
        let Some((payer, copies)) = &self.payer else { return false };
        let more = self.bytes.min(self.most - self.bytes);
        if more == 0 {
            return false;
        }
        // As much as a frame has is worth it.
        let least = more.min(DATA_BYTES_MAX) * copies;
        let Ok(charge) = payer.charge_up_to(Resource::Memory, least, more * copies) else { return false };
        self.bytes += charge.amount() / copies;
        self.held.push(charge);
        true
    }

    /// Gives back all but the least: nothing is held.
    pub fn shrink(&mut self) {
        self.held.truncate(1);
        self.bytes = self.least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uts_ledger::Ledger;

    #[test]
    fn room_grows_as_far_as_its_payer_may_go_and_is_given_back() {
        let ledger = Ledger::of(Resource::Memory, 100 << 10, false);
        let held = || ledger.rows().iter().map(|row| row.held).sum::<usize>();
        let payer = ledger.payer("a");
        let mut room = Room::paid(&payer, 1 << 20, 2).expect("room");
        assert_eq!((room.bytes(), held()), (LEAST_BYTES, 2 * LEAST_BYTES));
        while room.grow() {
            assert_eq!(held(), 2 * room.bytes());
        }
        assert!(room.bytes() >= 32 << 10 && held() <= 100 << 10, "{}", room.bytes());
        room.shrink();
        assert_eq!((room.bytes(), held()), (LEAST_BYTES, 2 * LEAST_BYTES));
        drop(room);
        assert_eq!(held(), 0);
        let mut room = Room::paid(&payer, 20 << 10, 1).expect("room");
        assert!(room.grow() && room.grow() && !room.grow());
        assert_eq!(room.bytes(), 20 << 10);
        let mut whole = Room::whole(10);
        whole.shrink();
        assert!(!whole.grow() && whole.bytes() == 10);
    }
}
