//! What the rules read of the box beside the notes of the job.

use trivet_model::UnixMs;

/// Facts of the box and of the node's record. The rack reads them from its snapshot when a
/// diagnosis is asked for; they are not stored.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SiteFacts {
    /// There is an agent that the node could boot: of the settings, of its record, or of
    /// another server.
    pub has_agent: bool,
    /// The URL of the API that machines are told.
    pub api_url: String,
    /// The address in that URL is one that only the box itself reaches.
    pub api_is_loopback: bool,
    /// The network of the machine, where it has no router and that address is not in it.
    pub api_outside_of: Option<String>,
    /// The address of the box on the network of the machines, where there is one.
    pub own_address: Option<String>,
    /// The interfaces where DHCP is received, with their mode.
    pub links: Vec<SiteLink>,
    /// Unknown machines, by when they were last seen.
    pub unknown_machines: Vec<(String, UnixMs)>,
    /// How the keys of its BMC in `driver_info` begin: `ipmi` or `redfish`; empty for others.
    pub bmc_keys: &'static str,
    /// The address of the node's BMC.
    pub bmc_address: Option<String>,
    /// The user name for it.
    pub bmc_user: Option<String>,
    /// The node that has the same BMC and uses it.
    pub bmc_shared_with: Option<String>,
    /// The names of the nodes whose machines requested a boot in place of this one's, by UUID.
    pub other_nodes: Vec<(String, String)>,
    /// The hardware addresses of the node's ports.
    pub port_macs: Vec<String>,
    /// The memory of the machine in MiB, by inspection.
    pub memory_mib: Option<u64>,
    /// The node's instance boots from the network each time.
    pub netboots_instance: bool,
    /// The median rate at which other nodes received their images, in bytes per second.
    pub neighbour_image_rate: Option<u64>,
    /// The median rate at which other nodes received their loaders, in bytes per second.
    pub neighbour_loader_rate: Option<u64>,
    /// The file that the machine is receiving.
    pub transfer: Option<TransferInProgress>,
}

/// A transfer that has begun and has not ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TransferInProgress {
    /// Its path, without secrets.
    pub path: String,
    /// Bytes sent so far.
    pub sent: u64,
    /// Bytes that were requested.
    pub requested: u64,
}

/// A link where DHCP is received.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SiteLink {
    /// The interface.
    pub name: String,
    /// The mode, as in the settings.
    pub mode: &'static str,
}
