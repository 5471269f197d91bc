//! Parameters of the agent: from the kernel command line, from `parameters.txt` on virtual
//! media, from files of settings and from the command line of the program.
//!
//! Names and meanings are those of the Ironic Python Agent: `ipa-api-url` on the kernel command
//! line, `api_url` in a file, `--api_url` or `--api-url` as an option. The command line of the
//! program wins over files, and files over the kernel command line. Texts go in and values come
//! out; an unknown key is ignored, because kernel command lines have many.

use std::net::Ipv4Addr;
use std::time::Duration;

use trivet_agent_wire::{AGENT_PORT, TOKEN_CHARS_MIN};
use trivet_model::MacAddr;

/// Longest text of parameters. Ours; a kernel command line has at most 4 KiB.
pub const PARAMETERS_BYTES_MAX: usize = 64 * 1024;

/// Where hardware managers are that are programs. Ours.
const HARDWARE_MANAGERS: &str = "/usr/lib/trivet-agent/managers";

/// Most URLs of the appliance. Ours.
pub const API_URLS_MAX: usize = 8;

/// Parameters of the agent.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a parameter of the stock agent"
)]
pub struct AgentParameters {
    /// URLs of the appliance, tried in order, without a slash at the end.
    pub api_urls: Vec<String>,
    /// Where inspection data is posted.
    pub inspection_callback_url: Option<String>,
    /// Which collectors run.
    pub inspection_collectors: Vec<String>,
    /// The token that was given out of band.
    pub agent_token: Option<String>,
    /// The host that the appliance must call.
    pub advertise_host: Option<String>,
    /// The port that the appliance must call.
    pub advertise_port: Option<u16>,
    /// The address to listen on.
    pub listen_host: Option<String>,
    /// The port to listen on.
    pub listen_port: u16,
    /// Server certificates are not verified.
    pub insecure: bool,
    /// More log lines.
    pub debug: bool,
    /// No lookup and no heartbeats.
    pub standalone: bool,
    /// How long LLDP frames are awaited.
    pub lldp_timeout: Duration,
    /// Whether the default inventory has LLDP frames.
    pub collect_lldp: bool,
    /// How long the link that booted the machine is awaited.
    pub dhcp_wait: Duration,
    /// The hardware address of the link that booted the machine, as the loader wrote it.
    pub boot_interface: Option<String>,
    /// Virtual media are searched for parameters and files.
    pub virtual_media: bool,
    /// Static addresses, in the place of DHCP.
    pub static_addresses: Vec<StaticAddress>,
    /// Path of a file with the certificates of authorities that are trusted.
    pub ca_file: Option<String>,
    /// Path of the client certificate.
    pub certificate_file: Option<String>,
    /// Path of its key.
    pub key_file: Option<String>,
    /// The directory of the hardware managers that are programs.
    pub hardware_managers: String,
    /// Ignored failures of the boot loader's installation.
    pub ignore_bootloader_failure: bool,
}

impl Default for AgentParameters {
    fn default() -> Self {
        Self {
            api_urls: Vec::new(),
            inspection_callback_url: None,
            inspection_collectors: Vec::new(),
            agent_token: None,
            advertise_host: None,
            advertise_port: None,
            listen_host: None,
            listen_port: AGENT_PORT,
            insecure: false,
            debug: false,
            standalone: false,
            lldp_timeout: Duration::from_secs(30),
            collect_lldp: false,
            dhcp_wait: Duration::from_mins(1),
            boot_interface: None,
            virtual_media: false,
            static_addresses: Vec::new(),
            ca_file: None,
            certificate_file: None,
            key_file: None,
            hardware_managers: HARDWARE_MANAGERS.to_owned(),
            ignore_bootloader_failure: false,
        }
    }
}

/// A static address, from `ip=` on the kernel command line (the kernel's
/// Documentation/admin-guide/nfs/nfsroot.rst).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StaticAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// Length of the prefix of its network.
    pub prefix: u8,
    /// The router.
    pub gateway: Option<Ipv4Addr>,
    /// The host name.
    pub host_name: Option<String>,
    /// The interface, by name or hardware address; without it the one that booted the machine.
    pub device: Option<String>,
    /// Name servers.
    pub name_servers: Vec<Ipv4Addr>,
}

/// A mistake on the command line of the program.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ArgumentError {
    /// There is no such option.
    #[error("{0} is not an option; --help lists them")]
    Unknown(String),
    /// The option needs a value.
    #[error("{0} needs a value")]
    NoValue(String),
    /// The value does not fit the option.
    #[error("{name} does not take {value}")]
    Invalid {
        /// The option.
        name: String,
        /// The value.
        value: String,
    },
}

