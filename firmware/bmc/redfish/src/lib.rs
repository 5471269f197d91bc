//! Redfish client and simulated service, without input or output of their own.
//!
//! [`RedfishSession`] is the client: it logs in to one BMC, keeps the session and executes one
//! power order or operation at a time, with one request in flight. [`service`] is a simulated
//! Redfish service for tests. Requests and responses are values and time is an argument; this crate
//! uses no socket and no clock. It follows DMTF DSP0266 (the protocol) and DSP2046 (the resources).
//! A BMC's links are followed on its own origin only, so that credentials are never sent elsewhere.
//!
//! BIOS settings, firmware updates and events are not implemented yet: each would be one more
//! operation.

mod conversion;
mod fault;
mod link;
mod operation;
mod order;
mod protocol;
mod quirk;
mod script;
mod secrets;
pub mod service;
mod session;
mod target;

#[cfg(test)]
mod tests;

pub use conversion::{to_bmc_reply, to_operation};
pub use operation::{
    RedfishBootMode, RedfishInventory, RedfishOperation, RedfishReply, RedfishSecureBoot,
    RedfishSensorReading, SENSORS_MAX, URL_BYTES_MAX,
};
pub use protocol::{REQUEST_GAP_MS, RedfishProtocol};
pub use session::{ORDERS_WAITING_MAX, RedfishSession};
pub use target::{RedfishAuth, RedfishLogin, RedfishTarget};
pub use trivet_bmc::http::{
    BmcHttpCredentials, BmcHttpError, BmcHttpMethod, BmcHttpOrigin, BmcHttpRequest,
    BmcHttpResponse, BmcHttpTrust, HTTP_BODY_BYTES_MAX,
};
