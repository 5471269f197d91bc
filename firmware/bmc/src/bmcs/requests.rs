//! BMC requests other than power: which protocol carries them, and where the reply goes.

use trivet_model::bmc_request::HiddenBytes;
use trivet_model::{BmcReply, BmcRequest, NodeId, PowerError};

use super::{BmcExchange, Bmcs};
use crate::context::BmcContext;
use crate::outcome::{BmcOutcome, BmcRequestOrigin, MailboxUse};
use crate::protocol::{BmcReach, BmcTarget};

impl Bmcs {
    /// Sends a request of a job about the medium that its machine boots from. The result is
    /// [`BmcOutcome::MediumAnswered`].
    pub fn medium_request(&mut self, context: &mut BmcContext, id: NodeId, request: &BmcRequest) {
        let ejects = matches!(request, BmcRequest::EjectMedia { .. });
        self.send_request(context, id, BmcRequestOrigin::Medium { ejects }, request);
    }

    /// Writes the boot mailbox for a job. The result is [`BmcOutcome::MailboxWritten`].
    pub fn write_mailbox(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        content: HiddenBytes,
        of: MailboxUse,
    ) {
        let request = BmcRequest::WriteMailbox(content);
        self.send_request(context, id, BmcRequestOrigin::Mailbox(of), &request);
    }

    /// Sends a BMC request of a caller or of a job.
    pub(crate) fn send_request(
        &mut self,
        context: &mut BmcContext,
        id: NodeId,
        origin: BmcRequestOrigin,
        request: &BmcRequest,
    ) {
        let Some(node) = context.nodes.node(id) else {
            return;
        };
        let route = self.serving(node, crate::vendor::interface_of(node, request));
        let reach = route
            .as_ref()
            .map_or(BmcReach::Record, |at| self.protocols[*at].reach());
        let protocol = route.as_ref().ok().map(|at| self.protocols[*at].name());
        let number = self.start_exchange(context.now, id, origin, None, (reach, protocol));
        let given = route.and_then(|at| {
            if self.protocols[at].bmc_identity(node).is_some()
                && let Some(error) = self.shared_bmc(context, id)
            {
                return Err(error);
            }
            let macs = context.nodes.macs(id);
            let target = BmcTarget {
                node,
                macs: &macs,
                boots_agent: context.nodes.boots_agent(node),
            };
            let protocol = &mut self.protocols[at];
            protocol.request(&mut context.of_protocol(), &target, number, request)
        });
        if let Err(error) = given {
            self.rejected.push_back((number, error));
        }
    }

    /// Where the reply to a request goes, by its origin.
    pub(super) fn route_reply(
        &mut self,
        exchange: &BmcExchange,
        reply: Result<BmcReply, PowerError>,
    ) {
        let node = exchange.node;
        match exchange.origin {
            BmcRequestOrigin::Vendor { ticket } => {
                self.vendor_request_answered(node, ticket, reply);
            }
            BmcRequestOrigin::Medium { ejects } => {
                self.outcomes.push_back(BmcOutcome::MediumAnswered {
                    node,
                    ejects,
                    result: reply.map(|_| ()),
                });
            }
            BmcRequestOrigin::Mailbox(of) => {
                let result = reply.map(|_| ());
                let outcome = BmcOutcome::MailboxWritten { node, of, result };
                self.outcomes.push_back(outcome);
            }
            BmcRequestOrigin::Order(_)
            | BmcRequestOrigin::PowerChange
            | BmcRequestOrigin::PowerSync => {}
        }
    }
}
