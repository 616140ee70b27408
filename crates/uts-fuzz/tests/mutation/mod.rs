//! Mutations of inputs.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// One to four damages.
pub fn mutate(rng: &mut ChaCha8Rng, data: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..=data.len());
        match rng.random_range(0..6) {
            0 => data.truncate(at),
            1 => data.insert(at, rng.random()),
            2 if at < data.len() => drop(data.remove(at)),
            3 if at < data.len() => {
                let piece = data[at..(at + rng.random_range(1..32)).min(data.len())].to_vec();
                data.splice(at..at, piece);
            }
            4 if at < data.len() => data[at] = [0, 1, 0x3f, 0x40, 0x7f, 0x80, 0xff][rng.random_range(0..7)],
            _ if at < data.len() => data[at] ^= 1 << rng.random_range(0..8),
            _ => {}
        }
    }
}
