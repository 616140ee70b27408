//! Tests in virtual time that share nothing but the library, as one program: each of its own would
//! take as long to build as the rest of them. Those that count what the process allocates, or
//! register mechanisms, are beside it.

mod amplification;
mod bulk;
mod classics;
mod closed_forms;
mod deadlines;
mod ecn;
mod establishment;
mod exchange_matrix;
mod expedited;
mod first_credit;
mod fragments;
mod groups;
mod host_costs;
mod hostile;
mod joined;
mod liveness;
mod mechanism_costs;
mod mechanisms;
mod memory;
mod message_properties;
mod messages;
mod migration;
mod network;
mod one_client;
mod outage;
mod overhead;
mod packet_size;
mod patience;
mod peer;
mod rates;
mod receivers_half;
mod records;
mod redundancy;
mod refusal;
mod resets;
mod runs;
mod shared;
mod slow_lines;
mod small_paths;
mod sources;
mod stream_lines;
mod turns;
