//! The chassis as a faulty BMC reports it.

use trivet_bmc_ipmi::BootFlags;
use trivet_bmc_ipmi::bmc::IpmiChassis;
use trivet_model::{PowerOrder, PowerState, Tick};
use trivet_sim::SimChassis;

use super::power_delay::MachinePowerDelay;
use super::{FaultyMachine, SimMachineOutput};
use crate::faults::InjectedBmcFault;

/// A change of power was requested for the third time before the machine followed.
pub(crate) const THIRD_REQUEST: &str = "third power request";

/// The chassis as a faulty BMC reports it.
struct FaultyChassis<'a> {
    case: &'a mut SimChassis,
    power_delay: &'a mut MachinePowerDelay,
    now: Tick,
    fault: Option<InjectedBmcFault>,
    claimed: &'a mut Option<PowerState>,
    /// Every power order it received.
    orders: &'a mut Vec<PowerOrder>,
}

impl IpmiChassis for FaultyChassis<'_> {
    fn power(&self) -> PowerState {
        self.claimed.unwrap_or(self.case.power())
    }

    fn control(&mut self, order: PowerOrder) {
        self.orders.push(order);
        match self.fault {
            None | Some(InjectedBmcFault::ForgetsBootDevice) => {
                if self.power_delay.accept(self.now, order) {
                    self.case.control(order);
                }
            }
            Some(InjectedBmcFault::IgnoresOrders) => {}
            Some(InjectedBmcFault::ClaimsSuccess) => {
                *self.claimed = Some(match order {
                    PowerOrder::Off | PowerOrder::SoftOff => PowerState::Off,
                    _ => PowerState::On,
                });
            }
        }
    }

    fn boot(&self) -> BootFlags {
        self.case.boot()
    }

    fn set_boot(&mut self, flags: BootFlags) {
        if self.fault.is_none() {
            self.case.set_boot(flags);
        }
    }
}

impl FaultyMachine {
    pub(crate) fn bmc_datagram(
        &mut self,
        now: Tick,
        bytes: &[u8],
        out: &mut Vec<SimMachineOutput>,
    ) {
        if self.bmc_hangs {
            return;
        }
        let mut orders = Vec::new();
        let mut front = FaultyChassis {
            case: &mut self.case,
            power_delay: &mut self.power_delay,
            now,
            fault: self.bmc_fault,
            claimed: &mut self.claimed,
            orders: &mut orders,
        };
        if let Some(bytes) = self.bmc.datagram(0, bytes, &mut front, &mut self.entropy) {
            out.push(SimMachineOutput::Bmc(bytes));
        }
        if !orders.is_empty() && self.power_delay.requests() > 2 {
            out.push(SimMachineOutput::Observed(THIRD_REQUEST));
        }
        out.extend(orders.into_iter().map(SimMachineOutput::Controlled));
        self.run_to_quiescence(now, out);
    }

    /// Disables the delay between BMC and machine.
    pub(crate) fn switch_power_at_once(&mut self) {
        self.power_delay = MachinePowerDelay::none();
    }

    pub(crate) fn recover_bmc(&mut self, restarted: bool) {
        (self.bmc_fault, self.bmc_hangs, self.claimed) = (None, false, None);
        if restarted {
            self.bmc.restart();
        }
    }
}
