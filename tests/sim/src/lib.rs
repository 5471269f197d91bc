//! Seeded racks with faults, checkers outside.
//!
//! One seed is one story: a box, its machines, an operator, the wires between them
//! and what goes wrong, all in virtual time on one thread. The box is the product's
//! own code on flash in memory; machines, BMCs and agents are the rehearsal's. A
//! broken promise ends the run with a sentence; the same seed always tells the same
//! story, so the seed is the whole report.

mod allocation_checks;
mod allocator;
mod box_under_test;
mod checks;
mod dhcp_client;
mod fault_points;
mod faults;
mod file_servers;
pub mod ipa;
mod machine;
mod network;
mod operator;
mod simulation;
mod trace;

use std::collections::BTreeMap;

pub use fault_points::{AGENT_JOB_POINTS, INJECTED_FAULTS, InjectedFault, JOB_POINTS};
pub use simulation::AgentMix;
pub use trace::Trace;

/// How a seed went.
#[derive(Debug)]
pub struct SeedReport {
    /// What happened.
    pub trace: Trace,
    /// What must not have happened; empty when all is well.
    pub violations: Vec<String>,
    /// How many machines there were.
    pub machines: usize,
    /// How many of them became active.
    pub active: usize,
    /// How many allocations got a node.
    pub allocated: usize,
    /// How often the box started.
    pub starts: u64,
    /// How long it took, in virtual milliseconds.
    pub took_ms: u64,
    /// What was met and where the node's job was then, and how often.
    pub observed: BTreeMap<String, u64>,
}

/// Tells the story of a seed.
pub fn run_seed(seed: u64, keep_text: bool) -> SeedReport {
    run_seed_with(seed, AgentMix::Mixed, keep_text)
}

/// Tells the story of a seed with these agents.
pub fn run_seed_with(seed: u64, agents: AgentMix, keep_text: bool) -> SeedReport {
    run_to_end(simulation::RackSimulation::new(seed, agents, keep_text))
}

/// One machine with the stock agent, and one trouble at one place.
pub fn run_with_fault(place: &'static str, trouble: InjectedFault, keep_text: bool) -> SeedReport {
    run_to_end(simulation::RackSimulation::with_fault(
        place, trouble, keep_text,
    ))
}

/// One machine with the stock agent from enrol to active, without any trouble.
pub fn run_without_faults(fast_track: bool) -> SeedReport {
    run_to_end(simulation::RackSimulation::without_faults(fast_track))
}

fn run_to_end(mut world: simulation::RackSimulation) -> SeedReport {
    if !world.run() {
        let sentence = "time ran out before every node rested".to_owned();
        world.checks.violations.push(sentence);
    }
    let took_ms = world.now.0;
    world.check_end();
    SeedReport {
        machines: world.machines.len(),
        active: world.active(),
        allocated: world.checks.allocated,
        starts: world.box_under_test.life,
        took_ms,
        violations: std::mem::take(&mut world.checks.violations),
        observed: std::mem::take(&mut world.observed),
        trace: world.trace,
    }
}
