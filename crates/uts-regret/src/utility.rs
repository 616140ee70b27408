//! Utility: what a run is worth to the application; more is better, 0 is nothing.

use crate::scenario::Service;
use uts_traffic::measure::Measure;

/// The figure that counts for a service, and whether less of it is better.
pub const fn figure(service: Service) -> (&'static str, bool) {
    match service {
        Service::File => ("goodput", false),
        Service::Files | Service::Answers => ("completion", true),
        Service::Requests => ("request_p99", true),
        Service::Keystrokes => ("echo_p99", true),
        Service::Voice | Service::Video | Service::Control | Service::Telemetry => ("in_time", false),
    }
}

/// Utility of a run with these figures. A run that did not finish has no figure, and is worth
/// nothing.
pub fn of(service: Service, measures: &[Measure]) -> f64 {
    let (name, less_is_better) = figure(service);
    let value = measures.iter().find(|measure| measure.name == name).map_or(0.0, |measure| measure.value);
    match less_is_better {
        true if value > 0.0 => 1.0 / value,
        true => 0.0,
        false => value.max(0.0),
    }
}

/// A utility as it is read, in the figure's own unit.
pub fn shown(service: Service, utility: f64) -> String {
    let (name, less_is_better) = figure(service);
    if utility <= 0.0 {
        return "nothing".into();
    }
    let value = if less_is_better { 1.0 / utility } else { utility };
    match name {
        "goodput" => format!("{:.2} Mbit/s", value / 1e6),
        "completion" => format!("{value:.2} s"),
        "in_time" => format!("{:.1} %", value * 100.0),
        _ => format!("{value:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_time_and_more_in_time_are_worth_more() {
        let requests = |ms: f64| of(Service::Requests, &[Measure::new("request_p99", ms, "ms")]);
        assert!(requests(50.0) > requests(80.0) && requests(80.0) > of(Service::Requests, &[]));
        let voice = |share: f64| of(Service::Voice, &[Measure::new("in_time", share, "1")]);
        assert!(voice(0.99) > voice(0.9));
        assert_eq!(shown(Service::Requests, requests(50.0)), "50 ms");
        assert_eq!(shown(Service::Voice, voice(0.5)), "50.0 %");
        assert_eq!(shown(Service::File, 0.0), "nothing");
    }
}
