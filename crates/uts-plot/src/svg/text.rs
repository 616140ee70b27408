//! Width of text, and the text of numbers.

/// Widths of printable ASCII in thousandths of the size: the larger of Helvetica's (Adobe's font
/// metrics, which Arial and Liberation Sans share) and DejaVu Sans', which is the widest that
/// stands in for it. So text that fits fits in either.
const PLAIN: [u16; 95] = [
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636,
    636, 636, 636, 636, 636, 337, 337, 838, 838, 838, 556, 1015, 684, 686, 722, 770, 667, 611, 778, 752, 295,
    500, 667, 557, 863, 748, 787, 667, 787, 722, 667, 611, 732, 684, 989, 685, 667, 685, 390, 337, 390, 838,
    556, 500, 613, 635, 550, 635, 615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521,
    392, 634, 592, 818, 592, 592, 525, 636, 337, 636, 838,
];

/// The same for bold text.
const BOLD: [u16; 95] = [
    348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365, 696, 696, 696, 696, 696,
    696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 611, 1000, 774, 762, 734, 830, 683, 683, 821, 837, 372,
    556, 775, 637, 995, 837, 850, 733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838,
    556, 500, 675, 716, 593, 716, 678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687, 716, 716, 493, 595,
    478, 712, 652, 924, 645, 652, 582, 712, 365, 712, 838,
];

/// Any other character, in bold as well: a minus sign, a multiplication sign or an arrow.
const OTHER: u16 = 838;

/// Width of a text at a size, at the most.
pub fn wide(text: &str, size: f64) -> f64 {
    sum(&PLAIN, text, size)
}

/// Width of a bold text at a size, at the most.
pub fn wide_bold(text: &str, size: f64) -> f64 {
    sum(&BOLD, text, size)
}

fn sum(widths: &[u16; 95], text: &str, size: f64) -> f64 {
    let of = |c: char| (c as usize).checked_sub(32).and_then(|i| widths.get(i)).copied().unwrap_or(OTHER);
    let thousandths: u64 = text.chars().map(|c| u64::from(of(c))).sum();
    thousandths as f64 / 1000.0 * size
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
        assert!((wide("0000", 10.0) - 25.4).abs() < 0.1);
        assert!(wide("µ−¹", 10.0) > 15.0);
    }

    /// As fontconfig's DejaVu Sans draws it (figures of its metrics, version 2.37).
    #[test]
    fn text_fits_in_the_widest_font_that_stands_in() {
        assert!(wide("acknowledgement: per-packet, delayed", 12.0) >= 238.5);
        assert!(wide_bold("acknowledgement", 12.0) > 1.1 * wide("acknowledgement", 12.0));
    }
}
