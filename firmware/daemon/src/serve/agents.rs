//! The settings of jobs and agents, as the rack has them.

use std::net::Ipv4Addr;

use trivet_config::{AgentAddressCheck, AgentRequirement, CleaningErase, Settings};
use trivet_rack::{AgentAddresses, CertificateRequirement, EraseScope, NodeLimits};

/// Which agents need a certificate.
pub(super) fn requirement(settings: &Settings) -> CertificateRequirement {
    match settings.agent.require {
        AgentRequirement::None => CertificateRequirement::None,
        AgentRequirement::MtlsWithToken => CertificateRequirement::WithToken,
        AgentRequirement::Mtls => CertificateRequirement::Always,
    }
}

/// From which addresses agents may call.
pub(super) fn addresses(settings: &Settings) -> AgentAddresses {
    AgentAddresses {
        any: settings.agent.address_check == AgentAddressCheck::Off,
        require_lease: settings.agent.address_check == AgentAddressCheck::Strict,
        bmc_networks: bmc_networks(settings),
    }
}

fn bmc_networks(settings: &Settings) -> Vec<(Ipv4Addr, u8)> {
    let networks = settings.hardware.bmc_networks.iter();
    networks
        .map(|network| (network.address, network.prefix))
        .collect()
}

/// The time-outs and numbers of retries of jobs.
pub(super) fn node_limits(settings: &Settings, sends_tokens: bool) -> NodeLimits {
    NodeLimits {
        boot_ms: u64::from(settings.agent.boot_wait_s) * 1000,
        agent_wait_ms: u64::from(settings.agent.wait_s) * 1000,
        heartbeat_timeout_ms: u64::from(settings.agent.heartbeat_timeout_s) * 1000,
        fast_track: settings.agent.fast_track,
        power_timeout_ms: u64::from(settings.power.power_state_change_timeout_s) * 1000,
        soft_off_ms: u64::from(settings.power.soft_power_off_timeout_s) * 1000,
        bmc_wait_ms: u64::from(settings.power.bmc_wait_s) * 1000,
        bmc_reset: settings.power.bmc_reset,
        power_off_after_deploy_failure: settings.power.power_off_after_deploy_failure,
        power_sync_retries_max: settings.power.power_state_sync_max_retries,
        erase: match settings.agent.erase {
            CleaningErase::Metadata => EraseScope::Metadata,
            CleaningErase::Full => EraseScope::Full,
            CleaningErase::None => EraseScope::None,
        },
        sends_tokens,
        ..NodeLimits::default()
    }
}
