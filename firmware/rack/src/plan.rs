//! What a machine boots into, and the script that says so.

use trivet_httpboot::AgentBoot;
use trivet_model::{BootPlan, JobKind, MacAddr, Node, ProvisionState};

use crate::Rack;

impl Rack {
    pub(crate) fn script(&self, mac: MacAddr) -> String {
        let node = self.book.node_of_mac(mac).and_then(|id| self.book.node(id));
        let plan = node.map_or(BootPlan::Wait, |node| plan(node));
        let inspect = node
            .and_then(|node| node.job.as_ref())
            .is_some_and(|job| job.kind == JobKind::Inspect);
        let boot = AgentBoot {
            http_url: &self.settings.http_url,
            api_url: &self.settings.api_url,
            inspect,
            kernel_args: &self.settings.kernel_args,
        };
        trivet_httpboot::script(mac, plan, &boot)
    }
}

/// What a machine boots into, by where its node is.
fn plan(node: &Node) -> BootPlan {
    if trivet_node::boots_agent(node) {
        return BootPlan::Agent;
    }
    let state = node.provision_state;
    let kind = node.job.as_ref().map(|job| job.kind);
    let has_instance = match kind {
        Some(kind) => matches!(
            kind,
            JobKind::Deploy | JobKind::Unrescue | JobKind::Service | JobKind::Adopt
        ),
        None => matches!(
            state,
            ProvisionState::Active
                | ProvisionState::RescueFail
                | ProvisionState::UnrescueFail
                | ProvisionState::ServiceFail
        ),
    };
    if has_instance {
        BootPlan::Disk
    } else {
        BootPlan::Wait
    }
}
