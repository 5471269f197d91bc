//! Words every room shares: identities, time, states, records, orders, notes.
//!
//! This crate knows nobody. It holds plain values and no decisions: a room that
//! needs to tell another something does so in one of these types, carried by
//! `firmware/rack`.

pub mod agent;
pub mod boot;
pub mod caller;
pub mod digest;
pub mod entropy;
pub mod errand;
pub mod fault;
pub mod identity;
pub mod image;
pub mod index;
pub mod lan;
pub mod node;
pub mod note;
pub mod order;
pub mod power;
pub mod resource;
pub mod secret;
mod spelling;
pub mod state;
pub mod time;
mod timeline;
pub mod vendor;
pub mod view;

pub use agent::{AgentError, AgentEvent, AgentOrder, Parts, Step, StepKind};
pub use boot::{BootPlan, KernelBoot};
pub use caller::{Caller, Who};
pub use digest::Digest;
pub use entropy::{Entropy, Seeded};
pub use errand::{Errand, Findings};
pub use fault::Fault;
pub use identity::{MacAddr, NodeId, PortId, ResourceId};
pub use lan::{LinkId, LinkMode};
pub use node::{AgentSession, Job, JobKind, Lease, Node, Phase, Port};
pub use note::{Note, NoteKind};
pub use order::{Done, Order, Refusal, RefusalKind};
pub use power::{BootDevice, Cause, PowerAnswer, PowerError, PowerOrder, PowerState};
pub use resource::{Resource, ResourceKind};
pub use spelling::edit_distance;
pub use state::{ProvisionState, Verb};
pub use time::{Now, Tick, UnixMs};
pub use view::View;
