//! The agent's messages, both directions.
//!
//! Plain serde types of the protocol between an appliance and the Ironic Python
//! Agent, as version 13.0.0 speaks it: lookup, heartbeat, inspection (agent to
//! appliance) and commands (appliance to agent). The driver, our own agent and the
//! simulated rack all use these, so none of them can drift from the others.
//!
//! Reading is lenient: an unknown field is ignored and a field of the wrong type
//! counts as missing, because ramdisks differ and no agent may be lost for a
//! detail. What must be there is required by whoever acts on it.

pub mod appliance;
pub mod command;
pub mod image;
pub mod inventory;
mod lenient;

pub use appliance::{HeartbeatBody, LookupAnswer, LookupConfig, LookupNode, VersionDocument};
pub use command::{
    AgentFault, CommandError, CommandList, CommandRequest, CommandResult, CommandStatus, IpaStep,
};
pub use image::ImageInfo;
pub use inventory::{InspectionDocument, IpaInventory};

/// The port a stock agent listens on.
pub const AGENT_PORT: u16 = 9999;

/// A shorter token is ignored by the agent without a word.
pub const TOKEN_CHARS_MIN: usize = 32;

/// What stands in a lookup answer when the token was handed out before.
pub const TOKEN_MASK: &str = trivet_model::secret::MASK;

/// The header that chooses the microversion of the API.
pub const VERSION_HEADER: &str = "x-openstack-ironic-api-version";
/// The oldest microversion a server knows.
pub const VERSION_MIN_HEADER: &str = "x-openstack-ironic-api-minimum-version";
/// The newest microversion a server knows.
pub const VERSION_MAX_HEADER: &str = "x-openstack-ironic-api-maximum-version";
/// A request's identity, sent when the agent was given one.
pub const REQUEST_ID_HEADER: &str = "x-openstack-request-id";

/// The newest microversion an agent sends with a lookup.
pub const LOOKUP_VERSION: &str = "1.62";
/// The newest microversion an agent sends with a heartbeat.
pub const HEARTBEAT_VERSION: &str = "1.68";

/// Where an agent asks who it is.
pub const LOOKUP_PATH: &str = "/v1/lookup";
/// Where an agent says it is alive; the node's UUID follows.
pub const HEARTBEAT_PATH: &str = "/v1/heartbeat/";
/// Where an agent sends what it found.
pub const INSPECTION_PATH: &str = "/v1/continue_inspection";
/// Where an agent takes commands. Without the last slash it answers with a
/// redirect that carries the token.
pub const COMMANDS_PATH: &str = "/v1/commands/";
/// The query parameter that carries the token.
pub const TOKEN_PARAMETER: &str = "agent_token";
