use super::*;
use crate::mechanism::Mechanism;
use proptest::prelude::*;

const NUMBER: u64 = 0x0123_4567_89ab;
const ASSOCIATED: &[u8] = b"\x40header";
const PLAIN: &[u8] = b"The quick brown fox jumps.";

fn secret() -> Secret {
    Secret::from_bytes(core::array::from_fn(|i| i as u8))
}

fn slot(mechanism: &'static Mechanism) -> Slot {
    Slot::build(&mechanism.choice(), &secret()).expect("default parameters")
}

/// Every mechanism that keeps secrets.
fn ciphers() -> impl Iterator<Item = (&'static str, Slot)> {
    MECHANISMS.iter().filter(|m| m.number != none::None::INFO.number).map(|m| (m.name, slot(m)))
}

fn sealed(slot: &Slot, number: u64, associated: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut packet = plain.to_vec();
    let mut tag = vec![0; slot.tag_bytes()];
    slot.seal(number, associated, &mut packet, &mut tag);
    packet.extend_from_slice(&tag);
    packet
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn numbers_are_the_places_in_the_list() {
    assert!(MECHANISMS.iter().enumerate().all(|(i, m)| usize::from(m.number) == i));
    assert_eq!(MECHANISMS.iter().filter(|m| !m.mandatory).map(|m| m.name).collect::<Vec<_>>(), ["none"]);
}

/// Computed apart from this code, with HMAC-SHA-256 from Python's standard library.
#[test]
fn known_secrets() {
    let bytes = secret().0;
    assert_eq!(hex(&secret().next().0), "f38f37e81a7a8cc4d40d7a1f9fe2e3e545ef19548c7cd898c4411445dc1fa219");
    assert_eq!(
        hex(&Secret::from_exporter(&bytes, Direction::ClientToServer).0),
        "48d5324a88b820ddba8d288ad7e2ff43517537bfae9ecd9db2482cf137626877"
    );
    assert_eq!(
        hex(&Secret::from_exporter(&bytes, Direction::ServerToClient).0),
        "388b711783658429493c45f94589238652bc557d8b24fa04b31ed89fd064df7c"
    );
    let expanded = |label, length: usize| {
        let mut out = vec![0; length];
        secret().expand_label(label, &mut out);
        hex(&out)
    };
    assert_eq!(expanded("uts key", 16), "e1c9ac7ae242576fd4e32e189169f5be");
    assert_eq!(expanded("uts iv", 12), "829620c6146ffd33bc9fe79f");
    assert_eq!(expanded("uts hp", 16), "b24aee04768c6a01d7a395c284d82db5");
    assert_eq!(expanded("uts key", 32), "8b2469399aa039585929ec5594f1bb02abf00fb4b57f902855a4e1f0d7122e46");
    assert_eq!(expanded("uts hp", 32), "d157d6159fd4f17f7c79f7d5d851e13e87e80026b338672f664b87bd96763614");
}

/// Computed apart from this code, with OpenSSL.
#[test]
fn known_packets() {
    let known = [
        (
            "aes-128-gcm",
            "44070ff3ad3dcb87d5b5b8022110019c306b09b120fff3a80c9192993a9dadd1ceb7abaa627bf7777444",
            "170e57b1ac",
        ),
        (
            "chacha20-poly1305",
            "dec460d07d2c46874b8d0ebf826d6a97d2e12fc8a2c9ac0681b288ced77ff887470c92671e40ef9843a1",
            "27de4223b9",
        ),
    ];
    let sample = core::array::from_fn(|i| 0xa0 + i as u8);
    let computed: Vec<_> = ciphers()
        .map(|(name, slot)| {
            (name, hex(&sealed(&slot, NUMBER, ASSOCIATED, PLAIN)), hex(&slot.header_mask(&sample)))
        })
        .collect();
    let known = known.map(|(name, packet, mask)| (name, packet.to_owned(), mask.to_owned()));
    assert_eq!(computed, known);
}

#[test]
fn limits_of_rfc_9001() {
    let limits: Vec<_> = ciphers().map(|(_, s)| (s.packets_max(), s.forgeries_max())).collect();
    assert_eq!(limits, [(1 << 23, 1 << 52), (1 << 62, 1 << 36)]);
}

#[test]
fn none_leaves_packets_as_they_are() {
    let slot = slot(&none::None::INFO);
    assert_eq!(sealed(&slot, NUMBER, ASSOCIATED, PLAIN), PLAIN);
    assert_eq!(slot.open(NUMBER, ASSOCIATED, &mut PLAIN.to_vec()), Ok(PLAIN.len()));
    assert_eq!((slot.tag_bytes(), slot.sample_bytes()), (0, 0));
    assert_eq!(slot.header_mask(&[0xff; SAMPLE_BYTES]), [0; MASK_BYTES]);
}

#[test]
fn damage_anywhere_is_found() {
    for (name, slot) in ciphers() {
        let packet = sealed(&slot, NUMBER, ASSOCIATED, PLAIN);
        assert_ne!(&packet[..PLAIN.len()], PLAIN, "{name}: encrypted");
        assert_eq!(slot.open(NUMBER, ASSOCIATED, &mut packet.clone()), Ok(PLAIN.len()), "{name}");
        for at in 0..packet.len() {
            let mut damaged = packet.clone();
            damaged[at] ^= 0x10;
            assert_eq!(slot.open(NUMBER, ASSOCIATED, &mut damaged), Err(Forged), "{name}: byte {at}");
        }
        for at in 0..ASSOCIATED.len() {
            let mut associated = ASSOCIATED.to_vec();
            associated[at] ^= 0x01;
            assert_eq!(
                slot.open(NUMBER, &associated, &mut packet.clone()),
                Err(Forged),
                "{name}: associated byte {at}"
            );
        }
        assert_eq!(slot.open(NUMBER + 1, ASSOCIATED, &mut packet.clone()), Err(Forged), "{name}: number");
        assert_eq!(
            slot.open(NUMBER ^ 1 << 61, ASSOCIATED, &mut packet.clone()),
            Err(Forged),
            "{name}: high bit"
        );
        for len in 0..packet.len() {
            assert_eq!(
                slot.open(NUMBER, ASSOCIATED, &mut packet[..len].to_vec()),
                Err(Forged),
                "{name}: {len} bytes"
            );
        }
    }
}

#[test]
fn another_epoch_or_direction_has_other_keys() {
    let base = secret();
    let others = [
        base.next(),
        Secret::from_exporter(&base.0, Direction::ClientToServer),
        Secret::from_exporter(&base.0, Direction::ServerToClient),
    ];
    for (mechanism, (name, slot)) in MECHANISMS.iter().skip(1).zip(ciphers()) {
        let packet = sealed(&slot, NUMBER, ASSOCIATED, PLAIN);
        for other in &others {
            let other = Slot::build(&mechanism.choice(), other).expect("default parameters");
            assert_eq!(other.open(NUMBER, ASSOCIATED, &mut packet.clone()), Err(Forged), "{name}");
            assert_ne!(other.header_mask(&[7; SAMPLE_BYTES]), slot.header_mask(&[7; SAMPLE_BYTES]), "{name}");
        }
    }
}

#[test]
fn secrets_are_not_printed() {
    let printed = format!("{:?} {:?}", secret(), ciphers().map(|(_, s)| s).collect::<Vec<_>>());
    // The bytes of the IV are the only key material that a derived Debug could reach.
    assert!(printed.starts_with("Secret(..)"));
    assert!(!printed.contains("130, 150, 32"), "{printed}");
}

proptest! {
    /// A sealed packet opens to what it was, at every size and number, with any associated data.
    #[test]
    fn sealed_packets_open(
        number in 0u64..1 << 62,
        associated in prop::collection::vec(any::<u8>(), 0..40),
        plain in prop::collection::vec(any::<u8>(), 0..1500),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        for mechanism in MECHANISMS {
            let slot = slot(mechanism);
            let mut packet = sealed(&slot, number, &associated, &plain);
            prop_assert_eq!(packet.len(), plain.len() + slot.tag_bytes());
            if slot.tag_bytes() > 0 {
                let mut damaged = packet.clone();
                damaged[at.index(packet.len())] ^= flip;
                prop_assert_eq!(slot.open(number, &associated, &mut damaged), Err(Forged));
            }
            let len = slot.open(number, &associated, &mut packet);
            prop_assert_eq!(len, Ok(plain.len()));
            prop_assert_eq!(&packet[..plain.len()], &plain[..]);
        }
    }
}
