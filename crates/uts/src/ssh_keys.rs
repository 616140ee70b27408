//! Keys of OpenSSH, as `ssh-keygen` writes them: of Ed25519 alone, which are keys of UTS as well
//! (RFC 4253 section 6.6, RFC 8709, PROTOCOL.key of OpenSSH).

use crate::fingerprint::Fingerprint;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use zeroize::Zeroizing;

/// The kind of key.
const KIND: &str = "ssh-ed25519";

/// The beginning of a SubjectPublicKeyInfo, and of a PKCS #8, of Ed25519 (RFC 8410). The key
/// follows.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Bytes of a key of either kind.
const KEY_BYTES: usize = 32;

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";

/// The fingerprint of a key as ssh shows it (`ssh-keygen -l`): over the form that ssh gives to
/// keys. `None` if it is a key of another kind than Ed25519. `spki` is DER.
pub(crate) fn fingerprint(spki: &[u8]) -> Option<Fingerprint> {
    let key = spki.strip_prefix(&SPKI).filter(|key| key.len() == KEY_BYTES)?;
    let text = |text: &[u8]| [&(text.len() as u32).to_be_bytes(), text].concat();
    Some(Fingerprint::of_spki(&[text(KIND.as_bytes()), text(key)].concat()))
}

/// A public key of ssh, as in a line of a `.pub` file or of ssh's file of authorized keys.
///
/// ```
/// use uts::SshPublicKey;
///
/// assert!(SshPublicKey::read("# a comment").is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SshPublicKey {
    /// The fingerprint by which peers of UTS know the key.
    pub fingerprint: Fingerprint,
    /// The fingerprint that ssh shows.
    pub ssh_fingerprint: Fingerprint,
}

impl SshPublicKey {
    /// Reads a line. `None` if it is no such line.
    ///
    /// # Errors
    /// It is one of another kind, or damaged, in words.
    pub fn read(line: &str) -> Option<Result<SshPublicKey, String>> {
        Some(spki(line)?.and_then(|(spki, _)| {
            let ssh_fingerprint = fingerprint(&spki).ok_or("it is no key of Ed25519")?;
            Ok(SshPublicKey { fingerprint: Fingerprint::of_spki(&spki), ssh_fingerprint })
        }))
    }
}

/// Reads a line as in a `.pub` file, or in ssh's file of authorized keys: the key's fingerprint,
/// and what the line says about it. `None` if it is no such line.
pub(crate) fn public(line: &str) -> Option<Result<(Fingerprint, &str), String>> {
    Some(spki(line)?.map(|(spki, name)| (Fingerprint::of_spki(&spki), name)))
}

/// The same, with the key as DER of its SubjectPublicKeyInfo.
fn spki(line: &str) -> Option<Result<(Vec<u8>, &str), String>> {
    let is_kind = |word: &&str| ["ssh-", "ecdsa-sha2-", "sk-"].iter().any(|kind| word.starts_with(kind));
    let kind = line.split_whitespace().find(is_kind)?;
    let Some(rest) = line.strip_prefix(kind) else {
        return Some(Err(format!("what stands before `{kind}` has no meaning here; begin the line with it")));
    };
    if kind != KIND {
        let why = format!("a key of the kind {kind}; only {KIND} is known here (ssh-keygen -t ed25519)");
        return Some(Err(why));
    }
    let rest = rest.trim_start();
    let (blob, name) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Some(match STANDARD.decode(blob).ok().as_deref().and_then(public_key) {
        Some(key) => Ok(([&SPKI[..], &key].concat(), name.trim())),
        None => Err(format!("what follows {KIND} is no such key")),
    })
}

fn public_key(mut blob: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let kind = text(&mut blob)?;
    let key = text(&mut blob)?;
    (kind == KIND.as_bytes() && blob.is_empty()).then(|| key.try_into().ok()).flatten()
}

/// Reads a file as `~/.ssh/id_ed25519`. `None` if it is none.
pub(crate) fn private(file: &str) -> Option<Result<PrivateKeyDer<'static>, String>> {
    let (_, rest) = file.split_once(BEGIN)?;
    let read = || {
        let (body, _) = rest.split_once(END).ok_or("its end is missing")?;
        let body: Zeroizing<String> = Zeroizing::new(body.split_whitespace().collect());
        let bytes = STANDARD.decode(body.as_bytes()).map_err(|_| "it is not base64")?;
        let bytes = Zeroizing::new(bytes);
        let seed = seed(&bytes)?;
        Ok(PrivateKeyDer::from(PrivatePkcs8KeyDer::from([&PKCS8[..], seed].concat())))
    };
    Some(read().map_err(|why: &str| why.to_owned()))
}

