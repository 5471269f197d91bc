//! SIGHUP: renews users, tokens and server certificates while the box serves, and reads
//! the settings file again.
//!
//! A settings file with mistakes changes nothing. From a correct one, only `api.users`,
//! `api.tokens` and `[log]` take effect; the log lists the sections that need a restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::signal::unix::Signal;
use tracing::info;
use trivet_config::Settings;

use crate::auth::Authenticator;
use crate::clock::DaemonClock;
use crate::tls_identity::ServerCertificate;

/// What SIGHUP renews in a running box.
pub(crate) struct Reload {
    file: PathBuf,
    /// The settings that the box was started with.
    settings: Settings,
    auth: Authenticator,
    certificate: ServerCertificate,
    clock: DaemonClock,
}

impl Reload {
    /// For a box that was started with these settings from this file.
    pub(crate) fn new(
        (file, settings): (&Path, Settings),
        auth: &Authenticator,
        certificate: ServerCertificate,
        clock: DaemonClock,
    ) -> Self {
        Self {
            file: file.to_owned(),
            settings,
            auth: auth.clone(),
            certificate,
            clock,
        }
    }

    /// Waits for SIGHUP, and renews the certificate before it expires, until the task
    /// is aborted. A SIGHUP that arrived since `hangup` was created counts.
    pub(crate) async fn run(self, mut hangup: Signal) {
        let this = Arc::new(self);
        let hangups = async {
            while hangup.recv().await.is_some() {
                for line in Self::reload_on_thread(&this).await {
                    info!("reload: {line}");
                }
            }
        };
        tokio::join!(hangups, this.certificate.keep_valid(this.clock));
    }

    /// Runs [`Reload::reload`] on a separate thread: a file on a mount that hangs, or a
    /// pipe without a writer, must delay neither the API nor the shutdown. The caller
    /// waits for one reload before it starts another.
    async fn reload_on_thread(this: &Arc<Self>) -> Vec<String> {
        let reload = Arc::clone(this);
        let lines = tokio::task::spawn_blocking(move || reload.reload()).await;
        lines.unwrap_or_else(|error| vec![format!("the reload failed: {error}; send SIGHUP again")])
    }

    /// Renews what can be renewed. Returns the log lines about it.
    fn reload(&self) -> Vec<String> {
        let changed = self.settings_changed();
        let mut lines = self.auth.reload();
        match self.certificate.renew(self.clock.now()) {
            Ok(()) => lines.push(
                "users and tokens are reloaded, the server certificate is renewed".to_owned(),
            ),
            Err(error) => lines.push(format!("the server certificate is unchanged: {error:#}")),
        }
        lines.extend(changed);
        lines
    }

    /// Applies the settings that can change while running. Returns the log lines about
    /// the others.
    fn settings_changed(&self) -> Vec<String> {
        let shown = self.file.display();
        let text = match std::fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) => {
                return vec![format!(
                    "{shown} cannot be read, the settings are unchanged: {error}"
                )];
            }
        };
        match trivet_config::parse(&text) {
            Err(mistakes) => {
                let named = mistakes.iter().map(|mistake| format!("{shown}:{mistake}"));
                let stay = format!("{shown} has mistakes, the settings are unchanged");
                named.chain([stay]).collect()
            }
            Ok(mut new) => {
                crate::log::configure(new.log);
                let mut lines = self.apply_auth(&mut new);
                let sections = changed(&self.settings, &new);
                if !sections.is_empty() {
                    let sections = sections.join(", ");
                    lines.push(format!(
                        "changes in {sections} take effect at the next start"
                    ));
                }
                lines
            }
        }
    }
}

impl Reload {
    /// Reloads users and tokens from the files that these settings name. Returns the
    /// log lines about files that were rejected. Where no restart is needed, sets the
    /// paths in `new` back to the old ones, so that they do not count as changed.
    fn apply_auth(&self, new: &mut Settings) -> Vec<String> {
        let (Some(old), Some(api)) = (&self.settings.api, &mut new.api) else {
            return Vec::new();
        };
        let taken = self.auth.set_files(api.auth.users(), api.auth.tokens());
        if taken.is_some() {
            api.auth = old.auth.clone();
        }
        taken.unwrap_or_default()
    }
}

