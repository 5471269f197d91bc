//! How a machine that was not seen is booted again: each time with a stronger method.

use trivet_model::PowerOrder;

/// The strongest: the BMC restarts. Cold, because a warm restart may keep the error.
pub(super) const BMC_RESET: PowerOrder = PowerOrder::BmcReset { warm: false };

/// How a machine that was not seen is booted again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BootEscalation {
    /// Reset, without a power-off.
    Reset,
    /// Power off, wait until it is seen off, and power on.
    Cycle,
    /// The same after the BMC was restarted.
    BmcReset,
}

/// The method for the boot with this number, which is not the first, of at most `most`. The
/// last of four or more restarts the BMC, where that is allowed.
pub(super) fn boot_escalation(number: u32, most: u32, resets_bmc: bool) -> BootEscalation {
    match number {
        2 if most > 2 => BootEscalation::Reset,
        last if last == most && most > 3 && resets_bmc => BootEscalation::BmcReset,
        _ => BootEscalation::Cycle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_boot_is_stronger_than_the_one_before() {
        let all = |most, resets_bmc| {
            let boots = (2..=most).map(|number| boot_escalation(number, most, resets_bmc));
            boots.collect::<Vec<_>>()
        };
        assert_eq!(all(1, true), []);
        assert_eq!(all(2, true), [BootEscalation::Cycle]);
        assert_eq!(all(3, true), [BootEscalation::Reset, BootEscalation::Cycle]);
        let four = [
            BootEscalation::Reset,
            BootEscalation::Cycle,
            BootEscalation::BmcReset,
        ];
        assert_eq!(all(4, true), four);
        let five = [
            BootEscalation::Reset,
            BootEscalation::Cycle,
            BootEscalation::Cycle,
            BootEscalation::BmcReset,
        ];
        assert_eq!(all(5, true), five);
    }

    #[test]
    fn a_bmc_is_not_restarted_for_a_boot_where_the_settings_forbid_it() {
        assert_eq!(boot_escalation(4, 4, false), BootEscalation::Cycle);
    }
}
