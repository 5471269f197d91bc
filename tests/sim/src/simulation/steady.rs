//! Racks on which nothing goes wrong, and which go on when all is done.

use trivet_model::SeededRandom;

use super::RackSimulation;
use crate::faults::SeedFaults;

/// As in the default settings.
const POWER_SYNC_MS: u64 = 60_000;

impl RackSimulation {
    /// So many machines with our own agent and no faults. The power sync is on.
    pub(crate) fn steady(machines: usize) -> Self {
        let mut simulation = Self::with(
            8,
            &vec![false; machines],
            SeedFaults::default(),
            SeededRandom::new(8),
            false,
        );
        let under_test = &mut simulation.box_under_test;
        under_test.settings.power_sync_interval_ms = Some(POWER_SYNC_MS);
        under_test.enlarge_flash();
        for operator in &mut simulation.operators {
            operator.use_plain_plan(None);
        }
        for machine in &mut simulation.machines {
            machine.switch_power_at_once();
        }
        simulation
    }

    /// Runs for this time more, whether or not there is work.
    pub(crate) fn run_for(&mut self, ms: u64) {
        let end = self.now.after_ms(ms);
        while let Some((at, event)) = self.queue.pop() {
            if at > end {
                self.now = end;
                break;
            }
            self.now = at;
            self.handle(event);
            self.arm_box();
        }
    }
}
