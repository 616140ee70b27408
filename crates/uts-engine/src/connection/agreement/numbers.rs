//! Numbers by which the two ends of a connection write functions and mechanisms, where either has
//! its own (packets.md P-67).

use crate::config::ConnectionConfig;
use crate::connection::ways::Rare;
use std::sync::Arc;
use uts_functions::Numbering;
use uts_functions::numbering::{Contradiction, FIRST_OWN};
use uts_wire::Hello;

/// The numbers of both ends.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// By these this end writes.
    own: Arc<Numbering>,
    /// By these it reads.
    peer: Numbering,
}

impl Numbers {
    /// The numbers that hold with a peer of this greeting; `None`: those of the specification, for
    /// one of the ends has not said that it reads others.
    ///
    /// # Errors
    /// Numbers of the peer that contradict each other.
    pub fn agreed(config: &ConnectionConfig, peer: &Hello) -> Result<Option<Box<Self>>, Contradiction> {
        let Some(said) = &peer.numbers else { return Ok(None) };
        let peer = Numbering::of_peer(said, peer.mechanisms.iter().copied())?;
        Ok(config.numbering().map(|own| Box::new(Numbers { own, peer })))
    }

    /// Mechanisms that a peer has, by their numbers here.
    pub fn library_of(numbers: Option<&Self>, peer: &Hello) -> impl Iterator<Item = (u8, u8)> {
        let specified = peer.mechanisms.iter().copied().filter(|(_, number)| *number < FIRST_OWN);
        let named = numbers.into_iter().flat_map(|numbers| numbers.peer.named_here());
        specified.chain(named.map(|(function, number)| (function.number(), number)))
    }

    /// The first that differs between the ends, in words.
    pub fn difference(&self) -> Option<String> {
        self.own.difference(&self.peer)
    }
}

/// Numbers by which this end writes.
pub(in crate::connection) fn own(rare: &Option<Box<Rare>>) -> Option<&Numbering> {
    Some(&*rare.as_ref()?.numbers.as_ref()?.own)
}

/// Numbers by which it reads.
pub(in crate::connection) fn peers(rare: &Option<Box<Rare>>) -> Option<&Numbering> {
    Some(&rare.as_ref()?.numbers.as_ref()?.peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Mapping;
    use uts_functions::Function;
    use uts_wire::OwnNumbers;

    /// An end with a file, and the greeting of one.
    fn with_file() -> (ConnectionConfig, Hello) {
        let text = "[detection]\nnone = 0\ninternet-16 = 2\ncrc-32c = 1\n";
        let mapping = Arc::new(Mapping::read("numbers.toml", text).expect("right"));
        let config = ConnectionConfig { mapping: Some(mapping), ..ConnectionConfig::default() };
        let numbers = config.numbering().map(|own| Box::new(own.said()));
        (config, Hello { numbers, ..Hello::default() })
    }

    #[test]
    fn numbers_of_ones_own_hold_where_both_ends_say_them() {
        let (config, hello) = with_file();
        let plain = (ConnectionConfig::default(), Hello::default());
        assert!(plain.0.numbering().is_none(), "without a file nothing is said");
        for (config, hello, holds) in [
            (&config, &hello, true),
            (&config, &plain.1, false),
            (&plain.0, &hello, false),
            (&plain.0, &plain.1, false),
        ] {
            let agreed = Numbers::agreed(config, hello).expect("no contradiction");
            assert_eq!(agreed.is_some(), holds);
        }
        let numbers = Numbers::agreed(&config, &hello).expect("no contradiction");
        let rare = Some(Box::new(Rare { numbers, ..Rare::default() }));
        assert_eq!(peers(&rare).map(|peer| peer.mechanism_of(Function::Detection, 1)), Some(2));
        assert_eq!(own(&rare).map(|own| own.mechanism(Function::Detection, 2)), Some(1));
    }

    #[test]
    fn a_greeting_that_contradicts_itself_is_refused() {
        let detection = Function::Detection.number();
        let mut said = OwnNumbers::default();
        said.mechanisms.insert((detection, 2), 1);
        let mechanisms = [(detection, 1), (detection, 2)].into();
        let hello = Hello { numbers: Some(Box::new(said)), mechanisms, ..Hello::default() };
        let wrong = Numbers::agreed(&with_file().0, &hello).expect_err("1 stands for two");
        assert_eq!(wrong.to_string(), "detection/1 is both internet-16 and crc-32c");
    }

    #[test]
    fn a_number_of_nobodys_without_a_name_is_not_had() {
        let congestion = Function::Congestion.number();
        let hello = Hello { mechanisms: [(congestion, 2), (congestion, 130)].into(), ..Hello::default() };
        let had: Vec<(u8, u8)> = Numbers::library_of(None, &hello).collect();
        assert_eq!(had, [(congestion, 2)]);
    }
}
