//! Event subscriptions: a BMC sends its events to a URL.

use serde::Serialize;

use crate::secret::SecretText;

/// Longest text in a subscription, in bytes. Ours.
pub const SUBSCRIPTION_TEXT_BYTES_MAX: usize = 1024;

/// Most event types and HTTP headers of a subscription. Ours.
pub const SUBSCRIPTION_LIST_MAX: usize = 32;

/// What a caller asks a BMC to send, and where to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EventSubscription {
    /// The URL that receives the events; it may contain credentials.
    pub destination: SecretText,
    /// The protocol, such as `Redfish`.
    pub protocol: String,
    /// A text that the BMC sends with each event; clients put tokens there.
    pub context: SecretText,
    /// The types of events; empty means `Alert`, as in Ironic.
    pub event_types: Vec<String>,
    /// HTTP headers that the BMC sends with each event: name and value, which is often a
    /// credential.
    pub http_headers: Vec<(String, SecretText)>,
}

/// A subscription as the BMC describes it, with the keys of Redfish, which Ironic returns.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BmcSubscription {
    /// The name that the BMC gave it.
    pub id: String,
    /// The context of the request.
    pub context: String,
    /// The URL that receives the events.
    pub destination: String,
    /// The types of events.
    pub event_types: Vec<String>,
    /// The protocol.
    pub protocol: String,
}
