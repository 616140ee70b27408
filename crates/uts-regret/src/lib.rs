//! Regret: what a connection that adapts loses, or gains, against the fixed profile that would have
//! been best.
//!
//! A [`Scenario`](scenario::Scenario) is a service over a path. It is carried in virtual time by
//! the profile that adapts, by its own first profile left as it is, and by each of the
//! [`FIXED`](contender::FIXED) ones. Its score is the utility of the adaptive run, as the
//! application sees it ([`utility`]), over that of the best fixed one: 1 is as good, more is
//! better.
//!
//! Half of the scenarios are [`named`](scenario::named): they may be looked at while the policy is
//! tuned. The others are [`drawn`](scenario::drawn) from a distribution that is written down there,
//! and are reported apart.
#![forbid(unsafe_code)]

pub mod contender;
pub mod page;
pub mod run;
pub mod scenario;
pub mod utility;
