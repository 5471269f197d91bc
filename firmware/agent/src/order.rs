//! In which order steps run.

use core::cmp::Reverse;

use trivet_model::Step;

/// Ironic's order of interfaces for steps of equal priority, first runs first.
const INTERFACES: [&str; 7] = [
    "vendor",
    "power",
    "management",
    "firmware",
    "deploy",
    "bios",
    "raid",
];

/// The steps that run by themselves (priority above zero), in the order they run.
/// Equal steps keep the order the agent gave them.
pub fn order_steps(steps: Vec<Step>) -> Vec<Step> {
    let place = |step: &Step| {
        let known = INTERFACES.iter().position(|&word| word == step.interface);
        known.unwrap_or(INTERFACES.len())
    };
    let mut ordered: Vec<Step> = steps.into_iter().filter(|step| step.priority > 0).collect();
    ordered.sort_by_key(|step| (Reverse(step.priority), place(step)));
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(name: &str, interface: &str, priority: i64) -> Step {
        Step {
            step: name.to_owned(),
            interface: interface.to_owned(),
            priority,
            args: json!({}),
            reboot_requested: false,
            abortable: true,
        }
    }

    fn names(steps: Vec<Step>) -> Vec<String> {
        order_steps(steps)
            .into_iter()
            .map(|step| step.step)
            .collect()
    }

    #[test]
    fn the_higher_priority_runs_first_and_zero_does_not_run() {
        let steps = vec![
            step("erase_devices", "deploy", 10),
            step("burnin_cpu", "deploy", 0),
            step("erase_devices_metadata", "deploy", 99),
            step("odd", "deploy", -1),
        ];
        assert_eq!(names(steps), ["erase_devices_metadata", "erase_devices"]);
    }

    #[test]
    fn ties_go_by_interface_then_by_the_order_given() {
        let steps = vec![
            step("h", "unheard", 5),
            step("g", "raid", 5),
            step("f", "bios", 5),
            step("e1", "deploy", 5),
            step("e2", "deploy", 5),
            step("d", "firmware", 5),
            step("c", "management", 5),
            step("b", "power", 5),
            step("a", "vendor", 5),
        ];
        assert_eq!(
            names(steps),
            ["a", "b", "c", "d", "e1", "e2", "f", "g", "h"]
        );
    }

    #[test]
    fn no_steps_are_no_steps() {
        assert!(order_steps(Vec::new()).is_empty());
    }
}
