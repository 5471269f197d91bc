//! The ladder: what is done about a machine or a BMC that does not do as it was told.
//! Each rung is stronger than the one before, and each is taken once.

use trivet_model::{Cause, PowerError, PowerOrder};

/// The strongest: the BMC starts anew. Cold, because a warm one keeps what ails it.
pub(super) const BMC_RESET: PowerOrder = PowerOrder::BmcReset { warm: false };

/// How a machine that was not heard is booted again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rung {
    /// Reset, with the power on.
    Reset,
    /// Off, seen off, and on.
    Cycle,
    /// The same after the BMC was restarted.
    BmcReset,
}

/// The rung for the boot with this number, which is not the first, of so many.
pub(super) fn boot(number: u32, most: u32) -> Rung {
    match number {
        2 if most > 2 => Rung::Reset,
        last if last == most && most > 3 => Rung::BmcReset,
        _ => Rung::Cycle,
    }
}

/// Whether a BMC that failed an order so often, of so many tries, is restarted now. One
/// that is not there cannot be told to, and for one that waits its turn it is no cure.
pub(super) fn restarts_bmc(error: Option<&PowerError>, tries: u32, most: u32) -> bool {
    let hears = !matches!(
        error,
        Some(
            PowerError::Silent { .. }
                | PowerError::Busy
                | PowerError::NoFreeSession
                | PowerError::Host { .. }
                | PowerError::Bmc {
                    cause: Cause::Unreachable | Cause::Busy,
                    ..
                }
        )
    );
    hears && most > 3 && tries == most / 2
}

/// What else to do about an operator's order that was taken and did not come true after so
/// many looks of so many: said again, then stronger, then the BMC is restarted.
pub fn rung(order: PowerOrder, looks: u32, most: u32) -> Option<PowerOrder> {
    let quarter = (most / 4).max(1);
    match (looks / quarter, looks % quarter) {
        (1, 0) => Some(order),
        (2, 0) if order == PowerOrder::Off => Some(order),
        (2, 0) => Some(PowerOrder::Cycle),
        (3, 0) => Some(BMC_RESET),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_boot_is_stronger_than_the_one_before() {
        let all = |most| (2..=most).map(|it| boot(it, most)).collect::<Vec<_>>();
        assert_eq!(all(1), []);
        assert_eq!(all(2), [Rung::Cycle]);
        assert_eq!(all(3), [Rung::Reset, Rung::Cycle]);
        assert_eq!(all(4), [Rung::Reset, Rung::Cycle, Rung::BmcReset]);
        let five = [Rung::Reset, Rung::Cycle, Rung::Cycle, Rung::BmcReset];
        assert_eq!(all(5), five);
    }

    #[test]
    fn an_order_that_does_not_come_true_is_given_by_stronger_means() {
        let rungs = |order| (1..=60).filter_map(move |looks| rung(order, looks, 60));
        let on: Vec<_> = rungs(PowerOrder::On).collect();
        assert_eq!(on, [PowerOrder::On, PowerOrder::Cycle, BMC_RESET]);
        // What is to be off is never switched on for it.
        let off: Vec<_> = rungs(PowerOrder::Off).collect();
        assert_eq!(off, [PowerOrder::Off, PowerOrder::Off, BMC_RESET]);
    }

    #[test]
    fn a_bmc_that_hears_is_restarted_once_at_half_time() {
        let refused = PowerError::Refused { code: 0xff };
        let times = |error, most| {
            (1..=most)
                .filter(|it| restarts_bmc(error, *it, most))
                .count()
        };
        assert_eq!(times(Some(&refused), 10), 1);
        assert_eq!(times(Some(&PowerError::Occupied), 10), 1);
        assert_eq!(times(None, 10), 1, "it lied");
        assert_eq!(times(Some(&PowerError::Silent { waited_ms: 1 }), 10), 0);
        assert_eq!(times(Some(&PowerError::Busy), 10), 0);
        assert_eq!(times(Some(&refused), 2), 0, "there is no time for it");
    }
}
