//! Reads the sections, except `[[dhcp]]`.
//!
//! Each reader defines the keys of its section, their defaults, and which values of the
//! section contradict each other.

use std::net::{Ipv4Addr, SocketAddr};

use crate::contradiction::{ListenTransport, SettingsClaims};
use crate::mistake::SettingsMistakes;
use crate::reader::{LocatedValue, SettingsSection, nearest};
use crate::settings::{
    AgentAddressCheck, AgentRamdiskSettings, AgentRequirement, AgentSettings, ApiAuthSettings,
    ApiSettings, ApplianceSettings, BootSettings, CleaningErase, HardwareSettings, HardwareType,
    HttpSettings, InspectorSettings, LimitSettings, PanelSettings, TftpSettings,
};
use crate::value;

/// Port of the API when none is given: Ironic's.
pub const API_PORT: u16 = 6385;
/// Port of the inspector's API when none is given: ironic-inspector's.
pub const INSPECTOR_PORT: u16 = 5050;
/// Port of boot files and images when none is given: ours.
pub const HTTP_PORT: u16 = 8080;
/// Port of boot files and images over TLS when none is given: ours.
pub const HTTPS_PORT: u16 = 8444;
/// Port of TFTP when none is given: RFC 1350.
pub const TFTP_PORT: u16 = 69;
/// Port of the web page when none is given: ours, usable without root.
pub const PANEL_PORT: u16 = 8443;

/// Longest addition to the kernel command line: the limit of x86 kernels.
const KERNEL_ARGS_BYTES_MAX: usize = 2048;

/// Most host names of the API. Ours.
const HOST_NAMES_MAX: usize = 16;

/// Most networks of BMCs. Ours.
const BMC_NETWORKS_MAX: usize = 16;

const STORE_MIB_DEFAULT: u32 = 64;

const BOOT_KNOWN: [&str; 11] = [
    "files",
    "loaders",
    "loader_bios",
    "loader_x64",
    "loader_ia32",
    "loader_arm64",
    "kernel",
    "ramdisk",
    "iso",
    "agent_elsewhere",
    "kernel_args",
];

