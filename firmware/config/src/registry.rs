//! `[[registry]]`: registries of images that need a login or have no TLS.

use std::collections::BTreeSet;

use trivet_model::oci::{is_loopback_host, is_registry};

use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;
use crate::settings::RegistrySettings;
use crate::value;

/// The most registries. Ours.
const REGISTRIES_MAX: usize = 32;

const KNOWN: [&str; 4] = ["url", "user", "password_file", "allow_plain_http"];

pub(crate) fn registries(
    root: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> Vec<RegistrySettings> {
    let sections = root.sections("registry", REGISTRIES_MAX, mistakes);
    let mut hosts = BTreeSet::new();
    let mut all = Vec::new();
    for section in &sections {
        section.allow_only(&KNOWN, mistakes);
        let Some(registry) = registry(section, mistakes) else {
            continue;
        };
        if !hosts.insert(registry.host.clone()) {
            let sentence = format!("registry {} has two sections", registry.host);
            mistakes.add(section.at_key("url"), &section.key("url"), sentence);
        }
        all.push(registry);
    }
    all
}

fn registry(
    section: &SettingsSection<'_>,
    mistakes: &mut SettingsMistakes,
) -> Option<RegistrySettings> {
    let url = section.text("url", mistakes);
    let user = section.text("user", mistakes).map(|user| user.value);
    let password_file = value::path(section, "password_file", mistakes);
    let plain = section.flag("allow_plain_http", mistakes);
    let plain = plain.is_some_and(|flag| flag.value);
    if section.has("user") != section.has("password_file") {
        let sentence = "user and password_file belong together: set both or neither";
        mistakes.add(section.at(), &section.key("user"), sentence);
    }
    if user.is_some_and(|user| user.contains(':')) {
        let sentence = "a user must not have a colon in it";
        mistakes.add(section.at_key("user"), &section.key("user"), sentence);
    }
    if !section.has("url") {
        let sentence = "is missing: write the URL of the registry";
        mistakes.add(section.at(), &section.key("url"), sentence);
    }
    let url = url?;
    let (is_plain, host) = match url.value.split_once("://") {
        Some(("https", host)) => (false, host),
        Some(("http", host)) => (true, host),
        _ => (false, ""),
    };
    let host = host.trim_end_matches('/').to_ascii_lowercase();
    if !is_registry(&host) {
        let sentence =
            "must be https://HOST[:PORT] or http://HOST[:PORT], without a path or a user";
        mistakes.add(url.at, &section.key("url"), sentence);
        return None;
    }
    if is_plain && !plain && !is_loopback(&host) {
        let sentence = "has no TLS: any machine on the path can read the password. Use https, or \
                        set allow_plain_http = true";
        mistakes.add(url.at, &section.key("url"), sentence);
    }
    let login = user.map(str::to_owned).zip(password_file);
    Some(RegistrySettings {
        host,
        is_plain,
        login,
    })
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => host.split(':').next(),
    };
    name.is_some_and(is_loopback_host)
}
