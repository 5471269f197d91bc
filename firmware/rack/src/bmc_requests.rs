//! BMC requests other than power, over any protocol.
//!
//! A BMC request is like a vendor method with another time limit: the reply is deferred, a node
//! has at most one, and it is queued behind the orders that the BMC already has.

use trivet_drivers::management_interface;
use trivet_model::bmc_request::BMC_REQUEST_MS_MAX;
use trivet_model::interface::ManagementInterface;
use trivet_model::{BmcReply, BmcRequest, Node, NodeId, Now, PowerError};

use crate::Rack;
use crate::power_control::BmcTransport;

/// How long the reply to a BMC request may take, in ms: the orders before it take time too.
pub(crate) const BMC_REPLY_WAIT_MS_MAX: u64 = BMC_REQUEST_MS_MAX + 60_000;

/// Which transport runs a BMC request: the one of the node's management interface.
pub(crate) fn management_transport(node: &Node) -> BmcTransport {
    let said = match management_interface(node) {
        Some(ManagementInterface::Ipmitool) => return BmcTransport::Ipmi,
        Some(ManagementInterface::Redfish) => return BmcTransport::Redfish,
        Some(ManagementInterface::Fake) => {
            "this node has fake hardware without a BMC; choose a driver with a BMC"
        }
        Some(ManagementInterface::Noop) => {
            "the node's driver has no management by a BMC; choose a driver with a BMC"
        }
        None => "this box does not know the node's hardware type; choose another driver",
    };
    BmcTransport::Unsupported(PowerError::Unsupported { said })
}

impl Rack {
    /// Sends a BMC request over the node's transport. Its number is returned with the reply.
    pub(crate) fn send_bmc_request(
        &mut self,
        now: Now,
        node: &Node,
        number: u64,
        bmc_request: &BmcRequest,
    ) {
        let way = management_transport(node);
        if matches!(way, BmcTransport::Ipmi | BmcTransport::Redfish)
            && let Some(error) = self.shared_bmc(node.id)
        {
            return self.bmc_request_answered(now, node.id, number, Err(error));
        }
        let given = match way {
            BmcTransport::Ipmi => self.ipmi_transport.send_bmc_request(
                now.tick,
                node,
                number,
                bmc_request,
                &mut *self.entropy,
            ),
            BmcTransport::Redfish => {
                self.redfish_transport
                    .send_bmc_request(now.tick, node, number, bmc_request)
            }
            BmcTransport::Unsupported(error) => Err(error),
            BmcTransport::Ssh | BmcTransport::WakeOnLan | BmcTransport::Fake => {
                Err(PowerError::Unsupported {
                    said: "this node has no BMC; choose a driver with a BMC",
                })
            }
        };
        if let Err(error) = given {
            self.bmc_request_answered(now, node.id, number, Err(error));
        }
    }

    /// A BMC request has ended, on any transport.
    pub(crate) fn bmc_request_answered(
        &mut self,
        now: Now,
        id: NodeId,
        number: u64,
        result: Result<BmcReply, PowerError>,
    ) {
        // A request whose wait has ended was noted at that time.
        let Some(bmc_request) = self.pending_bmc_request(id, number) else {
            return;
        };
        let outcome = match &result {
            // The caller is noted already, and nothing has changed.
            Ok(_) if bmc_request.is_read_only() => None,
            Ok(_) => Some("done".to_owned()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(outcome) = outcome {
            self.note_vendor(now, id, bmc_request.word().to_owned(), outcome);
        }
        if let Ok(findings) = &result {
            self.store_boot_modes(now, id, &bmc_request, findings);
        }
        let result = result.map(|findings| findings.value());
        let result = result.map_err(|error| crate::vendor::refusal(id, &error));
        self.send_deferred_reply(id, result);
    }

    /// Stores in the node's record the boot modes that the BMC reported.
    pub(crate) fn store_boot_modes(
        &mut self,
        now: Now,
        id: NodeId,
        bmc_request: &BmcRequest,
        findings: &BmcReply,
    ) {
        let Some(old) = self.records.node(id) else {
            return;
        };
        let mut node = (**old).clone();
        match (bmc_request, findings) {
            (BmcRequest::SetBootMode(mode), _) | (_, BmcReply::BootMode(Some(mode))) => {
                node.attributes.boot_mode = Some(*mode);
            }
            (BmcRequest::SetSecureBoot(on), _) | (_, BmcReply::SecureBoot(Some(on))) => {
                node.attributes.secure_boot = Some(*on);
            }
            _ => return,
        }
        if node.attributes != old.attributes {
            self.records.put_node(now, node);
        }
    }
}
