//! Differences as RFC 1144, section 3.2.2, writes them: 1 to 255 in a byte; others in two behind a
//! zero.

/// Appends a difference.
pub(super) fn put(out: &mut Vec<u8>, delta: u16) {
    match u8::try_from(delta) {
        Ok(short) if short != 0 => out.push(short),
        _ => {
            out.push(0);
            out.extend(delta.to_be_bytes());
        }
    }
}

/// Takes a difference off the front; `None` if it is cut off, or longer than need be.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u16> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    if *first != 0 {
        return Some(u16::from(*first));
    }
    let (long, rest) = bytes.split_first_chunk::<2>()?;
    *bytes = rest;
    let delta = u16::from_be_bytes(*long);
    (delta == 0 || delta > u16::from(u8::MAX)).then_some(delta)
}

/// Takes a byte off the front.
pub(super) fn take_u8(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

/// Takes two bytes off the front, the higher first.
pub(super) fn take_u16(bytes: &mut &[u8]) -> Option<u16> {
    let (both, rest) = bytes.split_first_chunk::<2>()?;
    *bytes = rest;
    Some(u16::from_be_bytes(*both))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_comes_back_and_small_ones_take_a_byte() {
        for delta in 0..=u16::MAX {
            let mut bytes = Vec::new();
            put(&mut bytes, delta);
            assert_eq!(bytes.len(), if (1..256).contains(&delta) { 1 } else { 3 });
            assert_eq!(take(&mut &bytes[..]), Some(delta));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None, "cut off");
        }
        assert_eq!(take(&mut &[0, 0, 9][..]), None, "longer than need be");
    }
}
