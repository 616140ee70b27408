//! The arithmetic of GF(256) once more, by its definition and without a table: what the library's
//! is judged by.

/// A product: of polynomials over GF(2), reduced by x^8 + x^4 + x^3 + x^2 + 1 (RFC 5510 section
/// 8.1).
pub(super) fn product(a: u8, b: u8) -> u8 {
    let mut product = (0..8).filter(|bit| b >> bit & 1 == 1).fold(0u16, |sum, bit| sum ^ u16::from(a) << bit);
    for bit in (8..15).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

/// The element by which `a` gives 1, found by trying all.
pub(super) fn inverse(a: u8) -> u8 {
    (1..=255).find(|b| product(a, *b) == 1).expect("every element but 0 has one")
}

/// Factor of source `source` in parity `parity`, as spec/functions/fec.md says it.
pub(super) fn coefficient(parity: u8, source: u8) -> u8 {
    product(64 ^ source, inverse((64 + parity) ^ source))
}

/// Solves equations over GF(256), a row for each: its coefficients, and the bytes that their sum
/// is. `None` if there is no single solution.
pub(super) fn solve(mut rows: Vec<(Vec<u8>, Vec<u8>)>) -> Option<Vec<Vec<u8>>> {
    let unknowns = rows.first().map_or(0, |(coefficients, _)| coefficients.len());
    for column in 0..unknowns {
        let pivot = (column..rows.len()).find(|row| rows[*row].0[column] != 0)?;
        rows.swap(column, pivot);
        let scale = inverse(rows[column].0[column]);
        let (coefficients, bytes) = &mut rows[column];
        coefficients.iter_mut().chain(bytes).for_each(|element| *element = product(*element, scale));
        let pivot = rows[column].clone();
        for (_, (coefficients, bytes)) in rows.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let factor = coefficients[column];
            coefficients.iter_mut().zip(&pivot.0).for_each(|(element, p)| *element ^= product(factor, *p));
            bytes.iter_mut().zip(&pivot.1).for_each(|(byte, p)| *byte ^= product(factor, *p));
        }
    }
    Some(rows.into_iter().take(unknowns).map(|(_, bytes)| bytes).collect())
}
