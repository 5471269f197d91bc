//! The settings file: TOML text -> checked [`Settings`], or every mistake in it.
//!
//! Decides which keys a file may have and the default of each. Refuses unknown keys,
//! contradictions and values out of range, all of them at once and each with its line.
//! Does not look at the machine: the daemon checks whether a directory exists or a port
//! is free, so the same text always has the same result.

mod contradiction;
mod dhcp;
mod exposure;
mod images;
mod images_ahead;
mod log;
mod mistake;
mod power;
mod reader;
mod registry;
mod service;
mod settings;
#[cfg(test)]
mod tests;
mod value;
mod webhook;

use toml::de::DeTable;

pub use crate::dhcp::{DHCP_MAX, DNS_MAX, RANGE_ADDRESSES_MAX};
pub use crate::exposure::plain_tokens;
pub use crate::log::{LogFormat, LogLevel, LogSettings};
pub use crate::mistake::{MISTAKES_MAX, SettingsMistake};
pub use crate::power::PowerSettings;
pub use crate::reader::TEXT_BYTES_MAX;
pub use crate::service::{API_PORT, HTTP_PORT, HTTPS_PORT, INSPECTOR_PORT, PANEL_PORT, TFTP_PORT};
pub use crate::settings::{
    AgentAddressCheck, AgentRamdiskSettings, AgentRequirement, AgentSettings, ApiAuthSettings,
    ApiSettings, ApplianceSettings, BootLoaderSettings, BootSettings, CleaningErase, DailyWindow,
    DhcpMode, DhcpPoolSettings, DhcpSettings, DhcpSource, HardwareSettings, HardwareType,
    HttpSettings, ImageAheadNodes, ImageAheadSettings, ImageCacheSettings, InspectorSettings,
    Ipv4Network, LimitSettings, PanelSettings, RegistrySettings, Settings, TftpSettings,
};
pub use crate::value::{LISTEN_MAX, LOADER_BYTES_MAX};
pub use crate::webhook::{MetricsSettings, WEBHOOKS_MAX, WebhookSettings};

use crate::contradiction::SettingsClaims;
use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;

/// Longest file that is read. Ours: the commented default file is a fortieth of it.
pub const FILE_BYTES_MAX: usize = 256 * 1024;

const SECTIONS: [&str; 17] = [
    "box",
    "api",
    "inspector",
    "http",
    "tftp",
    "panel",
    "boot",
    "images",
    "registry",
    "dhcp",
    "hardware",
    "power",
    "agent",
    "limits",
    "log",
    "metrics",
    "webhook",
];

/// A commented settings file with every key, ready to be edited.
pub fn default_file() -> &'static str {
    include_str!("default.toml")
}

/// Reads a settings file; returns all its mistakes, in the order of the file.
pub fn parse(text: &str) -> Result<Settings, Vec<SettingsMistake>> {
    let mut mistakes = SettingsMistakes::of(text);
    if text.len() > FILE_BYTES_MAX {
        let sentence = format!("the file is longer than {FILE_BYTES_MAX} bytes");
        mistakes.add(0, "", sentence);
        return Err(mistakes.sorted());
    }
    // The parser continues after an error; what it recovers is still checked, so a
    // forgotten quote does not hide the mistakes below it.
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        mistakes.not_toml(error.span().map_or(0, |span| span.start), error.message());
    }
    let settings = read(&SettingsSection::root(document.get_ref()), &mut mistakes);
    match (settings, mistakes.sorted()) {
        (Some(settings), none) if none.is_empty() => Ok(settings),
        (_, mistakes) => Err(mistakes),
    }
}

fn read(root: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> Option<Settings> {
    root.allow_only(&SECTIONS, mistakes);
    let mut claims = SettingsClaims::default();
    let appliance = service::appliance(root, mistakes);
    let api = service::api(root, &mut claims, mistakes);
    let inspector = service::inspector(root, &mut claims, mistakes);
    let http = service::http(root, &mut claims, mistakes);
    let tftp = service::tftp(root, &mut claims, mistakes);
    let panel = service::panel(root, &mut claims, mistakes);
    let boot = service::boot(root, mistakes);
    let images = images::images(root, mistakes);
    let registries = registry::registries(root, mistakes);
    let dhcp = dhcp::entries(root, &mut claims, mistakes);
    let hardware = service::hardware(root, mistakes);
    let power = power::power(root, mistakes);
    let agent = service::agent(root, mistakes);
    let limits = service::limits(root, mistakes);
    let log = log::log(root, mistakes);
    let metrics = webhook::metrics(root, mistakes);
    let webhooks = webhook::webhooks(root, mistakes);
    claims.check(mistakes);
    contradiction::check_data_is_not_served(root, mistakes);
    exposure::check(
        root,
        api.as_ref(),
        inspector.as_ref(),
        panel.as_ref(),
        mistakes,
    );
    let appliance = appliance?;
    Some(Settings {
        appliance,
        api,
        inspector,
        http,
        tftp,
        panel,
        boot,
        images,
        registries,
        dhcp,
        listens_on_all_interfaces: !root.has("dhcp"),
        hardware,
        power,
        agent,
        limits,
        log,
        metrics,
        webhooks,
    })
}
