//! Faults at a point of a job: a fault happens when a node's job gets there, so that every
//! fault meets every phase, which random times rarely do.

use trivet_model::{JobPhase, Node, SeededRandom};

use crate::faults::Incident;
use crate::machine::InjectedAgentFault;

/// The points of a node's job. Steps and the agent's first heartbeat are distinguished.
pub const JOB_POINTS: [&str; 18] = [
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

/// The points at which the box calls an agent.
pub const AGENT_JOB_POINTS: [&str; 10] = [
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

/// How long heartbeats are lost: longer than the timeout of any agent.
const HEARTBEATS_LOST_MS: u64 = 150_000;

/// A fault that happens at a fault point.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InjectedFault {
    /// The box loses power before any output of this batch is sent.
    BoxCut,
    /// The box loses power shortly after.
    BoxCutLater,
    /// The agent's process ends and is started again after 30 s, without its token.
    AgentDies,
    /// The agent neither serves nor sends heartbeats any more.
    AgentHangs,
    /// The agent runs, but its heartbeats are lost for a while.
    HeartbeatsLost,
    /// The agent restarts with its token and a new certificate.
    NewCertificate,
    /// The same, and at another address.
    NewAddress,
    /// The agent's hardware managers change.
    NewManagers,
    /// Another client keeps the agent busy.
    AgentBusy,
    /// The agent's next step fails with an error message that contains its token.
    TokenLeaked,
    /// The agent accepts the next command, but its reply is lost.
    AnswerLost,
}

/// Every fault.
pub const INJECTED_FAULTS: [InjectedFault; 11] = [
    InjectedFault::BoxCut,
    InjectedFault::BoxCutLater,
    InjectedFault::AgentDies,
    InjectedFault::AgentHangs,
    InjectedFault::HeartbeatsLost,
    InjectedFault::NewCertificate,
    InjectedFault::NewAddress,
    InjectedFault::NewManagers,
    InjectedFault::AgentBusy,
    InjectedFault::TokenLeaked,
    InjectedFault::AnswerLost,
];

impl InjectedFault {
    /// The points at which it has an effect.
    pub fn job_points(self) -> &'static [&'static str] {
        match self {
            Self::BoxCut | Self::BoxCutLater | Self::HeartbeatsLost => &JOB_POINTS,
            _ => &AGENT_JOB_POINTS,
        }
    }

    fn incident(self, machine: usize, off_ms: u64) -> Incident {
        let agent = |blow| Incident::Agent {
            machine,
            fault: blow,
        };
        match self {
            Self::BoxCut | Self::BoxCutLater => Incident::BoxCut { off_ms },
            Self::HeartbeatsLost => Incident::HeartbeatsLost {
                machine,
                for_ms: HEARTBEATS_LOST_MS,
            },
            Self::AgentDies => agent(InjectedAgentFault::Dies),
            Self::AgentHangs => agent(InjectedAgentFault::Hangs),
            Self::NewCertificate => agent(InjectedAgentFault::NewCertificate),
            Self::NewAddress => agent(InjectedAgentFault::NewAddress),
            Self::NewManagers => agent(InjectedAgentFault::NewManagers),
            Self::AgentBusy => agent(InjectedAgentFault::Busy),
            Self::TokenLeaked => agent(InjectedAgentFault::LeaksToken),
            Self::AnswerLost => agent(InjectedAgentFault::LosesAnswer),
        }
    }
}

/// A fault at a point of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultPoint {
    pub(crate) machine: usize,
    pub(crate) job_point: &'static str,
    pub(crate) incident: Incident,
    /// Zero is before any output of the box is sent.
    pub(crate) after_ms: u64,
}

impl FaultPoint {
    pub(crate) fn new(machine: usize, place: &'static str, fault: InjectedFault) -> Self {
        Self {
            machine,
            job_point: place,
            incident: fault.incident(machine, 3000),
            after_ms: u64::from(fault == InjectedFault::BoxCutLater) * 25,
        }
    }

    /// A random one, in a rack of so many machines.
    pub(crate) fn random(machines: usize, chance: &mut SeededRandom) -> Self {
        let machine = chance.below(machines as u64) as usize;
        let fault = INJECTED_FAULTS[chance.below(INJECTED_FAULTS.len() as u64) as usize];
        let places = fault.job_points();
        let place = places[chance.below(places.len() as u64) as usize];
        // A point that is reached only after an agent stops sending heartbeats.
        let place = if chance.chance(80) {
            "CheckPower"
        } else {
            place
        };
        let off_ms = 500 + chance.below(20_000);
        let later = fault != InjectedFault::BoxCut && chance.chance(500);
        Self {
            machine,
            job_point: place,
            incident: fault.incident(machine, off_ms),
            after_ms: u64::from(later) * chance.below(2000),
        }
    }
}

/// The point of a node's job.
pub(crate) fn job_point(node: &Node) -> String {
    let Some(job) = &node.job else {
        return "no job".to_owned();
    };
    let step = job.steps.get(job.at as usize);
    match (job.phase, &node.agent, step) {
        (JobPhase::AwaitAgent, Some(agent), _) if agent.url.is_some() => {
            "AwaitAgent seen".to_owned()
        }
        (JobPhase::AwaitAgent, Some(_), _) => "AwaitAgent looked up".to_owned(),
        (JobPhase::StartStep | JobPhase::AwaitStep, _, Some(step)) => {
            format!("{:?} {}", job.phase, step.step)
        }
        (phase, ..) => format!("{phase:?}"),
    }
}
