//! An extended Hamming code over the whole packet: one wrong bit is put right, two are found
//! (Hamming, "Error Detecting and Error Correcting Codes", 1950). For lines whose errors are single
//! bits, and for packets that nothing seals: behind a cipher no error is single.

use super::{Detection, Verdict};
use crate::function::Function;
use crate::mechanism::{Consent, Facts, Mechanism, Params, Unasked};

const TRAILER_BYTES: usize = 4;

/// Places of covered bits begin here: two bits that an error among the check bits does not have, so
/// that it is told apart.
const PLACES_FROM: u32 = 0x0030_0000;
/// Bits of a place.
const PLACE_MASK: u32 = 0x003f_ffff;
/// Parity of all bits, check bits included.
const PARITY: u32 = 0x8000_0000;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct Hamming;

impl Hamming {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 9,
        name: "hamming",
        what: "one wrong bit is put right, two are found",
        mandatory: false,
        consent: Consent::OfBoth,
        params: &[],
        needs: &[],
        // Three wrong bits may be taken for one: it promises nothing.
        facts: Facts { uniform: true, unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |_, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            prediction.cpu_ns += 2.0 * facts.mtu_bytes as f64;
        },
    };

    /// Builds it.
    pub fn build(_: &Params, (): ()) -> Self {
        Hamming
    }
}

impl Detection for Hamming {
    fn trailer_bytes(&self) -> usize {
        TRAILER_BYTES
    }

    fn append(&self, covered: &[u8], trailer: &mut [u8]) {
        trailer.copy_from_slice(&check_bits(covered).to_be_bytes());
    }

    fn check(&self, covered: &mut [u8], trailer: &[u8]) -> Verdict {
        let Ok(sent) = trailer.try_into().map(u32::from_be_bytes) else { return Verdict::Wrong };
        let difference = check_bits(covered) ^ sent;
        if difference == 0 {
            return Verdict::Right;
        }
        let place = difference & PLACE_MASK;
        // detection.md R-14: an odd number of bits is wrong, one most likely. Each check bit but
        // the parity counts twice: as itself and in the parity that was sent.
        let is_odd = (difference & PARITY != 0) ^ (place.count_ones() % 2 == 1);
        // An error among the check bits looks like a number completed to another: both are refused.
        if !is_odd || difference & !(PLACE_MASK | PARITY) != 0 {
            return Verdict::Wrong;
        }
        let bit = (place ^ PLACES_FROM) as usize;
        match covered.get_mut(bit / 8) {
            Some(byte) if place & PLACES_FROM == PLACES_FROM => {
                *byte ^= 1 << (bit % 8);
                Verdict::Repaired { at: bit / 8 }
            }
            _ => Verdict::Wrong,
        }
    }
}

/// The exclusive or of the places of all bits that are set, and the parity of these and of that
/// (detection.md R-13).
fn check_bits(bytes: &[u8]) -> u32 {
    let (mut places, mut columns) = (0_u32, 0_u8);
    for (index, byte) in (0_u32..).zip(bytes) {
        columns ^= byte;
        if byte.count_ones() % 2 == 1 {
            places ^= index << 3;
        }
    }
    // Of a bit's place within its byte, three bits; a column that is odd counts once.
    for column in (0..8).filter(|column| columns & (1 << column) != 0) {
        places ^= PLACES_FROM ^ column;
    }
    let is_odd = (columns.count_ones() + places.count_ones()) % 2 == 1;
    places | if is_odd { PARITY } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Vec<u8> {
        (0..300_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    #[test]
    fn each_single_bit_is_put_right() {
        let sent = packet();
        let trailer = check_bits(&sent).to_be_bytes();
        for bit in 0..sent.len() * 8 {
            let mut got = sent.clone();
            got[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Hamming.check(&mut got, &trailer), Verdict::Repaired { at: bit / 8 }, "bit {bit}");
            assert_eq!(got, sent, "bit {bit}");
        }
        for bit in (0..22).chain([31]) {
            let trailer = (check_bits(&sent) ^ (1 << bit)).to_be_bytes();
            let mut got = sent.clone();
            assert_eq!(Hamming.check(&mut got, &trailer), Verdict::Wrong, "check bit {bit}");
        }
    }

    #[test]
    fn any_two_bits_are_found() {
        let sent = packet();
        let trailer = check_bits(&sent);
        let bits = sent.len() * 8;
        for first in (0..bits).step_by(7) {
            for second in (first + 1..bits).step_by(113) {
                let mut got = sent.clone();
                got[first / 8] ^= 1 << (first % 8);
                got[second / 8] ^= 1 << (second % 8);
                let verdict = Hamming.check(&mut got, &trailer.to_be_bytes());
                assert_eq!(verdict, Verdict::Wrong, "{first} and {second}");
            }
            for second in (0..22).chain([31]) {
                let mut got = sent.clone();
                got[first / 8] ^= 1 << (first % 8);
                let trailer = (trailer ^ (1 << second)).to_be_bytes();
                assert_eq!(Hamming.check(&mut got, &trailer), Verdict::Wrong, "{first}, check bit {second}");
            }
        }
    }

    /// By hand: the lowest bit of the first byte, and the second bit of the second.
    #[test]
    fn places_by_hand() {
        assert_eq!(check_bits(&[]), 0);
        assert_eq!(check_bits(&[1]), PLACES_FROM | PARITY);
        assert_eq!(check_bits(&[0, 2]), (PLACES_FROM ^ 9) | PARITY);
        assert_eq!(check_bits(&[1, 2]), 9);
    }
}
