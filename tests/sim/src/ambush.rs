//! Trouble that waits at a place: it happens when a node's job gets there, so that every
//! fault meets every phase, which moments drawn from a clock rarely do.

use trivet_model::{Node, Phase, Seeded};

use crate::faults::Incident;
use crate::machine::Blow;

/// Where a node's job can be. Steps and the agent's arrival are told apart.
pub const PLACES: [&str; 18] = [
    "ReadPower",
    "PowerOff",
    "BootFromNet",
    "PowerOn",
    "AwaitAgent",
    "AwaitAgent looked up",
    "GetSteps",
    "StartStep erase_devices_metadata",
    "AwaitStep erase_devices_metadata",
    "StartStep write_image",
    "AwaitStep write_image",
    "Bootloader",
    "AwaitBootloader",
    "Sync",
    "FinalOff",
    "BootFromDisk",
    "StartInstance",
    "FinishRescue",
];

/// The places where the box speaks with an agent.
pub const AGENT_PLACES: [&str; 10] = [
    "AwaitAgent looked up",
    "GetSteps",
    "StartStep erase_devices_metadata",
    "AwaitStep erase_devices_metadata",
    "StartStep write_image",
    "AwaitStep write_image",
    "Bootloader",
    "AwaitBootloader",
    "Sync",
    "FinishRescue",
];

/// How long beats are lost: longer than any agent is waited for.
const MUTE_MS: u64 = 150_000;

/// What can wait somewhere.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Trouble {
    /// The box loses power before anything of this turn has left it.
    BoxCut,
    /// The box loses power soon after.
    BoxCutLater,
    /// The agent's process ends and is started again after 30 s, without its token.
    AgentDies,
    /// The agent neither serves nor beats any more.
    AgentHangs,
    /// The agent lives, but its beats do not arrive for a while.
    BeatsLost,
    /// The agent restarts with its token: a new certificate.
    NewCertificate,
    /// The same, and at another address.
    NewAddress,
    /// The agent's hardware managers change.
    NewManagers,
    /// Somebody else keeps the agent busy.
    AgentBusy,
    /// The agent's next step fails, and what it says of that holds its token.
    TokenTold,
    /// The agent takes the next order, but its answer is lost.
    AnswerLost,
}

/// Every trouble there is.
pub const TROUBLES: [Trouble; 11] = [
    Trouble::BoxCut,
    Trouble::BoxCutLater,
    Trouble::AgentDies,
    Trouble::AgentHangs,
    Trouble::BeatsLost,
    Trouble::NewCertificate,
    Trouble::NewAddress,
    Trouble::NewManagers,
    Trouble::AgentBusy,
    Trouble::TokenTold,
    Trouble::AnswerLost,
];

impl Trouble {
    /// Where it means anything.
    pub fn places(self) -> &'static [&'static str] {
        match self {
            Self::BoxCut | Self::BoxCutLater | Self::BeatsLost => &PLACES,
            _ => &AGENT_PLACES,
        }
    }

    fn incident(self, machine: usize, off_ms: u64) -> Incident {
        let agent = |blow| Incident::Agent { machine, blow };
        match self {
            Self::BoxCut | Self::BoxCutLater => Incident::BoxCut { off_ms },
            Self::BeatsLost => Incident::Mute {
                machine,
                for_ms: MUTE_MS,
            },
            Self::AgentDies => agent(Blow::Dies),
            Self::AgentHangs => agent(Blow::Hangs),
            Self::NewCertificate => agent(Blow::NewCertificate),
            Self::NewAddress => agent(Blow::NewAddress),
            Self::NewManagers => agent(Blow::NewManagers),
            Self::AgentBusy => agent(Blow::Busy),
            Self::TokenTold => agent(Blow::Babbles),
            Self::AnswerLost => agent(Blow::LosesAnswer),
        }
    }
}

/// Trouble at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ambush {
    pub(crate) machine: usize,
    pub(crate) place: &'static str,
    pub(crate) incident: Incident,
    /// At once is before anything that the box wanted has left it.
    pub(crate) after_ms: u64,
}

impl Ambush {
    pub(crate) fn new(machine: usize, place: &'static str, trouble: Trouble) -> Self {
        Self {
            machine,
            place,
            incident: trouble.incident(machine, 3000),
            after_ms: u64::from(trouble == Trouble::BoxCutLater) * 25,
        }
    }

    /// One drawn by chance, in a rack of so many machines.
    pub(crate) fn drawn(machines: usize, chance: &mut Seeded) -> Self {
        let machine = chance.below(machines as u64) as usize;
        let trouble = TROUBLES[chance.below(TROUBLES.len() as u64) as usize];
        let places = trouble.places();
        let place = places[chance.below(places.len() as u64) as usize];
        // Where only an agent that fell silent brings a job.
        let place = if chance.chance(80) { "AskPower" } else { place };
        let off_ms = 500 + chance.below(20_000);
        let later = trouble != Trouble::BoxCut && chance.chance(500);
        Self {
            machine,
            place,
            incident: trouble.incident(machine, off_ms),
            after_ms: u64::from(later) * chance.below(2000),
        }
    }
}

/// Where a node's job is.
pub(crate) fn place(node: &Node) -> String {
    let Some(job) = &node.job else {
        return "no job".to_owned();
    };
    let step = job.steps.get(job.at as usize);
    match (job.phase, &node.agent, step) {
        (Phase::AwaitAgent, Some(agent), _) if agent.url.is_some() => "AwaitAgent heard".to_owned(),
        (Phase::AwaitAgent, Some(_), _) => "AwaitAgent looked up".to_owned(),
        (Phase::StartStep | Phase::AwaitStep, _, Some(step)) => {
            format!("{:?} {}", job.phase, step.step)
        }
        (phase, ..) => format!("{phase:?}"),
    }
}