/// The secret of a key that is not encrypted.
fn seed(file: &[u8]) -> Result<&[u8], &'static str> {
    const CUT: &str = "it is cut short, or damaged";
    let mut rest = file.strip_prefix(MAGIC).ok_or("it is of another version")?;
    let cipher = text(&mut rest).ok_or(CUT)?;
    if cipher != b"none" {
        return Err(
            "it is encrypted; `uts keygen` makes a key of its own, or take the passphrase off a copy \
                    (ssh-keygen -p -N '' -f COPY)",
        );
    }
    let _derivation = text(&mut rest).ok_or(CUT)?;
    let _its_options = text(&mut rest).ok_or(CUT)?;
    if number(&mut rest).ok_or(CUT)? != 1 {
        return Err("it holds several keys");
    }
    let _public = text(&mut rest).ok_or(CUT)?;
    let mut private = text(&mut rest).ok_or(CUT)?;
    let checks = [number(&mut private).ok_or(CUT)?, number(&mut private).ok_or(CUT)?];
    if checks[0] != checks[1] {
        return Err(CUT);
    }
    if text(&mut private).ok_or(CUT)? != KIND.as_bytes() {
        return Err("it is no key of Ed25519 (ssh-keygen -t ed25519)");
    }
    let _public = text(&mut private).ok_or(CUT)?;
    text(&mut private).filter(|pair| pair.len() == 2 * KEY_BYTES).map(|pair| &pair[..KEY_BYTES]).ok_or(CUT)
}

fn number(from: &mut &[u8]) -> Option<u32> {
    let (number, rest) = from.split_first_chunk::<4>()?;
    *from = rest;
    Some(u32::from_be_bytes(*number))
}

fn text<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = usize::try_from(number(from)?).ok()?;
    let (text, rest) = from.split_at_checked(bytes)?;
    *from = rest;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AuthorizedKeys, Identity};
    use std::process::Command;

    /// A pair of keys of OpenSSH; `None` without `ssh-keygen`, which was told.
    fn made(dir: &std::path::Path, kind: &str, phrase: &str) -> Option<(std::path::PathBuf, String)> {
        let file = dir.join(format!("id_{kind}{}", phrase.len()));
        let args = ["-q", "-t", kind, "-C", "me here", "-N", phrase, "-f"];
        let made = Command::new("ssh-keygen").args(args).arg(&file).status();
        let Ok(true) = made.map(|status| status.success()) else {
            println!("skipped: no ssh-keygen (Debian: apt install openssh-client)");
            return None;
        };
        let public = std::fs::read_to_string(file.with_extension("pub")).expect("written");
        Some((file, public))
    }

    #[test]
    fn a_pair_of_ssh_is_one_key_and_others_are_refused_by_name() {
        let dir = tempfile::tempdir().expect("a folder");
        let Some((file, line)) = made(dir.path(), "ed25519", "") else { return };
        let key = Identity::load(&file).expect("a key").fingerprint();
        let keys = dir.path().join("keys");
        std::fs::write(&keys, format!("# ours\n{line}")).expect("written");
        let keys = AuthorizedKeys::load(&keys).expect("keys");
        assert!(keys.len() == 1 && keys.contains(&key));
        assert_eq!(keys.name(&key), Some("me here"));
        let shown = Command::new("ssh-keygen").args(["-l", "-E", "sha256", "-f"]).arg(&file).output();
        let shown = String::from_utf8(shown.expect("started before").stdout).expect("text");
        let shown: Fingerprint = shown.split(' ').nth(1).expect("a fingerprint").parse().expect("one");
        assert_eq!(Identity::load(&file).expect("a key").ssh_fingerprint(), Some(shown));
        let read = SshPublicKey::read(&line).expect("of ssh").expect("a key");
        assert_eq!((read.fingerprint, read.ssh_fingerprint), (key, shown));
        assert_ne!(key, shown);
        let (locked, _) = made(dir.path(), "ed25519", "a phrase").expect("made before");
        assert!(Identity::load(&locked).expect_err("locked").to_string().contains("encrypted"));
        let (other, rsa) = made(dir.path(), "ecdsa", "").expect("made before");
        assert!(Identity::load(&other).expect_err("another").to_string().contains("Ed25519"));
        let why = |line: &str| public(line).expect("of ssh").expect_err("refused");
        assert!(why(rsa.trim()).contains("ecdsa-sha2-nistp256"));
        assert!(why(&format!("from=\"10.0.0.1\" {line}")).contains("before `ssh-ed25519`"));
        assert!(why("ssh-ed25519 AAAA me").contains("no such key"));
        assert!(public("SHA256:abc me").is_none());
    }

    #[test]
    fn what_is_cut_anywhere_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let Some((file, _)) = made(dir.path(), "ed25519", "") else { return };
        let whole = std::fs::read_to_string(file).expect("written");
        let body: String = whole.lines().filter(|line| !line.starts_with("---")).collect();
        let bytes = STANDARD.decode(body).expect("base64");
        assert!(seed(&bytes).is_ok());
        // Behind the key is its comment.
        let end = bytes.len() - 24;
        assert!((0..end).all(|cut| seed(&bytes[..cut]).is_err()));
        let before = |cut: usize| private(&whole[..cut]).is_none_or(|read| read.is_err());
        assert!((0..whole.len() - END.len() - 1).all(before));
    }
}
