//! What a network interface does for its host, by the names that Linux has for it (`ethtool -k`).

use anyhow::{Context, Result, ensure};
use nix::libc;
use socket2::{Domain, Socket, Type};
use std::os::fd::AsRawFd;

/// Names and states of an interface's features: what linux/ethtool.h calls `ETH_SS_FEATURES`.
const FEATURES: u32 = 4;

/// Longest name, with the zero behind it.
const NAME_BYTES: usize = 32;

/// Features that share a word of bits.
const BITS: usize = 32;

/// Words before the features in a request.
const HEAD: usize = 2;

/// Words of a block of features that is read: those that can be changed, wanted, active, and fixed.
const READ_WORDS: usize = 4;

/// Words of a block of features that is written: those that are meant, and their states.
const WRITE_WORDS: usize = 2;

/// A command of `SIOCETHTOOL`.
#[derive(Clone, Copy)]
enum Command {
    Names = 0x1b,
    CountNames = 0x37,
    Read = 0x3a,
    Write = 0x3b,
}

/// An interface in the network namespace of the thread that names it.
pub struct Interface {
    socket: Socket,
    name: String,
    features: Vec<String>,
}

impl Interface {
    /// The one of that name.
    pub fn named(name: &str) -> Result<Self> {
        ensure!(name.len() < libc::IFNAMSIZ, "`{name}` is too long for an interface");
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).context("socket")?;
        let mut interface = Interface { socket, name: name.to_owned(), features: Vec::new() };
        let count = interface.count_features().with_context(|| format!("features of {name}"))?;
        let mut words = vec![0; 1 + HEAD + count * NAME_BYTES / size_of::<u32>()];
        (words[1], words[2]) = (FEATURES, count as u32);
        interface.call(Command::Names, &mut words)?;
        let bytes: Vec<u8> = words[1 + HEAD..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        interface.features = bytes
            .chunks(NAME_BYTES)
            .map(|name| name.split(|byte| *byte == 0).next().unwrap_or_default())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        Ok(interface)
    }

    /// Turns features on or off.
    ///
    /// # Errors
    /// The first that the interface lacks, or that does not change.
    pub fn set(&self, wanted: &[(&str, bool)]) -> Result<()> {
        let mut words = vec![0; HEAD + self.blocks() * WRITE_WORDS];
        words[1] = self.blocks() as u32;
        for &(feature, on) in wanted {
            let (block, bit) = self.place(feature)?;
            let at = HEAD + block * WRITE_WORDS;
            words[at] |= bit;
            words[at + 1] |= if on { bit } else { 0 };
        }
        // Whether the kernel has done all of it is read from the features themselves.
        self.call(Command::Write, &mut words)?;
        for &(feature, on) in wanted {
            let state = if on { "on" } else { "off" };
            ensure!(self.has(feature)? == on, "{} cannot have {feature} {state}", self.name);
        }
        Ok(())
    }

    /// Whether a feature is on.
    pub fn has(&self, feature: &str) -> Result<bool> {
        let (block, bit) = self.place(feature)?;
        let mut words = vec![0; HEAD + self.blocks() * READ_WORDS];
        words[1] = self.blocks() as u32;
        self.call(Command::Read, &mut words)?;
        Ok(words[HEAD + block * READ_WORDS + 2] & bit != 0)
    }

    fn blocks(&self) -> usize {
        self.features.len().div_ceil(BITS)
    }

    /// A feature's block, and its bit there.
    fn place(&self, feature: &str) -> Result<(usize, u32)> {
        let index = self.features.iter().position(|name| name == feature);
        let index = index.with_context(|| format!("{} has no feature `{feature}`", self.name))?;
        Ok((index / BITS, 1 << (index % BITS)))
    }

    fn count_features(&self) -> Result<usize> {
        // The command, nothing, the sets that are meant (64 bits), and the length of the only one.
        let mut words = [0; 5];
        let mask = (1u64 << FEATURES).to_ne_bytes();
        for (word, bytes) in words[2..4].iter_mut().zip(mask.chunks(size_of::<u32>())) {
            *word = u32::from_ne_bytes(bytes.try_into()?);
        }
        self.call(Command::CountNames, &mut words)?;
        ensure!(words[2..4] != [0; 2], "the kernel tells none");
        Ok(words[4] as usize)
    }

    /// Hands a request to the kernel, which answers in its place.
    fn call(&self, command: Command, words: &mut [u32]) -> Result<()> {
        words[0] = command as u32;
        // SAFETY: plain old data, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (place, byte) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *place = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: request and words outlive the call, and the words that each command reads and
        // writes are as many as the request's own fields say.
        let done = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
        ensure!(done >= 0, "{}: {}", self.name, std::io::Error::last_os_error());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{self, Place};

    /// Set where the test runs in a namespace of its own.
    const INSIDE: &str = "UTS_BENCH_OFFLOAD_INSIDE";

    #[test]
    fn features_change_by_name_and_missing_ones_are_named() -> Result<()> {
        if std::env::var_os(INSIDE).is_none() {
            let mut command = std::process::Command::new("unshare");
            let name = "offload::tests::features_change_by_name_and_missing_ones_are_named";
            command.arg("-Urn").arg(std::env::current_exe()?).args([name, "--exact", "--nocapture"]);
            let Ok(output) = command.env(INSIDE, "1").output() else {
                println!("skipped: offload: `unshare` is missing");
                return Ok(());
            };
            let (out, why) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            if why.starts_with("unshare: ") {
                println!("skipped: offload: no user namespaces here: {}", why.trim());
                return Ok(());
            }
            ensure!(output.status.success() && out.contains("1 passed"), "{out}{why}");
            return Ok(());
        }
        world::ip(&["link", "add", "near", "type", "veth", "peer", "name", "far"])?;
        let near = Interface::named("near")?;
        for place in [Place::Segments, Place::SegmentsGro, Place::Segments] {
            near.set(place.features())?;
            for (feature, on) in place.features() {
                assert_eq!(near.has(feature)?, *on, "{feature}");
            }
        }
        near.set(&[("tx-tcp-segmentation", true)])?;
        assert!(near.has("tx-tcp-segmentation")? && !near.has("tx-udp-segmentation")?);
        let missing = near.set(&[("tx-tea", true)]).expect_err("no such feature").to_string();
        assert_eq!(missing, "near has no feature `tx-tea`");
        // Packets of another namespace cannot be had by a wish.
        let fixed = near.set(&[("netns-local", true)]).expect_err("fixed").to_string();
        assert!(fixed.contains("netns-local"), "{fixed}");
        let nobody = Interface::named("nobody").err().context("no such interface")?;
        assert!(format!("{nobody:#}").contains("nobody: No such device"), "{nobody:#}");
        Ok(())
    }
}
