//! `[power]`: timeouts of power changes and the handling of BMCs that fail.

use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;

/// How power is switched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PowerSettings {
    /// How long a power change may take before its request is repeated, once. Seconds.
    pub power_state_change_timeout_s: u32,
    /// How long a system may take to shut down, in seconds.
    pub soft_power_off_timeout_s: u32,
    /// How long a job waits for a BMC that does not answer, in seconds.
    pub bmc_wait_s: u32,
    /// Whether a BMC that accepts requests but does not execute them is restarted.
    pub bmc_reset: bool,
    /// Whether a machine whose deployment failed is switched off.
    pub power_off_after_deploy_failure: bool,
    /// Number of failed power readings in a row after which a node is in maintenance; 0
    /// is never.
    pub power_state_sync_max_retries: u32,
}

impl Default for PowerSettings {
    /// Ironic's defaults; the wait for a BMC is ours.
    fn default() -> Self {
        PowerSettings {
            power_state_change_timeout_s: 60,
            soft_power_off_timeout_s: 600,
            bmc_wait_s: 240,
            bmc_reset: true,
            power_off_after_deploy_failure: true,
            power_state_sync_max_retries: 3,
        }
    }
}

pub(crate) fn power(root: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> PowerSettings {
    let default = PowerSettings::default();
    let Some(section) = root.section("power", mistakes) else {
        return default;
    };
    let known = [
        "power_state_change_timeout_s",
        "soft_power_off_timeout_s",
        "bmc_wait_s",
        "bmc_reset",
        "power_off_after_deploy_failure",
        "power_state_sync_max_retries",
    ];
    section.allow_only(&known, mistakes);
    let change = section.number("power_state_change_timeout_s", 2..=3600, mistakes);
    let soft = section.number("soft_power_off_timeout_s", 1..=86_400, mistakes);
    let bmc_wait = section.number("bmc_wait_s", 1..=86_400, mistakes);
    let retries = section.number("power_state_sync_max_retries", 0..=1000, mistakes);
    let reset = section.flag("bmc_reset", mistakes);
    let off = section.flag("power_off_after_deploy_failure", mistakes);
    PowerSettings {
        power_state_change_timeout_s: change.unwrap_or(default.power_state_change_timeout_s),
        soft_power_off_timeout_s: soft.unwrap_or(default.soft_power_off_timeout_s),
        bmc_wait_s: bmc_wait.unwrap_or(default.bmc_wait_s),
        bmc_reset: reset.map_or(default.bmc_reset, |flag| flag.value),
        power_off_after_deploy_failure: off
            .map_or(default.power_off_after_deploy_failure, |flag| flag.value),
        power_state_sync_max_retries: retries.unwrap_or(default.power_state_sync_max_retries),
    }
}
