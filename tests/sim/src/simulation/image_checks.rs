//! What must hold for images at the end of a run.

use trivet_model::{ProvisionState, RackView};

use super::RackSimulation;
use crate::machine::SimMachineDisk;
use crate::operator::SimOperator;

impl RackSimulation {
    /// No node is active with other bytes than those of its image, no wrong image was complete,
    /// and where nothing but the image had faults, a node is active or its error names the image.
    pub(super) fn check_images(&mut self, view: &RackView) {
        let only_image = self.faults.are_of_image_only();
        let plans = self.operators.iter().all(SimOperator::is_plain);
        for operator in &self.operators {
            let Some(node) = view.nodes.get(&operator.node).map(|view| &view.node) else {
                continue;
            };
            let machine = &self.machines[operator.machine()];
            let has_image = machine.disk == SimMachineDisk::Image(self.image);
            let is_active = node.provision_state == ProvisionState::Active;
            if is_active && !has_image {
                let sentence = format!("{} is active without its image", node.label());
                self.checks.violations.push(sentence);
            }
            let error = node.last_error.as_deref().unwrap_or_default();
            if only_image && plans && !is_active && !error.to_lowercase().contains("image") {
                let sentence = format!("{} is not deployed: {error:?}", node.label());
                self.checks.violations.push(sentence);
            }
        }
        let wrong = self.box_under_test.wrong_images();
        let sentences = wrong
            .into_iter()
            .map(|key| format!("{key} was complete and wrong"));
        self.checks.violations.extend(sentences);
    }
}