/// The sections that differ from the settings at the start.
fn changed(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let sections = [
        ("[box]", old.appliance != new.appliance),
        ("[api]", old.api != new.api),
        ("[inspector]", old.inspector != new.inspector),
        ("[http]", old.http != new.http),
        ("[tftp]", old.tftp != new.tftp),
        ("[panel]", old.panel != new.panel),
        ("[boot]", old.boot != new.boot),
        ("[images]", old.images != new.images),
        (
            "[[dhcp]]",
            old.dhcp != new.dhcp || old.listens_on_all_interfaces != new.listens_on_all_interfaces,
        ),
        ("[power]", old.power != new.power),
        ("[hardware]", old.hardware != new.hardware),
        ("[agent]", old.agent != new.agent),
        ("[limits]", old.limits != new.limits),
        ("[metrics]", old.metrics != new.metrics),
        ("[[webhook]]", old.webhooks != new.webhooks),
    ];
    let differ = sections.into_iter().filter(|(_, differs)| *differs);
    differ.map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;
    use crate::tls_identity;

    fn reload(file: &Path, settings: &str, users: &Path, data: &Path) -> Reload {
        let clock = DaemonClock::start();
        let authority = tls_identity::authority(data, "box", clock).unwrap();
        let names = vec!["box".to_owned()];
        let certificate = ServerCertificate::new(authority, names, Vec::new(), clock.now());
        Reload {
            file: file.to_owned(),
            settings: trivet_config::parse(settings).unwrap(),
            auth: Authenticator::from_files(Some(users), None, clock),
            certificate: certificate.unwrap(),
            clock,
        }
    }

    #[test]
    fn a_reload_renews_certificates_and_names_what_needs_a_restart() {
        let scratch = TestbedDirectory::new();
        let data = scratch.0.join("data");
        let text = |more: &str| format!("[box]\ndata = \"{}\"\n{more}", data.display());
        let file = scratch.file("trivet.toml", text("").as_bytes());
        let users = scratch.file("users", b"");
        let reload = reload(&file, &text(""), &users, &data);
        let tls = reload.certificate.tls();
        let before = Arc::as_ptr(tls.current().config());
        let lines = reload.reload().join("\n");
        assert!(lines.contains("names no user"), "{lines}");
        assert!(!lines.contains("next start"), "{lines}");
        assert_ne!(Arc::as_ptr(tls.current().config()), before);
        scratch.file("trivet.toml", text("[agent]\nwait_s = 60\n").as_bytes());
        let lines = reload.reload().join("\n");
        assert!(lines.contains("changes in [agent] take effect"), "{lines}");
        scratch.file("trivet.toml", text("[agent]\nwait = 60\n").as_bytes());
        let lines = reload.reload().join("\n");
        assert!(lines.contains("agent.wait"), "{lines}");
        assert!(lines.contains("the settings are unchanged"), "{lines}");
    }

    /// The settings file is a pipe. It is written only after the runtime's single
    /// thread has run another task.
    #[tokio::test]
    async fn a_file_that_cannot_be_read_yet_does_not_block_the_runtime() {
        let scratch = TestbedDirectory::new();
        let data = scratch.0.join("data");
        let text = format!("[box]\ndata = \"{}\"\n", data.display());
        let users = scratch.file("users", b"");
        let pipe = scratch.0.join("trivet.toml");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let reload = Arc::new(reload(&pipe, &text, &users, &data));
        let (go_on, reported) = std::sync::mpsc::channel();
        let changed = format!("{text}[agent]\nwait_s = 60\n");
        let writer = std::thread::spawn(move || {
            let reported = reported.recv_timeout(std::time::Duration::from_secs(10));
            std::fs::write(&pipe, changed).unwrap();
            reported.is_ok()
        });
        let runtime_goes_on = async { go_on.send(()).is_ok() };
        let (lines, _) = tokio::join!(Reload::reload_on_thread(&reload), runtime_goes_on);
        assert!(writer.join().unwrap(), "the runtime waited for the file");
        let lines = lines.join("\n");
        assert!(lines.contains("changes in [agent] take effect"), "{lines}");
    }
}
