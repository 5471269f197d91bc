//! Simulated racks with faults from a seed, and independent checkers.
//!
//! One seed is one run: a box, its machines, an operator, the network between them and the
//! faults, all in virtual time on one thread. The box is the product's own code on flash in
//! memory; machines, BMCs and agents are those of `firmware/sim`. A violated invariant ends the
//! run with a message; the same seed always gives the same run, so the seed is enough to
//! reproduce it.

mod allocation_checks;
mod allocator;
mod box_under_test;
mod checks;
mod dhcp_client;
mod diagnosed_faults;
mod fault_points;
mod faults;
mod file_servers;
mod image_faults;
pub mod ipa;
mod machine;
mod network;
mod operator;
mod simulation;
mod trace;

use std::collections::BTreeMap;

use trivet_model::RackView;

pub use diagnosed_faults::{DIAGNOSED_FAULTS, DiagnosedFault};
pub use fault_points::{AGENT_JOB_POINTS, INJECTED_FAULTS, InjectedFault, JOB_POINTS};
pub use simulation::AgentMix;
pub use trace::Trace;

/// The result of a seed.
#[derive(Debug)]
pub struct SeedReport {
    /// The events.
    pub trace: Trace,
    /// Violated invariants; empty if all hold.
    pub violations: Vec<String>,
    /// Number of machines.
    pub machines: usize,
    /// How many of them became active.
    pub active: usize,
    /// How many allocations got a node.
    pub allocated: usize,
    /// How often the box started.
    pub starts: u64,
    /// Duration in virtual milliseconds.
    pub took_ms: u64,
    /// The observed faults with the point of the node's job, and their counts.
    pub observed: BTreeMap<String, u64>,
}

/// Runs a seed.
pub fn run_seed(seed: u64, keep_text: bool) -> SeedReport {
    run_seed_with(seed, AgentMix::Mixed, keep_text)
}

/// Runs a seed with these agents.
pub fn run_seed_with(seed: u64, agents: AgentMix, keep_text: bool) -> SeedReport {
    run_to_end(simulation::RackSimulation::new(seed, agents, keep_text))
}

/// One machine with the stock agent, and one fault at one point.
pub fn run_with_fault(place: &'static str, fault: InjectedFault, keep_text: bool) -> SeedReport {
    run_to_end(simulation::RackSimulation::with_fault(
        place, fault, keep_text,
    ))
}

/// One machine with the stock agent from enrol to active, without faults.
pub fn run_without_faults(fast_track: bool) -> SeedReport {
    run_to_end(simulation::RackSimulation::without_faults(fast_track))
}

/// One machine with our own agent and fast track, whose image is written ahead while its node is
/// available for so long.
pub fn run_with_image_ahead(available_ms: u64) -> SeedReport {
    run_to_end(simulation::RackSimulation::with_image_ahead(available_ms))
}

/// The end of a run with a fault that a rule of the diagnosis explains.
#[derive(Debug)]
pub struct DiagnosisReport {
    /// What readers see when the job of the node has ended, if there is a diagnosis.
    pub diagnosis: Option<trivet_model::Diagnosis>,
    /// `last_error` of the node then.
    pub last_error: Option<String>,
    /// The time then, what readers see, and what they see after the power of the box was cut.
    pub readers: Option<(trivet_model::UnixMs, RackView, RackView)>,
    /// The events.
    pub trace: Trace,
}

/// Runs a rack with this fault until the node that has it has a diagnosis and no job.
pub fn run_until_diagnosed(fault: DiagnosedFault) -> DiagnosisReport {
    let mut rack_simulation = simulation::RackSimulation::with_diagnosed_fault(fault);
    let end = rack_simulation.run_until_diagnosed();
    let (mut diagnosis, mut last_error, mut readers) = (None, None, None);
    if let Some(end) = end {
        (diagnosis, last_error) = (Some(end.diagnosis), end.last_error);
        readers = Some((end.at, end.view, end.restarted));
    }
    DiagnosisReport {
        diagnosis,
        last_error,
        readers,
        trace: rack_simulation.trace,
    }
}

/// What the box wrote to its flash, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FlashUse {
    /// Written until all nodes were active.
    pub deploying_bytes: u64,
    /// Of the records after that, with the stories of the nodes.
    pub live_bytes: u64,
    /// How many jobs the stories have.
    pub jobs: usize,
    /// How many requests of callers are kept.
    pub audit_entries: usize,
    /// Written in the simulated day after that.
    pub day_bytes: u64,
    /// How many commits that were.
    pub day_commits: u64,
    /// Datagrams to BMCs in that day.
    pub day_bmc_datagrams: u64,
}

/// Deploys so many machines without faults, then lets a day go by.
pub fn run_day(machines: usize) -> Result<FlashUse, String> {
    const DAY_MS: u64 = 24 * 3600 * 1000;
    let mut rack_simulation = simulation::RackSimulation::steady(machines);
    if !rack_simulation.run() || rack_simulation.active() != machines {
        let (active, violation) = (
            rack_simulation.active(),
            rack_simulation.checks.violations.first(),
        );
        return Err(format!(
            "{active} of {machines} machines are active: {violation:?}"
        ));
    }
    let missing = || "the box is off".to_owned();
    let deployed = rack_simulation
        .box_under_test
        .store_stats()
        .ok_or_else(missing)?;
    let (jobs, audit_entries) = rack_simulation.box_under_test.stored_stories()?;
    let datagrams = rack_simulation.bmc_datagrams;
    rack_simulation.run_for(DAY_MS);
    let after = rack_simulation
        .box_under_test
        .store_stats()
        .ok_or_else(missing)?;
    match rack_simulation.checks.violations.first() {
        Some(violation) => Err(violation.clone()),
        None => Ok(FlashUse {
            deploying_bytes: deployed.written_bytes,
            live_bytes: deployed.live_bytes,
            jobs,
            audit_entries,
            day_bytes: after.written_bytes - deployed.written_bytes,
            day_commits: after.commits - deployed.commits,
            day_bmc_datagrams: rack_simulation.bmc_datagrams - datagrams,
        }),
    }
}

fn run_to_end(mut rack_simulation: simulation::RackSimulation) -> SeedReport {
    if !rack_simulation.run() {
        let sentence = "time ran out before every node was stable".to_owned();
        rack_simulation.checks.violations.push(sentence);
    }
    let took_ms = rack_simulation.now.0;
    rack_simulation.check_no_diagnosis();
    rack_simulation.check_end();
    SeedReport {
        machines: rack_simulation.machines.len(),
        active: rack_simulation.active(),
        allocated: rack_simulation.checks.allocated,
        starts: rack_simulation.box_under_test.life,
        took_ms,
        violations: std::mem::take(&mut rack_simulation.checks.violations),
        observed: std::mem::take(&mut rack_simulation.observed),
        trace: rack_simulation.trace,
    }
}
