//! Types that every crate shares: identities, time, states, records, orders, notes.
//!
//! This crate depends on no other crate of the workspace. It holds plain values and no
//! decisions: crates exchange data as these types, and `firmware/rack` passes them on.

pub mod agent;
pub mod attributes;
pub mod bmc_request;
pub mod boot;
pub mod caller;
pub mod deployment;
pub mod diagnosis;
pub mod digest;
pub mod entropy;
mod event_name;
pub mod fault;
pub mod identity;
pub mod image;
pub mod image_ahead;
pub mod index;
pub mod interface;
pub mod link;
pub mod measurement;
pub mod node;
pub mod note;
pub mod oci;
pub mod order;
pub mod power;
pub mod resource;
pub mod secret;
mod spelling;
pub mod state;
mod stored_note;
pub mod story;
pub mod time;
mod timeline;
pub mod vendor;
pub mod view;

pub use agent::{
    AgentError, AgentEvent, AgentOrder, BootPartitions, ImageAheadReport, JobStep, StepKind,
};
pub use bmc_request::{BmcReply, BmcRequest};
pub use boot::{BootPlan, KernelBoot};
pub use caller::{ApiCaller, CallerIdentity, NodeCertificate};
pub use deployment::ImageDeployment;
pub use diagnosis::{Diagnosis, SuggestedAction};
pub use digest::Digest;
pub use entropy::{Entropy, SeededRandom};
pub use event_name::EventTopic;
pub use fault::BoxFault;
pub use identity::{MacAddr, NodeId, PortId, ResourceId};
pub use image_ahead::{ImageAhead, ImageAheadPhase};
pub use link::{LinkId, LinkMode};
pub use measurement::Measurement;
pub use node::{
    AgentAuthentication, AgentCaller, AgentQuery, AgentSession, Job, JobKind, JobPhase, KeyDigest,
    Lease, Node, NodeEnrolment, Port, RedeemedEnrolment,
};
pub use note::{EvidenceNote, ImageProblem, Note, NoteKind};
pub use oci::{OciReference, OciReferenceError};
pub use order::{OrderOutcome, OrderRefusal, RackOrder, RefusalKind};
pub use power::{
    BmcFailureCause, BootDevice, PowerAnswer, PowerError, PowerOrder, PowerState, UndeliveredReason,
};
pub use resource::{Resource, ResourceKind};
pub use spelling::edit_distance;
pub use state::{ProvisionState, Verb};
pub use time::{Now, Tick, UnixMs};
pub use view::RackView;