impl AgentParameters {
    /// Takes the parameters of a kernel command line or of `parameters.txt`. A value that does
    /// not fit is ignored: a machine that boots has nobody who could correct it.
    pub fn read_kernel_line(&mut self, text: &str) {
        for word in text.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                if word == "ipa-standalone" {
                    self.standalone = true;
                }
                continue;
            };
            match key {
                "BOOTIF" => self.boot_interface = some(value),
                "boot_method" => self.virtual_media = value == "vmedia",
                "ip" => self.static_addresses.extend(static_address(value)),
                _ => {
                    if let Some(name) = key.strip_prefix("ipa-") {
                        self.set(&name.replace('-', "_"), value);
                    }
                }
            }
        }
    }

    /// Takes the settings of a file: `[DEFAULT]` of oslo.config's format.
    pub fn read_settings_file(&mut self, text: &str) {
        let mut in_default = true;
        for line in text.lines().map(str::trim) {
            if line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(section) = line.strip_prefix('[') {
                in_default = section
                    .trim_end_matches(']')
                    .eq_ignore_ascii_case("default");
            } else if let (true, Some((key, value))) = (in_default, line.split_once('=')) {
                self.set(key.trim(), value.trim());
            }
        }
    }

    /// Takes the options of the program. Returns the rest: words without dashes.
    pub fn read_arguments<'a>(
        &mut self,
        arguments: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), ArgumentError> {
        let mut words = arguments.into_iter();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let unknown = || ArgumentError::Unknown(name.to_owned());
            let key = name
                .strip_prefix("--")
                .ok_or_else(unknown)?
                .replace('-', "_");
            let is_flag = matches!(
                key.as_str(),
                "standalone" | "debug" | "insecure" | "collect_lldp" | "ignore_bootloader_failure"
            );
            let value = match (value, is_flag) {
                (Some(value), _) => value,
                (None, true) => "true",
                (None, false) if !self.knows(&key) => return Err(unknown()),
                (None, false) => {
                    let missing = || ArgumentError::NoValue(name.to_owned());
                    words.next().ok_or_else(missing)?
                }
            };
            match self.set(&key, value) {
                Some(true) => {}
                None => return Err(unknown()),
                Some(false) => {
                    let (name, value) = (name.to_owned(), value.to_owned());
                    return Err(ArgumentError::Invalid { name, value });
                }
            }
        }
        Ok(())
    }

    fn knows(&self, key: &str) -> bool {
        self.clone().set(key, "").is_some()
    }

    /// Sets one parameter. `None`: there is no such parameter; false: the value does not fit.
    fn set(&mut self, key: &str, value: &str) -> Option<bool> {
        match key {
            "api_url" => {
                let urls = value.split(',').map(|url| url.trim().trim_end_matches('/'));
                let urls = urls.filter(|url| !url.is_empty());
                self.api_urls = urls.take(API_URLS_MAX).map(str::to_owned).collect();
            }
            "inspection_callback_url" => self.inspection_callback_url = some(value),
            "inspection_collectors" => {
                let names = value.split(',').map(str::trim);
                let names = names.filter(|name| !name.is_empty());
                self.inspection_collectors = names.map(str::to_owned).collect();
            }
            "agent_token" => {
                // The stock agent ignores shorter ones too.
                let token = Some(value).filter(|token| token.len() >= TOKEN_CHARS_MIN);
                let Some(token) = token else {
                    return Some(false);
                };
                self.agent_token = Some(token.to_owned());
            }
            "advertise_host" => self.advertise_host = some(value),
            "listen_host" => self.listen_host = some(value),
            "cafile" => self.ca_file = some(value),
            "certfile" => self.certificate_file = some(value),
            "keyfile" => self.key_file = some(value),
            "hardware_managers" => value.clone_into(&mut self.hardware_managers),
            "listen_port" => return Some(assign(&mut self.listen_port, value.parse().ok())),
            "advertise_port" => {
                return Some(assign(
                    &mut self.advertise_port,
                    value.parse().ok().map(Some),
                ));
            }
            "insecure" => return Some(assign(&mut self.insecure, truth(value))),
            "debug" => return Some(assign(&mut self.debug, truth(value))),
            "standalone" => return Some(assign(&mut self.standalone, truth(value))),
            "collect_lldp" => return Some(assign(&mut self.collect_lldp, truth(value))),
            "ignore_bootloader_failure" => {
                return Some(assign(&mut self.ignore_bootloader_failure, truth(value)));
            }
            "lldp_timeout" => return Some(assign(&mut self.lldp_timeout, seconds(value))),
            "inspection_dhcp_wait_timeout" => {
                return Some(assign(&mut self.dhcp_wait, seconds(value)));
            }
            _ => return None,
        }
        Some(true)
    }

    /// The hardware address of the link that booted the machine: `BOOTIF` is a hardware type
    /// and an address, with dashes.
    pub fn boot_mac(&self) -> Option<MacAddr> {
        let text = self.boot_interface.as_deref()?.replace('-', ":");
        let address = if text.len() > 17 {
            text.get(3..)?
        } else {
            &text
        };
        address.parse().ok()
    }
}

fn some(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

fn assign<T>(to: &mut T, value: Option<T>) -> bool {
    let fits = value.is_some();
    if let Some(value) = value {
        *to = value;
    }
    fits
}

fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn seconds(value: &str) -> Option<Duration> {
    value.parse().ok().map(Duration::from_secs)
}

/// `client-ip:server-ip:gateway:netmask:hostname:device:autoconf:dns0:dns1`. Nothing for
/// `dhcp` and other automatic methods.
fn static_address(value: &str) -> Option<StaticAddress> {
    let parts: Vec<&str> = value.split(':').collect();
    let part = |at: usize| parts.get(at).copied().filter(|part| !part.is_empty());
    let (address, prefix) = match part(0)?.split_once('/') {
        Some((address, prefix)) => (address, prefix.parse().ok()),
        None => (part(0)?, None),
    };
    let mask = part(3).and_then(|mask| mask.parse::<Ipv4Addr>().ok());
    let mask = mask.map(|mask| mask.to_bits().leading_ones() as u8);
    let prefix = prefix.or(mask).unwrap_or(24);
    Some(StaticAddress {
        address: address.parse().ok()?,
        prefix: (prefix <= 32).then_some(prefix)?,
        gateway: part(2).and_then(|gateway| gateway.parse().ok()),
        host_name: part(4).map(str::to_owned),
        device: part(5).map(str::to_owned),
        name_servers: [7, 8]
            .into_iter()
            .filter_map(|at| part(at)?.parse().ok())
            .collect(),
    })
}

#[cfg(test)]
mod tests;
