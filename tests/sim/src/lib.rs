//! Seeded racks with faults, checkers outside.
//!
//! One seed is one story: a box, its machines, an operator, the wires between them
//! and what goes wrong, all in virtual time on one thread. The box is the product's
//! own code on flash in memory; machines, BMCs and agents are the rehearsal's. A
//! broken promise ends the run with a sentence; the same seed always tells the same
//! story, so the seed is the whole report.

mod ambush;
mod boxed;
mod checks;
mod clerk;
mod doors;
mod faults;
pub mod ipa;
mod lodger;
mod machine;
mod operator;
mod ties;
mod trace;
mod wires;
mod world;

use std::collections::BTreeMap;

pub use ambush::{AGENT_PLACES, PLACES, TROUBLES, Trouble};
pub use trace::Trace;
pub use world::Agents;

/// How a seed went.
#[derive(Debug)]
pub struct Story {
    /// What happened.
    pub trace: Trace,
    /// What must not have happened; empty when all is well.
    pub broken: Vec<String>,
    /// How many machines there were.
    pub machines: usize,
    /// How many of them became active.
    pub active: usize,
    /// How many allocations got a node.
    pub given: usize,
    /// How often the box started.
    pub starts: u64,
    /// How long it took, in virtual milliseconds.
    pub took_ms: u64,
    /// What was met and where the node's job was then, and how often.
    pub met: BTreeMap<String, u64>,
}

/// Tells the story of a seed.
pub fn tell(seed: u64, keep_text: bool) -> Story {
    tell_of(seed, Agents::Mixed, keep_text)
}

/// Tells the story of a seed with these agents.
pub fn tell_of(seed: u64, agents: Agents, keep_text: bool) -> Story {
    told(world::World::new(seed, agents, keep_text))
}

/// One machine with the stock agent, and one trouble at one place.
pub fn stage(place: &'static str, trouble: Trouble, keep_text: bool) -> Story {
    told(world::World::staged(place, trouble, keep_text))
}

/// One machine with the stock agent from enrol to active, without any trouble.
pub fn plain(fast_track: bool) -> Story {
    told(world::World::plain(fast_track))
}

fn told(mut world: world::World) -> Story {
    if !world.run() {
        let sentence = "time ran out before every node rested".to_owned();
        world.checks.broken.push(sentence);
    }
    let took_ms = world.now.0;
    world.judge();
    Story {
        machines: world.machines.len(),
        active: world.active(),
        given: world.checks.given,
        starts: world.boxed.life,
        took_ms,
        broken: std::mem::take(&mut world.checks.broken),
        met: std::mem::take(&mut world.met),
        trace: world.trace,
    }
}