pub(crate) fn appliance(
    root: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> Option<ApplianceSettings> {
    let Some(section) = root.section("box", mistakes) else {
        let sentence = "is missing: add a section [box] with data = \"DIRECTORY\"";
        mistakes.missing(0, "box.data", sentence);
        return None;
    };
    section.allow_only(&["data", "name", "store_mib"], mistakes);
    let data = value::path(&section, "data", mistakes);
    if !section.has("data") {
        let sentence = "is missing: name the directory of store and cache";
        mistakes.missing(section.at(), "box.data", sentence);
    }
    let name = value::host_name(&section, "name", mistakes);
    let store_mib = section.number("store_mib", 4..=65_536, mistakes);
    Some(ApplianceSettings {
        data: data?,
        name,
        store_mib: store_mib.unwrap_or(STORE_MIB_DEFAULT),
    })
}

/// Reads `listen` and claims its addresses; `default` is used when the key is absent.
fn listen(
    section: &SettingsSection<'_>,
    port: u16,
    default: Option<Ipv4Addr>,
    (transport, claims): (ListenTransport, &mut SettingsClaims),
    mistakes: &mut SettingsMistakes,
) -> Option<Vec<LocatedValue<SocketAddr>>> {
    let addresses = match (section.has("listen"), default) {
        (true, _) => value::listen(section, "listen", port, mistakes)?,
        (false, Some(default)) => {
            vec![LocatedValue {
                value: SocketAddr::from((default, port)),
                at: section.at(),
            }]
        }
        (false, None) => {
            let sentence = format!("is missing: add an address: listen = \"0.0.0.0:{port}\"");
            mistakes.missing(section.at(), &section.key("listen"), sentence);
            return None;
        }
    };
    for found in &addresses {
        claims.listener(section.key("listen"), transport, found.value, found.at);
    }
    Some(addresses)
}

fn plain(addresses: Vec<LocatedValue<SocketAddr>>) -> Vec<SocketAddr> {
    addresses.into_iter().map(|found| found.value).collect()
}

pub(crate) fn api(
    root: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Option<ApiSettings> {
    let section = root.section("api", mistakes)?;
    let known = [
        "listen",
        "auth",
        "users",
        "tokens",
        "allow_open",
        "allow_plain_http",
        "host_names",
        "public_url",
        "tls",
    ];
    section.allow_only(&known, mistakes);
    let tcp = (ListenTransport::Tcp, claims);
    let addresses = listen(&section, API_PORT, Some(Ipv4Addr::LOCALHOST), tcp, mistakes);
    let public_url = value::url(&section, "public_url", mistakes);
    let tls = section.flag("tls", mistakes).is_some_and(|tls| tls.value);
    // Whether it is needed is checked when all sections are read.
    let plain_http = section.flag("allow_plain_http", mistakes);
    let host_names = value::host_names(&section, "host_names", HOST_NAMES_MAX, mistakes);
    let auth = auth(&section, addresses.as_deref().unwrap_or_default(), mistakes);
    // The opposite is valid behind a proxy that terminates TLS.
    if tls
        && public_url
            .as_ref()
            .is_some_and(|url| url.starts_with("http:"))
    {
        let sentence = "starts with http: but api.tls is true: write https://";
        mistakes.add(section.at_key("public_url"), "api.public_url", sentence);
    }
    Some(ApiSettings {
        listen: plain(addresses?),
        auth: auth?,
        public_url,
        tls,
        allow_plain_http: plain_http.is_some_and(|plain| plain.value),
        host_names,
    })
}

fn auth(
    section: &SettingsSection<'_>,
    addresses: &[LocatedValue<SocketAddr>],
    mistakes: &mut SettingsMistakes,
) -> Option<ApiAuthSettings> {
    let users = value::path(section, "users", mistakes);
    let tokens = value::path(section, "tokens", mistakes);
    let allow_open = section
        .flag("allow_open", mistakes)
        .is_some_and(|open| open.value);
    if section.has("auth") {
        let text = section.text("auth", mistakes)?;
        match text.value {
            "none" => {}
            "basic" => {
                needs(section, "users", ("basic", text.at), mistakes);
                // A token file that cannot be read is a mistake, not a missing one.
                let tokens = section.has("tokens").then_some(tokens);
                return Some(ApiAuthSettings::Basic {
                    users: users?,
                    tokens: tokens.map_or(Some(None), |given| given.map(Some))?,
                });
            }
            "tokens" => {
                needs(section, "tokens", ("tokens", text.at), mistakes);
                unused(section, "users", "tokens", mistakes);
                return Some(ApiAuthSettings::Tokens { tokens: tokens? });
            }
            other => {
                let words = "write \"none\", \"basic\" or \"tokens\"";
                let sentence = format!("`{other}` is unknown: {words}");
                mistakes.add(text.at, "api.auth", sentence);
                return None;
            }
        }
    }
    for key in ["users", "tokens"] {
        unused(section, key, "none", mistakes);
    }
    let open = addresses
        .iter()
        .find(|found| !found.value.ip().is_loopback());
    if let Some(open) = open
        && !allow_open
    {
        let sentence = format!(
            "\"none\" leaves {} open to every machine: set api.auth = \"basic\" or \"tokens\", \
             listen on 127.0.0.1, or set api.allow_open = true",
            open.value
        );
        mistakes.add(section.at_key("auth"), "api.auth", sentence);
    }
    Some(ApiAuthSettings::None)
}

fn needs(
    section: &SettingsSection<'_>,
    key: &str,
    (auth, at): (&str, usize),
    mistakes: &mut SettingsMistakes,
) {
    let lines = match key {
        "users" => "user:hash",
        _ => "name:role:sha256",
    };
    if !section.has(key) {
        let sentence =
            format!("is missing: api.auth = \"{auth}\" needs the path of a file {lines}");
        mistakes.missing(at, &section.key(key), sentence);
    }
}

/// An operator who names a file of users or tokens expects that it is used.
fn unused(section: &SettingsSection<'_>, key: &str, auth: &str, mistakes: &mut SettingsMistakes) {
    if section.has(key) {
        let better = if key == "users" { "basic" } else { "tokens" };
        let sentence = format!(
            "is given but api.auth is \"{auth}\": set api.auth = \"{better}\" or remove it"
        );
        mistakes.add(section.at_key(key), &section.key(key), sentence);
    }
}

pub(crate) fn inspector(
    root: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Option<InspectorSettings> {
    let section = root.section("inspector", mistakes)?;
    section.allow_only(&["listen"], mistakes);
    let tcp = (ListenTransport::Tcp, claims);
    let addresses = listen(&section, INSPECTOR_PORT, None, tcp, mistakes)?;
    Some(InspectorSettings {
        listen: plain(addresses),
    })
}

pub(crate) fn http(
    root: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Option<HttpSettings> {
    let section = root.section("http", mistakes)?;
    section.allow_only(&["listen", "tls_listen", "public_url"], mistakes);
    let public_url = value::url(&section, "public_url", mistakes);
    let addresses = listen(
        &section,
        HTTP_PORT,
        None,
        (ListenTransport::Tcp, claims),
        mistakes,
    );
    let secure = value::listen(&section, "tls_listen", HTTPS_PORT, mistakes).unwrap_or_default();
    for found in &secure {
        claims.listener(
            section.key("tls_listen"),
            ListenTransport::Tcp,
            found.value,
            found.at,
        );
    }
    Some(HttpSettings {
        listen: plain(addresses?),
        tls_listen: plain(secure),
        public_url,
    })
}

pub(crate) fn tftp(
    root: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Option<TftpSettings> {
    let section = root.section("tftp", mistakes)?;
    section.allow_only(&["listen"], mistakes);
    let addresses = listen(
        &section,
        TFTP_PORT,
        None,
        (ListenTransport::Udp, claims),
        mistakes,
    )?;
    Some(TftpSettings {
        listen: plain(addresses),
    })
}

pub(crate) fn panel(
    root: &SettingsSection<'_>,
    claims: &mut SettingsClaims,
    mistakes: &mut SettingsMistakes,
) -> Option<PanelSettings> {
    let section = root.section("panel", mistakes)?;
    section.allow_only(&["listen", "tls", "allow_open"], mistakes);
    let tls = section.flag("tls", mistakes).is_none_or(|tls| tls.value);
    // Whether it is needed is checked when all sections are read.
    let _ = section.flag("allow_open", mistakes);
    let tcp = (ListenTransport::Tcp, claims);
    let addresses = listen(
        &section,
        PANEL_PORT,
        Some(Ipv4Addr::LOCALHOST),
        tcp,
        mistakes,
    )?;
    Some(PanelSettings {
        listen: plain(addresses),
        tls,
    })
}

pub(crate) fn boot(root: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> BootSettings {
    let mut boot = BootSettings::default();
    let Some(section) = root.section("boot", mistakes) else {
        return boot;
    };
    section.allow_only(&BOOT_KNOWN, mistakes);
    boot.files = value::path(&section, "files", mistakes);
    if let Some(loaders) = value::path(&section, "loaders", mistakes) {
        boot.loaders = loaders;
    }
    for (key, loader) in [
        ("loader_bios", &mut boot.loader.bios),
        ("loader_x64", &mut boot.loader.x64),
        ("loader_ia32", &mut boot.loader.ia32),
        ("loader_arm64", &mut boot.loader.arm64),
    ] {
        value::loader(&section, key, loader, mistakes);
    }
    let kernel = value::path(&section, "kernel", mistakes);
    let ramdisk = value::path(&section, "ramdisk", mistakes);
    for (has, lacks) in [("kernel", "ramdisk"), ("ramdisk", "kernel")] {
        if section.has(has) && !section.has(lacks) {
            let sentence = format!("is given without boot.{lacks}: the agent needs both");
            mistakes.missing(section.at_key(has), &section.key(has), sentence);
        }
    }
    boot.ramdisk = kernel
        .zip(ramdisk)
        .map(|(kernel, ramdisk)| AgentRamdiskSettings { kernel, ramdisk });
    boot.iso = value::path(&section, "iso", mistakes);
    boot.agent_elsewhere = section
        .flag("agent_elsewhere", mistakes)
        .is_some_and(|elsewhere| elsewhere.value);
    if let Some(args) = section.text_or_empty("kernel_args", mistakes) {
        if args.value.len() > KERNEL_ARGS_BYTES_MAX || !args.value.is_ascii() {
            let sentence = format!("must be ASCII and at most {KERNEL_ARGS_BYTES_MAX} bytes");
            mistakes.add(args.at, "boot.kernel_args", sentence);
        }
        args.value.trim().clone_into(&mut boot.kernel_args);
    }
    boot
}

pub(crate) fn hardware(
    root: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> HardwareSettings {
    let Some(section) = root.section("hardware", mistakes) else {
        return HardwareSettings::default();
    };
    section.allow_only(
        &["types", "redfish_ca", "ssh_keys", "bmc_networks"],
        mistakes,
    );
    let redfish_ca = value::path(&section, "redfish_ca", mistakes);
    let ssh_keys = value::path(&section, "ssh_keys", mistakes);
    let bmc_networks = value::networks(&section, "bmc_networks", BMC_NETWORKS_MAX, mistakes);
    let names: Vec<&str> = HardwareType::ALL.iter().map(|known| known.name()).collect();
    let mut types = Vec::new();
    // The list may name each type once, so it is never longer than this.
    let Some(texts) = section.texts("types", names.len() + 16, mistakes) else {
        return HardwareSettings {
            redfish_ca,
            ssh_keys,
            bmc_networks,
            ..HardwareSettings::default()
        };
    };
    for text in texts {
        let known = HardwareType::ALL
            .into_iter()
            .find(|known| known.name() == text.value);
        match known {
            Some(known) if types.contains(&known) => {
                let sentence = format!("`{}` is listed twice", text.value);
                mistakes.add(text.at, "hardware.types", sentence);
            }
            Some(known) => types.push(known),
            None => {
                let meant = nearest(text.value, &names)
                    .map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
                let sentence = format!(
                    "`{}` is not a hardware type{meant}; known so far: {}",
                    text.value,
                    names.join(", ")
                );
                mistakes.add(text.at, "hardware.types", sentence);
            }
        }
    }
    HardwareSettings {
        types,
        redfish_ca,
        ssh_keys,
        bmc_networks,
    }
}

pub(crate) fn agent(root: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> AgentSettings {
    let default = AgentSettings::default();
    let Some(section) = root.section("agent", mistakes) else {
        return default;
    };
    let known = [
        "heartbeat_timeout_s",
        "boot_wait_s",
        "wait_s",
        "plain_http",
        "erase",
        "fast_track",
        "address_check",
        "require",
    ];
    section.allow_only(&known, mistakes);
    let timeout = section.number("heartbeat_timeout_s", 10..=86_400, mistakes);
    let boot_wait = section.number("boot_wait_s", 10..=86_400, mistakes);
    let wait = section.number("wait_s", 10..=86_400, mistakes);
    AgentSettings {
        heartbeat_timeout_s: timeout.unwrap_or(default.heartbeat_timeout_s),
        boot_wait_s: boot_wait.unwrap_or(default.boot_wait_s),
        wait_s: wait.unwrap_or(default.wait_s),
        plain_http: section
            .flag("plain_http", mistakes)
            .is_some_and(|plain| plain.value),
        erase: erase(&section, mistakes),
        fast_track: section
            .flag("fast_track", mistakes)
            .is_some_and(|stays| stays.value),
        address_check: address_check(&section, mistakes),
        require: requirement(&section, mistakes),
    }
}

fn requirement(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> AgentRequirement {
    let Some(text) = section.text("require", mistakes) else {
        return AgentRequirement::default();
    };
    match text.value {
        "none" => AgentRequirement::None,
        "mtls-with-token" => AgentRequirement::MtlsWithToken,
        "mtls" => AgentRequirement::Mtls,
        other => {
            let sentence =
                format!("`{other}` is unknown: write \"none\", \"mtls-with-token\" or \"mtls\"");
            mistakes.add(text.at, &section.key("require"), sentence);
            AgentRequirement::default()
        }
    }
}

fn address_check(
    section: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> AgentAddressCheck {
    let Some(text) = section.text("address_check", mistakes) else {
        return AgentAddressCheck::default();
    };
    match text.value {
        "normal" => AgentAddressCheck::Normal,
        "strict" => AgentAddressCheck::Strict,
        "off" => AgentAddressCheck::Off,
        other => {
            let sentence = format!("`{other}` is unknown: write \"normal\", \"strict\" or \"off\"");
            mistakes.add(text.at, &section.key("address_check"), sentence);
            AgentAddressCheck::default()
        }
    }
}

fn erase(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> CleaningErase {
    let Some(text) = section.text("erase", mistakes) else {
        return CleaningErase::default();
    };
    match text.value {
        "metadata" => CleaningErase::Metadata,
        "full" => CleaningErase::Full,
        "none" => CleaningErase::None,
        other => {
            let sentence =
                format!("`{other}` is unknown: write \"metadata\", \"full\" or \"none\"");
            mistakes.add(text.at, &section.key("erase"), sentence);
            CleaningErase::default()
        }
    }
}

pub(crate) fn limits(root: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> LimitSettings {
    let default = LimitSettings::default();
    let Some(section) = root.section("limits", mistakes) else {
        return default;
    };
    let known = [
        "connections_max",
        "transfers_max",
        "boots_at_once",
        "power_fresh_s",
    ];
    section.allow_only(&known, mistakes);
    let connections = section.number("connections_max", 16..=65_536, mistakes);
    let transfers = section.number("transfers_max", 1..=16_384, mistakes);
    let fresh = section.number("power_fresh_s", 0..=86_400, mistakes);
    LimitSettings {
        connections_max: connections.unwrap_or(default.connections_max),
        transfers_max: transfers.or(default.transfers_max),
        boots_at_once: boots_at_once(&section, mistakes),
        power_fresh_s: fresh.unwrap_or(default.power_fresh_s),
    }
}

/// A number, or `"auto"`, which is the default.
fn boots_at_once(section: &SettingsSection<'_>, mistakes: &mut SettingsMistakes) -> Option<u32> {
    const KEY: &str = "boots_at_once";
    if section.is_text(KEY) {
        let word = section.text(KEY, mistakes)?;
        if word.value != "auto" {
            let sentence = "must be a number or \"auto\"".to_owned();
            mistakes.add(word.at, &section.key(KEY), sentence);
        }
        return None;
    }
    section.number(KEY, 1..=1024, mistakes)
}
