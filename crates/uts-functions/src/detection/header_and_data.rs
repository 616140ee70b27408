//! Two Internet checksums, as XTP has them: one over the header, one over the data (XTP protocol
//! definition, revision 3.6, sections 2.1 and 2.4). XTP can leave the data unchecked (`NOCHECK`);
//! so can this. What is unchecked is delivered damaged or not.

use super::internet_16::checksum;
use super::{Detection, Verdict};
use crate::function::Function;
use crate::mechanism::{Bold, Consent, Facts, Mechanism, Param, Params, Unasked, Unit};

const TRAILER_BYTES: usize = 4;

/// See the module's page.
#[derive(Clone, Debug)]
pub struct HeaderAndData {
    header_bytes: usize,
    checks_data: bool,
}

impl HeaderAndData {
    /// Its entry in the library.
    pub const INFO: Mechanism = Mechanism {
        function: Function::Detection,
        number: 8,
        name: "header-and-data",
        what: "an Internet checksum for the header and one for the data, as in XTP",
        mandatory: false,
        // Damaged data may be handed over: nobody asks that of a peer who has not named it.
        consent: Consent::OfBoth,
        params: &[
            Param {
                name: "header",
                unit: Unit::Bytes,
                default: 40,
                min: 1,
                max: 65_535,
                bold: Bold::Neither,
                what: "bytes at the packet's begin that count as header",
            },
            Param {
                name: "data",
                unit: Unit::Count,
                default: 1,
                min: 0,
                max: 1,
                bold: Bold::Neither,
                what: "whether data is checked: 0 = no, 1 = yes",
            },
        ],
        needs: &[],
        facts: Facts { uniform: true, unasked: Unasked::Never, ..Facts::PLAIN },
        predict: |params, facts, prediction| {
            prediction.header_bytes += TRAILER_BYTES as f64;
            let checked = if params.get(1) == 1 { facts.mtu_bytes } else { u64::from(params.get(0)) };
            prediction.cpu_ns += 2.0 * 0.033 * checked as f64;
        },
    };

    /// Builds it.
    pub fn build(params: &Params, (): ()) -> Self {
        HeaderAndData { header_bytes: params.get(0) as usize, checks_data: params.get(1) == 1 }
    }

    fn sums(&self, covered: &[u8]) -> [u8; TRAILER_BYTES] {
        let (header, data) = covered.split_at(self.header_bytes.min(covered.len()));
        let [a, b] = checksum(header).to_be_bytes();
        // detection.md R-12: what is not checked leaves zeros.
        let [c, d] = if self.checks_data { checksum(data).to_be_bytes() } else { [0; 2] };
        [a, b, c, d]
    }
}

impl Detection for HeaderAndData {
    fn trailer_bytes(&self) -> usize {
        TRAILER_BYTES
    }

    fn append(&self, covered: &[u8], trailer: &mut [u8]) {
        trailer.copy_from_slice(&self.sums(covered));
    }

    fn check(&self, covered: &mut [u8], trailer: &[u8]) -> Verdict {
        Verdict::of(trailer == self.sums(covered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(header: u64, data: u64) -> HeaderAndData {
        let params = HeaderAndData::INFO.params_within(&[("header", header), ("data", data)]);
        HeaderAndData::build(&params, ())
    }

    /// The example of RFC 1071 section 3, as header and as data.
    #[test]
    fn each_part_has_its_own_sum() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        let sum = 0xddf2_u16;
        assert_eq!(build(8, 1).sums(&bytes)[..2], (!sum).to_be_bytes());
        let twice = [bytes, bytes].concat();
        assert_eq!(build(8, 1).sums(&twice), [!0xdd, !0xf2, !0xdd, !0xf2]);
        assert_eq!(build(8, 0).sums(&twice)[2..], [0, 0]);
    }

    #[test]
    fn unchecked_data_passes_and_the_header_does_not() {
        for (checks, passes) in [(1, false), (0, true)] {
            let mechanism = build(4, checks);
            let trailer = mechanism.sums(b"headdata");
            assert_eq!(mechanism.check(&mut b"headDATA".to_owned(), &trailer) == Verdict::Right, passes);
            assert_eq!(mechanism.check(&mut b"Headdata".to_owned(), &trailer), Verdict::Wrong);
        }
    }
}
