//! What a BMC that may lie shows of its machine.

use trivet_bmc_ipmi::BootFlags;
use trivet_bmc_ipmi::bmc::Chassis;
use trivet_model::{PowerOrder, PowerState, Tick};
use trivet_rehearsal::Case;

use super::slow::Slow;
use super::{Effect, Machine};
use crate::faults::Lie;

/// A change of power was requested for the third time before the machine followed.
pub(crate) const THIRD_REQUEST: &str = "third power request";

/// The chassis as a BMC that may lie shows it.
struct Front<'a> {
    case: &'a mut Case,
    slow: &'a mut Slow,
    now: Tick,
    lie: Option<Lie>,
    claimed: &'a mut Option<PowerState>,
    /// Every order that reached it.
    orders: &'a mut Vec<PowerOrder>,
}

impl Chassis for Front<'_> {
    fn power(&self) -> PowerState {
        self.claimed.unwrap_or(self.case.power())
    }

    fn control(&mut self, order: PowerOrder) {
        self.orders.push(order);
        match self.lie {
            None | Some(Lie::Forgets) => {
                if self.slow.takes(self.now, order) {
                    self.case.control(order);
                }
            }
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

impl Machine {
    pub(crate) fn bmc_datagram(&mut self, now: Tick, bytes: &[u8], out: &mut Vec<Effect>) {
        if self.hangs {
            return;
        }
        let mut orders = Vec::new();
        let mut front = Front {
            case: &mut self.case,
            slow: &mut self.slow,
            now,
            lie: self.lie,
            claimed: &mut self.claimed,
            orders: &mut orders,
        };
        if let Some(bytes) = self.bmc.datagram(0, bytes, &mut front, &mut self.entropy) {
            out.push(Effect::Bmc(bytes));
        }
        if !orders.is_empty() && self.slow.requests() > 2 {
            out.push(Effect::Met(THIRD_REQUEST));
        }
        out.extend(orders.into_iter().map(Effect::Controlled));
        self.settle(now, out);
    }

    /// It follows its BMC at once.
    pub(crate) fn is_quick(&mut self) {
        self.slow = Slow::none();
    }

    pub(crate) fn bmc_well(&mut self, restarted: bool) {
        (self.lie, self.hangs, self.claimed) = (None, false, None);
        if restarted {
            self.bmc.restart();
        }
    }
}
