//! A running kernel with its address and, in the ramdisk, its agent.

use trivet_certs_enrol::MailboxContent;
use trivet_model::Tick;
use trivet_sim::{AgentKernelArguments, SimHardware};

use super::SimMachineOutput;
use super::own_agent::{OwnAgent, SimAgentLocation};
use super::stock_agent::StockAgent;
use crate::dhcp_client::RenewingDhcpClient;
use crate::ipa::SimAgentEffect;

/// A running kernel: the agent's ramdisk or the installed system.
pub(super) struct HostSystem {
    pub(super) dhcp: RenewingDhcpClient,
    /// The kernel arguments of the agent; `None` in an installed system or after our own
    /// agent's process has died.
    pub(super) line: Option<AgentKernelArguments>,
    pub(super) agent: Option<RunningAgent>,
}

/// What an agent that starts finds.
pub(super) struct AgentStart<'a> {
    pub(super) hardware: &'a SimHardware,
    /// The seed of the stock agent; without it our own agent starts.
    pub(super) stock: Option<u64>,
    /// Reads the token in the BMC, once.
    pub(super) take_token: &'a mut dyn FnMut() -> Option<MailboxContent>,
}

/// The running agent.
pub(super) enum RunningAgent {
    Own(Box<OwnAgent>),
    Stock(Box<StockAgent>),
}

impl HostSystem {
    pub(super) fn deadline(&self) -> Option<Tick> {
        let agent = match &self.agent {
            None => None,
            Some(RunningAgent::Own(own)) => own.deadline(),
            Some(RunningAgent::Stock(stock)) => stock.deadline(),
        };
        // Without an address the agent can do nothing.
        let agent = agent.filter(|at| self.dhcp.address(*at).is_some());
        self.dhcp.deadline().into_iter().chain(agent).min()
    }

    /// Starts the agent once there is an address, sends its messages, and returns its changes
    /// to the machine.
    pub(super) fn poll_agent(
        &mut self,
        now: Tick,
        start: AgentStart<'_>,
        (machine, life): (usize, u64),
        out: &mut Vec<SimMachineOutput>,
    ) -> Vec<SimAgentEffect> {
        let Some(peer) = self.dhcp.address(now) else {
            return Vec::new();
        };
        if self.agent.is_none()
            && let Some(line) = &self.line
            && line.api_url.is_some()
        {
            let hardware = start.hardware;
            self.agent = Some(match start.stock {
                Some(seed) => {
                    RunningAgent::Stock(Box::new(StockAgent::new(now, hardware, line, peer, seed)))
                }
                None => {
                    let token = (start.take_token)();
                    let own = OwnAgent::new(now, (hardware, life), line, peer, token);
                    RunningAgent::Own(Box::new(own))
                }
            });
        }
        let location = SimAgentLocation {
            machine,
            life,
            peer,
        };
        match &mut self.agent {
            None => {}
            Some(RunningAgent::Own(own)) => own.transmit(now, location, out),
            Some(RunningAgent::Stock(stock)) => return stock.transmit(now, location, out),
        }
        Vec::new()
    }
}
