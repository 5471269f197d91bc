//! Ironic's resources and requests, below `/v1`.

pub(crate) mod agent;
pub(crate) mod drivers;
pub(crate) mod events;
pub(crate) mod nodes;
pub(crate) mod openapi_document;
pub(crate) mod passthru;
pub(crate) mod ports;
pub(crate) mod resources;
pub(crate) mod root;
pub(crate) mod ssh_access;
