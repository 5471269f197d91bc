//! What a BMC that may lie shows of its machine.

use trivet_bmc_ipmi::BootFlags;
use trivet_bmc_ipmi::bmc::Chassis;
use trivet_model::{PowerOrder, PowerState};
use trivet_rehearsal::Case;

use crate::faults::Lie;

/// The chassis as a BMC that may lie shows it.
pub(super) struct Front<'a> {
    pub(super) case: &'a mut Case,
    pub(super) lie: Option<Lie>,
    pub(super) claimed: &'a mut Option<PowerState>,
    /// Every order that reached it.
    pub(super) orders: &'a mut Vec<PowerOrder>,
}

impl Chassis for Front<'_> {
    fn power(&self) -> PowerState {
        self.claimed.unwrap_or(self.case.power())
    }

    fn control(&mut self, order: PowerOrder) {
        self.orders.push(order);
        match self.lie {
            None | Some(Lie::Forgets) => self.case.control(order),
            Some(Lie::Deaf) => {}
            Some(Lie::Claims) => {
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
        if self.lie.is_none() {
            self.case.set_boot(flags);
        }
    }
}
