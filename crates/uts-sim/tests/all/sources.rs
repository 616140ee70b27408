//! Sources that send in spells, against closed forms.

use core::time::Duration;
use uts_functions::Time;
use uts_sim::network::Application;
use uts_sim::traffic::{Pattern, Source, Spell};

/// Number of packets that leave in each bin of time.
fn bins(source: &mut Source, bin: Duration, count: usize) -> Vec<f64> {
    let mut bins = vec![0.0; count];
    while let Some(at) = source.poll_timeout() {
        let index = (at.since(Time::ZERO).as_nanos() / bin.as_nanos()) as usize;
        let Some(packets) = bins.get_mut(index) else { break };
        *packets += 1.0;
        source.poll_transmit(at).expect("due");
    }
    bins
}

fn source(pattern: Pattern, seed: u64) -> Source {
    Source::new("10.0.0.2:9".parse().expect("an address"), 1000, pattern, Time::ZERO, seed)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// An exponential spell of mean m has 1 / (1 - exp(-gap / m)) packets in the mean.
#[test]
fn on_and_off_have_the_mean_rate_that_follows() {
    let ms = Duration::from_millis;
    for (seed, [gap, on, off]) in [[10, 100, 100], [10, 50, 200], [20, 10, 90]].into_iter().enumerate() {
        let [gap, on_mean, off_mean] = [gap, on, off].map(ms);
        let (on, off) = (Spell::Exponential { mean: on_mean }, Spell::Exponential { mean: off_mean });
        let bins = bins(&mut source(Pattern::OnOff { gap, on, off }, seed as u64), ms(1000), 20_000);
        let packets = 1.0 / (1.0 - (-gap.as_secs_f64() / on_mean.as_secs_f64()).exp());
        let expected = packets / (on_mean + off_mean).as_secs_f64();
        let rate = mean(&bins);
        println!("seed {seed}: {rate:.2} packets a second, closed form {expected:.2}");
        assert!((rate / expected - 1.0).abs() < 0.02, "seed {seed}: {rate} is not {expected}");
    }
}

/// The slope of the variance over the length of the bins gives the Hurst parameter: the variance of
/// means over m bins falls as m^(2H - 2) (Leland, Taqqu, Willinger and Wilson 1994).
fn hurst(spell: impl Fn(Duration) -> Spell) -> f64 {
    let (gap, mean_spell) = (Duration::from_millis(10), Duration::from_millis(100));
    let count = 1 << 17;
    let mut sum = vec![0.0; count];
    for seed in 0..40 {
        let (on, off) = (spell(mean_spell), spell(mean_spell));
        let one = bins(&mut source(Pattern::OnOff { gap, on, off }, seed), Duration::from_millis(50), count);
        sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
    }
    let variance = |m: usize| {
        let means: Vec<f64> = sum.chunks_exact(m).map(mean).collect();
        let centre = mean(&means);
        means.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / means.len() as f64
    };
    let points: Vec<(f64, f64)> = (5..=10).map(|k| (f64::from(k), variance(1 << k).log2())).collect();
    let (x, y) = (
        points.iter().map(|p| p.0).sum::<f64>() / points.len() as f64,
        points.iter().map(|p| p.1).sum::<f64>() / points.len() as f64,
    );
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>()
        / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
    1.0 + slope / 2.0
}

#[test]
fn heavy_tails_are_self_similar_together_and_exponential_ones_are_not() {
    let light = hurst(|mean| Spell::Exponential { mean });
    println!("exponential: H = {light:.2}, expected 0.50");
    assert!((light - 0.5).abs() < 0.06);
    for (shape, expected) in [(1.2, 0.9), (1.6, 0.7)] {
        let found = hurst(|mean| Spell::Pareto { mean, shape });
        println!("shape {shape}: H = {found:.2}, expected {expected:.2}");
        assert!((found - expected).abs() < 0.1, "shape {shape}: {found} is not {expected}");
    }
}

/// From its first instant on, a source that begins as if it had always sent has its mean rate in
/// every window, however short it is against a spell.
#[test]
fn a_steady_source_has_its_mean_rate_from_the_start() {
    let ms = Duration::from_millis;
    for (on, off) in [
        (Spell::Exponential { mean: ms(100) }, Spell::Exponential { mean: ms(300) }),
        (Spell::Pareto { mean: ms(100), shape: 1.5 }, Spell::Pareto { mean: ms(300), shape: 1.5 }),
    ] {
        let (gap, count) = (ms(10), 20_000);
        let mut sum = [0.0; 4];
        for seed in 0..count {
            let mut source = source(Pattern::OnOff { gap, on, off }, seed).steady();
            let bins = bins(&mut source, ms(40), 4);
            sum.iter_mut().zip(bins).for_each(|(sum, packets)| *sum += packets / count as f64);
        }
        let expected = on.packets(gap) * 40.0 / 400.0;
        println!("{on:?}: {sum:.3?} packets in 40 ms, closed form {expected:.3}");
        assert!(sum.iter().all(|mean| (mean / expected - 1.0).abs() < 0.05), "{sum:?}, not {expected}");
    }
}

#[test]
fn a_source_ends_when_it_is_told_to() {
    let ms = Duration::from_millis;
    let constant = Pattern::Constant { packets: 1, per: ms(10) };
    let mut source = source(constant, 1).with_end(Time::ZERO + ms(95));
    assert_eq!(bins(&mut source, ms(50), 3), [5.0, 5.0, 0.0]);
    assert_eq!((source.sent(), source.poll_timeout()), (10, None));
}
