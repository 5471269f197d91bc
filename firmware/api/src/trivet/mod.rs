//! What Ironic's API does not have: images, networks, progress, logs and requests to BMCs, below
//! `/trivet`.

pub(crate) mod agent_artifacts;
pub(crate) mod bmc_requests;
pub(crate) mod enrolment;
pub(crate) mod images;
pub(crate) mod lan;
pub(crate) mod nodes;
pub(crate) mod progress;
pub(crate) mod story;
pub(crate) mod telemetry;
