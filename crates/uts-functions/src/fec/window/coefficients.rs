//! Coefficients of a repair from its key, as in RFC 8681 section 3.5 with the greatest density
//! (`DT` = 15): none is zero.

/// The generator TinyMT32 of RFC 8682, which makes the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct TinyMt32 {
    state: [u32; 4],
}

/// The parameters that RFC 8682 section 2.1 fixes.
const MATRIX: [u32; 2] = [0x8f70_11ee, 0xfc78_ff1f];
const TEMPERING: u32 = 0x3793_fdff;

impl TinyMt32 {
    /// From a seed (RFC 8682 section 2.1: `tinymt32_init`).
    pub fn new(seed: u32) -> Self {
        let mut state = [seed, MATRIX[0], MATRIX[1], TEMPERING];
        for i in 1..8 {
            let before = state[(i - 1) & 3];
            state[i & 3] ^= 1_812_433_253_u32.wrapping_mul(before ^ (before >> 30)).wrapping_add(i as u32);
        }
        let mut generator = TinyMt32 { state };
        (0..8).for_each(|_| generator.step());
        generator
    }

    /// The next number (`tinymt32_generate_uint32`).
    pub fn next_number(&mut self) -> u32 {
        self.step();
        let [first, _, third, fourth] = self.state;
        let sum = first.wrapping_add(third >> 8);
        fourth ^ sum ^ ((sum & 1).wrapping_neg() & TEMPERING)
    }

    fn step(&mut self) {
        let [first, second, third, fourth] = self.state;
        let mut x = (first & 0x7fff_ffff) ^ second ^ third;
        x ^= x << 1;
        let y = fourth ^ (fourth >> 1) ^ x;
        let odd = (y & 1).wrapping_neg();
        self.state = [second, third ^ (odd & MATRIX[0]), x ^ (y << 10) ^ (odd & MATRIX[1]), y];
    }
}

/// The coefficients of a repair with that key, in the order of its sources (fec.md R-17).
pub(in crate::fec) fn coefficients(key: u16) -> impl Iterator<Item = u8> {
    let mut generator = TinyMt32::new(u32::from(key));
    core::iter::repeat_with(move || generator.next_number() as u8).filter(|coefficient| *coefficient != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers from seed 1, which RFC 8682 section 2.2 gives for the check of
    /// implementations.
    #[test]
    fn numbers_are_those_of_the_rfc() {
        let mut generator = TinyMt32::new(1);
        let numbers: Vec<u32> = (0..5).map(|_| generator.next_number()).collect();
        assert_eq!(numbers, [2_545_341_989, 981_918_433, 3_715_302_833, 2_387_538_352, 3_591_001_365]);
    }

    #[test]
    fn coefficients_are_never_zero_and_differ_by_key() {
        let of = |key| coefficients(key).take(64).collect::<Vec<u8>>();
        assert!((0..200).all(|key| of(key).iter().all(|c| *c != 0)));
        assert!((0..200).all(|key| of(key) != of(key + 1)));
    }
}
