//! How wide text is, and how numbers are written.

/// Widths of printable ASCII in Helvetica, in thousandths of the size (Adobe's font metrics, which
/// Arial and Liberation Sans share). In other fonts text is a few hundredths wider or narrower.
/// Layouts leave room for that.
const WIDTHS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556,
    556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278,
    500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469,
    556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500,
    278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];

/// About how wide a text is at a size.
pub fn wide(text: &str, size: f64) -> f64 {
    let of = |c: char| (c as usize).checked_sub(32).and_then(|i| WIDTHS.get(i)).copied().unwrap_or(556);
    let thousandths: u64 = text.chars().map(|c| u64::from(of(c))).sum();
    thousandths as f64 / 1000.0 * size * 1.03
}

/// A number with this many decimals and a true minus sign.
pub fn plain(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(digits) if digits.chars().all(|c| c == '0' || c == '.') => digits.into(),
        Some(digits) => format!("−{digits}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_true_minus_and_no_negative_zero() {
        assert_eq!(plain(-1.25, 1), "−1.2");
        assert_eq!(plain(-0.001, 2), "0.00");
        assert_eq!(plain(63.0, 0), "63");
    }

    #[test]
    fn narrow_letters_are_narrow() {
        assert!(wide("iii", 12.0) < wide("mmm", 12.0) / 3.0);
        assert!((wide("0000", 10.0) - 22.9).abs() < 0.1);
        assert!(wide("µ−¹", 10.0) > 15.0);
    }
}
