//! Images that are written ahead: which seeds have them.

use trivet_model::SeededRandom;
use trivet_rack::{ImageAheadAmount, ImageAheadRule};

use super::RackSimulation;
use crate::faults::SeedFaults;
use crate::image_faults::AHEAD_IMAGE;

impl RackSimulation {
    /// Seeds with fast track have the image of all nodes written ahead.
    pub(super) fn write_ahead_for_seed(&mut self, seed: u64) {
        if self.box_under_test.settings.limits.fast_track {
            let mut chance = SeededRandom::new(seed.rotate_left(17) ^ 0xa4_ead0);
            self.write_images_ahead(|| chance.below(90_000));
        }
    }

    /// One machine with our own agent and fast track, whose image is written ahead while its node
    /// is available for so long.
    pub(crate) fn with_image_ahead(available_ms: u64) -> Self {
        let (faults, chance) = (SeedFaults::default(), SeededRandom::new(8));
        let mut simulation = Self::with(8, &[false], faults, chance, true);
        simulation.box_under_test.settings.limits.fast_track = true;
        simulation.operators[0].use_plain_plan(None);
        simulation.write_images_ahead(|| available_ms);
        simulation
    }

    /// The image is in the catalogue and wanted on all nodes, which stay available for a while.
    fn write_images_ahead(&mut self, mut available_ms: impl FnMut() -> u64) {
        self.box_under_test.settings.images_ahead = vec![ImageAheadRule {
            image: AHEAD_IMAGE.to_owned(),
            amount: ImageAheadAmount::Percent(100),
            resource_class: None,
        }];
        let entry = self.box_under_test.image.catalogue_entry();
        for operator in &mut self.operators {
            operator.expect_ahead(entry.clone(), available_ms());
        }
    }
}
