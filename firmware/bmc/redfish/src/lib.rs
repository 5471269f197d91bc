//! Redfish, both ends, without input or output of their own.
//!
//! [`Session`] is the appliance's end: it logs in to one BMC, keeps the session and
//! carries out one order or errand at a time, one request at a time. [`service`] is the
//! other end, a simulated service for tests. Requests go out as values and answers come
//! in as values, time is an argument; neither end knows a socket or a clock. The texts
//! followed are DMTF DSP0266 (the protocol) and DSP2046 (the resources). A BMC's links
//! are followed on its own origin only, so that credentials never go anywhere else.
//!
//! BIOS settings, firmware and events are not here yet: each would be one more errand.

mod conversion;
mod fault;
mod http;
mod link;
mod operation;
mod order;
mod quirk;
mod script;
mod secrets;
pub mod service;
mod session;
mod target;

#[cfg(test)]
mod tests;

pub use conversion::{to_bmc_reply, to_operation};
pub use http::{
    RedfishCredentials, RedfishMethod, RedfishRequest, RedfishResponse, RedfishTransportError,
};
pub use operation::{
    RedfishBootMode, RedfishInventory, RedfishOperation, RedfishReply, RedfishSecureBoot,
    RedfishSensorReading, SENSORS_MAX, URL_BYTES_MAX,
};
pub use session::{BODY_BYTES_MAX, ORDERS_WAITING_MAX, REQUEST_TIMEOUT_MS, RedfishSession};
pub use target::{
    PIN_BYTES, RedfishAuth, RedfishLogin, RedfishOrigin, RedfishTarget, RedfishTrust,
};
