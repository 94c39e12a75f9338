//! What a step of `tidegate load` measured, in words.

use std::io::{self, Write};

use tidegate_judge::measurement::{AgentShare, Latency, Measurement};
use tidegate_judge::record::StepRecord;
use tidegate_tester::scenario::{Scenario, Step};

fn ms(histogram: &Latency, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e3
}

/// What a step measured.
pub(super) fn print(out: &mut dyn Write, step: &Step, measured: &Measurement) -> io::Result<()> {
    let (response, service) = (&measured.response, &measured.service);
    let errors: u64 = measured.errors.values().sum();
    writeln!(out, "step            {}", step.name)?;
    writeln!(out, "throughput      {:.1} good/s over {:.3} s", measured.throughput(), measured.seconds)?;
    writeln!(
        out,
        "replies         {} good, {} denied, {errors} errors; {} sent",
        measured.good, measured.denied, measured.sent
    )?;
    writeln!(
        out,
        "response ms     mean {:.3}  p50 {:.3}  p90 {:.3}  p99 {:.3}  max {:.3}",
        response.mean() / 1e3,
        ms(response, 0.5),
        ms(response, 0.9),
        ms(response, 0.99),
        response.max() as f64 / 1e3
    )?;
    writeln!(
        out,
        "service ms      p50 {:.3}  p99 {:.3}; first byte p50 {:.3}",
        ms(service, 0.5),
        ms(service, 0.99),
        ms(&measured.first_byte, 0.5)
    )?;
    write!(
        out,
        "connections     {} established; connect ms p50 {:.3}  p99 {:.3}",
        measured.established,
        ms(&measured.connect, 0.5),
        ms(&measured.connect, 0.99)
    )?;
    if !measured.handshake.is_empty() {
        let handshake = &measured.handshake;
        write!(out, "; handshake ms p50 {:.3}  p99 {:.3}", ms(handshake, 0.5), ms(handshake, 0.99))?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "in flight       {:.2} mean; {:.2} by Little's law",
        measured.mean_in_flight,
        measured.throughput() * service.mean() / 1e6
    )?;
    let generator = &measured.generator;
    writeln!(
        out,
        "generator       {} threads, {:.2} CPU s ({:.2} per million good), busiest {:.0} %, lag p99 {} us, run delay {:.3} s",
        generator.threads,
        generator.cpu_seconds,
        generator.cpu_seconds * 1e6 / measured.good.max(1) as f64,
        generator.busiest_thread * 100.0,
        generator.send_lag_p99_us,
        generator.run_delay_seconds
    )?;
    for (class, count) in &measured.errors {
        writeln!(out, "error           {class:?} {count}")?;
    }
    if !measured.closes.is_none() {
        writeln!(out, "server ended    {}", measured.closes.in_words())?;
    }
    print_agents(out, &measured.agents)
}

/// A line for each agent, those that were lost among them.
fn print_agents(out: &mut dyn Write, agents: &[AgentShare]) -> io::Result<()> {
    for share in agents {
        write!(out, "agent           {}: {} connections, ", share.agent, share.connections)?;
        match &share.lost {
            Some(reason) => writeln!(out, "LOST, its share is left out: {reason}")?,
            None => writeln!(
                out,
                "{} good, p99 {:.3} ms; clock {:+.3} ms, wrong by {:.3} ms at most; began {:.3} ms late",
                share.good,
                share.p99_us as f64 / 1e3,
                share.clock_ahead_us as f64 / 1e3,
                share.clock_error_us as f64 / 1e3,
                share.late_us as f64 / 1e3
            )?,
        }
    }
    match AgentShare::slowest(agents) {
        Some(slowest) if agents.len() > 1 => writeln!(out, "slowest agent   {}", slowest.agent),
        _ => Ok(()),
    }
}

/// Says which thresholds are met, unless it is to be quiet; whether all are.
pub(super) fn print_thresholds(
    out: &mut dyn Write,
    scenario: &Scenario,
    step: &Step,
    record: &StepRecord,
    quiet: bool,
) -> io::Result<bool> {
    let mut kept = true;
    for threshold in scenario.thresholds.iter().chain(&step.thresholds) {
        let holds = threshold.met_by(record.figure(threshold.metric));
        kept &= holds;
        if !quiet {
            writeln!(out, "threshold       {threshold}: {}", if holds { "met" } else { "MISSED" })?;
        }
    }
    Ok(kept)
}
