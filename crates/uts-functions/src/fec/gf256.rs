//! Arithmetic in the field of 256 elements, modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d) with generator
//! 2: the field of RFC 5510 section 8.1 (fec.md R-14).

/// The product of two elements.
pub(super) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
}

/// The inverse of an element; 0 for 0, which has none.
pub(super) fn inverse(a: u8) -> u8 {
    if a == 0 { 0 } else { EXP[255 - usize::from(LOG[usize::from(a)])] }
}

/// Adds `bytes`, times the coefficient of each row, to the rows from `offset` on. Rows reach to the
/// end of `bytes`.
///
/// A product is the sum of the doublings of `bytes` that the coefficient's bits name. The doublings
/// are made once for all rows, tile by tile, in operations that compilers turn into vector
/// instructions; tables could not be.
pub(super) fn accumulate(coefficients: &[u8], offset: usize, bytes: &[u8], rows: &mut [Vec<u8>]) {
    // Doublings that no coefficient names are not made: none at all for sums, which repair of a
    // single loss needs.
    let bits = 8 - coefficients.iter().fold(0, |all, c| all | c).leading_zeros() as usize;
    for (tile, chunk) in bytes.chunks(TILE_BYTES).enumerate() {
        let at = offset + tile * TILE_BYTES;
        let mut doublings = [[0; TILE_BYTES]; 8];
        doublings[0][..chunk.len()].copy_from_slice(chunk);
        for bit in 1..bits {
            doublings[bit] = double(&doublings[bit - 1]);
        }
        for (coefficient, row) in coefficients.iter().zip(rows.iter_mut()) {
            let mut product = [0; TILE_BYTES];
            for (bit, doubling) in doublings.iter().take(bits).enumerate() {
                if coefficient >> bit & 1 == 1 {
                    for (p, d) in product.iter_mut().zip(doubling) {
                        *p ^= d;
                    }
                }
            }
            for (r, p) in row[at..at + chunk.len()].iter_mut().zip(&product) {
                *r ^= p;
            }
        }
    }
}

/// Twice each element.
fn double(elements: &[u8; TILE_BYTES]) -> [u8; TILE_BYTES] {
    let mut doubled = [0; TILE_BYTES];
    for (d, e) in doubled.iter_mut().zip(elements) {
        // All ones if the top bit is set.
        let overflow = ((*e as i8) >> 7) as u8;
        *d = (e << 1) ^ (overflow & POLYNOMIAL);
    }
    doubled
}

/// Inverts a square matrix, given by rows; `None` if it has no inverse.
pub(super) fn invert(mut matrix: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = matrix.len();
    let mut inverted: Vec<Vec<u8>> =
        (0..size).map(|i| (0..size).map(|j| u8::from(i == j)).collect()).collect();
    for column in 0..size {
        let pivot = (column..size).find(|row| matrix[*row][column] != 0)?;
        matrix.swap(column, pivot);
        inverted.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        for side in [&mut matrix, &mut inverted] {
            for element in &mut side[column] {
                *element = multiply(*element, scale);
            }
        }
        for row in (0..size).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for side in [&mut matrix, &mut inverted] {
                let pivot = side[column].clone();
                for (element, p) in side[row].iter_mut().zip(&pivot) {
                    *element ^= multiply(factor, *p);
                }
            }
        }
    }
    Some(inverted)
}

/// x^8 modulo the field's polynomial.
const POLYNOMIAL: u8 = 0x1d;

/// Eight doublings of a tile stay in the first-level cache, and one row of it in registers.
const TILE_BYTES: usize = 64;

/// Powers of the generator, twice over so that sums of two logarithms need no reduction.
const EXP: [u8; 512] = {
    let mut table = [0; 512];
    let mut value = 1u8;
    let mut i = 0;
    while i < 512 {
        table[i] = value;
        let overflow = value >> 7;
        value = (value << 1) ^ (overflow * POLYNOMIAL);
        i += 1;
    }
    table
};

/// Logarithms; that of 0 is never used.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fec::testing::product;
    use proptest::prelude::*;

    #[test]
    fn products_are_those_of_the_definition() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                assert_eq!(multiply(a, b), product(a, b), "{a} * {b}");
            }
            assert_eq!(multiply(a, inverse(a)), u8::from(a != 0), "{a}");
        }
        // The generator, whose powers RFC 5510 section 8.1 names the elements by: x^8 = x^4 + x^3 +
        // x^2 + 1.
        assert_eq!((EXP[0], EXP[7], EXP[8], EXP[255]), (1, 0x80, 0x1d, 1));
    }

    #[test]
    fn a_singular_matrix_has_no_inverse() {
        assert_eq!(invert(vec![vec![1, 2], vec![1, 2]]), None);
        assert_eq!(invert(vec![vec![0]]), None);
    }

    proptest! {
        #[test]
        fn rows_agree_with_the_definition(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            coefficients in prop::collection::vec(any::<u8>(), 1..6),
            offset in 0usize..5,
        ) {
            let mut rows: Vec<Vec<u8>> =
                coefficients.iter().map(|c| (0..bytes.len() + offset).map(|i| c ^ i as u8).collect()).collect();
            let mut expected = rows.clone();
            accumulate(&coefficients, offset, &bytes, &mut rows);
            for (c, row) in coefficients.iter().zip(&mut expected) {
                row[offset..].iter_mut().zip(&bytes).for_each(|(r, byte)| *r ^= product(*c, *byte));
            }
            prop_assert_eq!(rows, expected);
        }

        #[test]
        fn a_matrix_times_its_inverse_is_one(elements in prop::collection::vec(any::<u8>(), 25)) {
            let matrix: Vec<Vec<u8>> = elements.chunks(5).map(<[u8]>::to_vec).collect();
            if let Some(inverted) = invert(matrix.clone()) {
                for (i, row) in matrix.iter().enumerate() {
                    for j in 0..5 {
                        let sum = row.iter().zip(&inverted).fold(0, |s, (a, b)| s ^ multiply(*a, b[j]));
                        prop_assert_eq!(sum, u8::from(i == j));
                    }
                }
            }
        }
    }
}
