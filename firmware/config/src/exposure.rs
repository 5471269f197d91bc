//! Services that every machine on a network could use or read: refused unless the
//! settings allow that explicitly.

use std::net::SocketAddr;

use crate::mistake::SettingsMistakes;
use crate::reader::SettingsSection;
use crate::settings::{ApiAuthSettings, ApiSettings, InspectorSettings, PanelSettings, Settings};

/// Passwords over plain HTTP beyond loopback, and a web page without log-in there.
pub(crate) fn check(
    root: &SettingsSection<'_>,
    api: Option<&ApiSettings>,
    inspector: Option<&InspectorSettings>,
    panel: Option<&PanelSettings>,
    mistakes: &mut SettingsMistakes,
) {
    // The sections were read before, so their mistakes are already in the list.
    let mut ignored = SettingsMistakes::of("");
    let mut allows = |section: &str, key: &str| {
        let section = root.section(section, &mut ignored);
        let flag = section.and_then(|section| section.flag(key, &mut ignored));
        flag.is_some_and(|flag| flag.value)
    };
    let plain_allowed = api.is_some_and(|api| api.allow_plain_http);
    let open_allowed = allows("panel", "allow_open");
    let mut add = |section: &str, key: &str, sentence: String| {
        let found = root.section(section, &mut ignored);
        let at = found.map_or(0, |section| section.at_key(key));
        mistakes.add(at, &format!("{section}.{key}"), sentence);
    };
    if let Some(api) = api.filter(|api| matches!(api.auth, ApiAuthSettings::Basic { .. })) {
        let listens = (!api.tls).then_some(&api.listen);
        if let Some(address) = beyond_loopback(listens).filter(|_| !plain_allowed) {
            let sentence = format!(
                "\"basic\" sends passwords to {address} in plain HTTP, where others can read \
                 them: set api.tls = true, listen on 127.0.0.1, or set api.allow_plain_http = true"
            );
            add("api", "auth", sentence);
        }
        let listens = inspector.map(|inspector| &inspector.listen);
        if let Some(address) = beyond_loopback(listens).filter(|_| !plain_allowed) {
            let sentence = format!(
                "passwords (api.auth = \"basic\") would go to {address} in plain HTTP, where \
                 others can read them: listen on 127.0.0.1, or set api.allow_plain_http = true"
            );
            add("inspector", "listen", sentence);
        }
    }
    let page = beyond_loopback(panel.map(|panel| &panel.listen));
    if let Some(address) = page.filter(|_| !open_allowed) {
        let sentence = format!(
            "the page has no log-in, so {address} is open to all: listen on 127.0.0.1, or \
             set panel.allow_open = true"
        );
        add("panel", "listen", sentence);
    }
}

/// The address to which programs send their tokens over plain HTTP beyond loopback,
/// unless the settings allow that. It is not a mistake: agents need a plain HTTP
/// address on the provisioning network, and operators may use another one.
pub fn plain_tokens(settings: &Settings) -> Option<SocketAddr> {
    let api = settings.api.as_ref()?;
    api.auth.tokens().filter(|_| !api.allow_plain_http)?;
    let inspector = settings.inspector.as_ref();
    let inspector = || beyond_loopback(inspector.map(|inspector| &inspector.listen));
    beyond_loopback((!api.tls).then_some(&api.listen)).or_else(inspector)
}

fn beyond_loopback(listen: Option<&Vec<SocketAddr>>) -> Option<SocketAddr> {
    let mut addresses = listen.into_iter().flatten();
    addresses
        .find(|address| !address.ip().to_canonical().is_loopback())
        .copied()
}
