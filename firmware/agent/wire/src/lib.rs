//! The agent's messages, both directions.
//!
//! Plain serde types of the protocol between an appliance and the Ironic Python Agent, version
//! 13.0.0: lookup, heartbeat, inspection (agent to appliance) and commands (appliance to
//! agent). The driver, our own agent and the simulated rack all use these, so that they stay
//! compatible.
//!
//! Reading is lenient: an unknown field is ignored and a field of the wrong type counts as
//! missing, because ramdisks differ and no agent may be lost because of a detail. Code that
//! needs a field checks that it is present.

pub mod appliance;
pub mod command;
pub mod image;
pub mod inventory;
mod lenient;

pub use appliance::{
    EnrolmentAnswer, EnrolmentBody, HeartbeatBody, LookupAnswer, LookupConfig, LookupNode,
    VersionDocument,
};
pub use command::{
    AgentFault, CommandError, CommandList, CommandRequest, CommandResult, CommandStatus, IpaStep,
};
pub use image::ImageInfo;
pub use inventory::{InspectionDocument, IpaInventory};

/// The port a stock agent listens on.
pub const AGENT_PORT: u16 = 9999;

/// The agent silently ignores a shorter token, in characters.
pub const TOKEN_CHARS_MIN: usize = 32;

/// Sent in a lookup reply when the token was issued before.
pub const TOKEN_MASK: &str = trivet_model::secret::MASK;

/// The header that selects the microversion of the API.
pub const VERSION_HEADER: &str = "x-openstack-ironic-api-version";
/// The oldest microversion a server supports.
pub const VERSION_MIN_HEADER: &str = "x-openstack-ironic-api-minimum-version";
/// The newest microversion a server supports.
pub const VERSION_MAX_HEADER: &str = "x-openstack-ironic-api-maximum-version";
/// The identifier of a request, sent when the agent has one.
pub const REQUEST_ID_HEADER: &str = "x-openstack-request-id";

/// The newest microversion an agent sends with a lookup.
pub const LOOKUP_VERSION: &str = "1.62";
/// The newest microversion an agent sends with a heartbeat.
pub const HEARTBEAT_VERSION: &str = "1.68";

/// Path of the lookup, by which an agent finds its node.
pub const LOOKUP_PATH: &str = "/v1/lookup";
/// Path of the heartbeat; the node's UUID follows.
pub const HEARTBEAT_PATH: &str = "/v1/heartbeat/";
/// Path for requests of certificates. Only Trivet has it.
pub const ENROLMENT_PATH: &str = "/trivet/enrol";
/// Path for inspection data.
pub const INSPECTION_PATH: &str = "/v1/continue_inspection";
/// Path of the agent's commands. Without the last slash the agent replies with a redirect that
/// contains the token.
pub const COMMANDS_PATH: &str = "/v1/commands/";
/// The query parameter that contains the token.
pub const TOKEN_PARAMETER: &str = "agent_token";
