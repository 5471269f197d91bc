//! The rescue: user `rescue` logs in by SSH with the password that the appliance chose.
//!
//! The ramdisk has a shell and an SSH server only if it was built with them; without them a
//! rescue fails, and says why.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the agent leaves the hash of the rescue password. The stock agent's file.
const HASH: &str = "/etc/ipa-rescue-config/ipa-rescue-password";

/// The shell of logins.
const SHELL: &str = "/bin/sh";

/// The SSH server, and where its keys are; it makes them at the first connection.
const SERVERS: [&str; 2] = ["/usr/sbin/dropbear", "/usr/bin/dropbear"];
const SERVER_KEYS: &str = "/etc/dropbear";

/// Where the agent leaves the hash, if this ramdisk can be logged in to.
pub fn rescue_file() -> Option<PathBuf> {
    server()?;
    let path = Path::new(HASH);
    fs::create_dir_all(path.parent()?).ok()?;
    Some(path.to_owned())
}

fn server() -> Option<&'static str> {
    if !Path::new(SHELL).exists() {
        return None;
    }
    SERVERS.into_iter().find(|path| Path::new(path).exists())
}

/// Lets user `rescue` log in with the password whose hash the agent left. It has the rights of
/// root: this system has nothing to protect from it.
pub fn start_rescue() -> io::Result<()> {
    let hash = fs::read_to_string(HASH)?;
    fs::remove_file(HASH)?;
    write_users(hash.trim())?;
    fs::create_dir_all(SERVER_KEYS)?;
    let server = server().ok_or(io::ErrorKind::NotFound)?;
    // In the foreground, as a child; host keys are made at the first connection.
    let started = Command::new(server).args(["-R", "-F", "-E"]).spawn();
    started.map(|_| ())
}

fn write_users(hash: &str) -> io::Result<()> {
    let [passwd, shadow] = users(hash);
    for (path, text, mode) in [
        ("/etc/passwd", passwd, 0o644),
        ("/etc/shadow", shadow, 0o600),
        ("/etc/group", "root:x:0:\n".to_owned(), 0o644),
        ("/etc/shells", format!("{SHELL}\n"), 0o644),
    ] {
        let mut options = OpenOptions::new();
        let options = options.write(true).create(true).truncate(true).mode(mode);
        options.open(path)?.write_all(text.as_bytes())?;
    }
    for home in ["/root", "/home/rescue"] {
        fs::create_dir_all(home)?;
    }
    Ok(())
}

/// The lines of passwd(5) and shadow(5). Root has no password.
fn users(hash: &str) -> [String; 2] {
    let passwd =
        format!("root:x:0:0:root:/root:{SHELL}\nrescue:x:0:0:rescue:/home/rescue:{SHELL}\n");
    let shadow = format!("root:*:19000:0:99999:7:::\nrescue:{hash}:19000:0:99999:7:::\n");
    [passwd, shadow]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_user_rescue_has_a_password() {
        let [passwd, shadow] = users("$6$salt$hash");
        assert!(passwd.contains("\nrescue:x:0:0:"));
        assert!(shadow.contains("\nrescue:$6$salt$hash:"));
        assert!(shadow.starts_with("root:*:"));
    }
}
