//! Runs command lines on other hosts, through the system's `ssh` program. Nothing is
//! retried here.
//!
//! `ssh` gets every option on its command line and reads no configuration of a user. A
//! host's key is stored at the first connection and must be the same after that.

use std::ffi::OsString;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Semaphore;
use trivet_rack::bmc::ssh_host::{
    SSH_RUN_TIMEOUT_MS, SSH_STDOUT_BYTES_MAX, SshCommandOutput, SshHost, SshPrivateKey,
};

/// The most command lines that run at once.
const RUNS_MAX: usize = 16;

/// Prefix of the names of our temporary key files.
const KEY_PREFIX: &str = "key-";

/// Runs command lines; one directory holds the keys and the known hosts.
#[derive(Clone)]
pub(crate) struct SshCommandRunner {
    directory: PathBuf,
    /// The directory of private keys that nodes may name; without it nodes cannot name
    /// any.
    keys: Option<PathBuf>,
    permits: Arc<Semaphore>,
}

impl SshCommandRunner {
    /// Removes key files that were left behind by a power cut.
    pub(crate) fn new(data: &Path, keys: Option<&Path>) -> Self {
        let directory = data.join("ssh");
        for entry in std::fs::read_dir(&directory).into_iter().flatten() {
            if let Ok(entry) = entry
                && entry.file_name().to_string_lossy().starts_with(KEY_PREFIX)
            {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Self {
            directory,
            keys: keys.map(Path::to_owned),
            permits: Arc::new(Semaphore::new(RUNS_MAX)),
        }
    }

    /// Runs one line; returns its result, or why it did not run. `run` names its key
    /// file.
    pub(crate) async fn run(
        &self,
        run: u64,
        target: &SshHost,
        command: &str,
    ) -> Result<SshCommandOutput, String> {
        let Ok(_place) = self.permits.acquire().await else {
            return Err("the box is stopping".to_owned());
        };
        let own = |error: std::io::Error| format!("ssh cannot be used on this box: {error}");
        crate::private::own_directory(&self.directory).map_err(own)?;
        let key = match &target.key {
            SshPrivateKey::File(path) => SshKeyFile::named_by_node(path, self.keys.as_deref())?,
            SshPrivateKey::Contents(key) => {
                let path = self.directory.join(format!("{KEY_PREFIX}{run}"));
                SshKeyFile::write_temporary(path, key.reveal().as_bytes()).map_err(own)?
            }
        };
        let known_hosts = self.directory.join("known_hosts");
        let arguments = arguments(target, &key.path, &known_hosts, command);
        let limit = Duration::from_millis(SSH_RUN_TIMEOUT_MS);
        match tokio::time::timeout(limit, exchange(arguments)).await {
            Ok(ran) => ran.map_err(own),
            Err(_) => Err(format!(
                "the host {} did not end the command within {SSH_RUN_TIMEOUT_MS} ms",
                target.address
            )),
        }
    }
}

/// A private key on disk; a file that we wrote is removed when this is dropped.
struct SshKeyFile {
    path: PathBuf,
    temporary: bool,
}

impl SshKeyFile {
    /// A file that a node names: it must be in the directory of the settings, also
    /// after following symbolic links.
    fn named_by_node(path: &str, keys: Option<&Path>) -> Result<Self, String> {
        let Some(keys) = keys else {
            return Err(format!(
                "ssh_key_filename {path} is not allowed: put keys into a directory and name it in \
                 the settings, hardware.ssh_keys"
            ));
        };
        let unreadable = |error| format!("ssh_key_filename {path} cannot be read: {error}");
        let found = Path::new(path).canonicalize().map_err(unreadable)?;
        let within = keys
            .canonicalize()
            .is_ok_and(|keys| found.starts_with(keys));
        if !within {
            let keys = keys.display();
            return Err(format!(
                "ssh_key_filename {path} is not in {keys} (hardware.ssh_keys in the settings)"
            ));
        }
        let (path, ours) = (found, false);
        Ok(Self {
            path,
            temporary: ours,
        })
    }

    fn write_temporary(path: PathBuf, key: &[u8]) -> std::io::Result<Self> {
        let _ = std::fs::remove_file(&path);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path)?;
        let key_file = Self {
            path,
            temporary: true,
        };
        std::io::Write::write_all(&mut file, key)?;
        Ok(key_file)
    }
}

impl Drop for SshKeyFile {
    fn drop(&mut self) {
        if self.temporary {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn arguments(target: &SshHost, key: &Path, known_hosts: &Path, command: &str) -> Vec<OsString> {
    // In these options ssh interprets percent signs and spaces.
    let plain = |path: &Path| path.display().to_string().replace('%', "%%");
    let options = [
        "BatchMode=yes".to_owned(),
        "ClearAllForwardings=yes".to_owned(),
        "ConnectTimeout=10".to_owned(),
        "ForwardAgent=no".to_owned(),
        "GlobalKnownHostsFile=none".to_owned(),
        "IdentitiesOnly=yes".to_owned(),
        "IdentityAgent=none".to_owned(),
        format!("IdentityFile=\"{}\"", plain(key)),
        "PasswordAuthentication=no".to_owned(),
        "RequestTTY=no".to_owned(),
        "ServerAliveCountMax=3".to_owned(),
        "ServerAliveInterval=5".to_owned(),
        "StrictHostKeyChecking=accept-new".to_owned(),
        format!("UserKnownHostsFile=\"{}\"", plain(known_hosts)),
    ];
    let mut arguments: Vec<OsString> = vec!["-F".into(), "none".into(), "-T".into()];
    for option in options {
        arguments.extend(["-o".into(), option.into()]);
    }
    arguments.extend(["-p".into(), target.port.to_string().into()]);
    arguments.extend(["-l".into(), target.username.clone().into()]);
    arguments.extend(["--".into(), target.address.clone().into(), command.into()]);
    arguments
}

async fn exchange(arguments: Vec<OsString>) -> std::io::Result<SshCommandOutput> {
    let mut child = Command::new("ssh")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // At the timeout, dropping the future ends the process.
        .kill_on_drop(true)
        .spawn()?;
    let (mut printed, mut complained) = (Vec::new(), Vec::new());
    let most = SSH_STDOUT_BYTES_MAX as u64;
    let out = child.stdout.take().map(|out| out.take(most));
    let err = child.stderr.take().map(|err| err.take(most));
    tokio::try_join!(
        async {
            match out {
                Some(mut out) => out.read_to_end(&mut printed).await,
                None => Ok(0),
            }
        },
        async {
            match err {
                Some(mut err) => err.read_to_end(&mut complained).await,
                None => Ok(0),
            }
        },
    )?;
    // A process that prints more than we read is ended by the closed pipe.
    let status = child.wait().await?;
    Ok(SshCommandOutput {
        // A process that was ended by a signal has no exit status of the host.
        status: status.code().unwrap_or(255),
        stdout: printed,
        stderr: complained,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::TestbedDirectory;
    use trivet_model::secret::SecretText;

    fn target(key: SshPrivateKey) -> SshHost {
        SshHost {
            address: "127.0.0.1".to_owned(),
            port: 1,
            username: "nobody".to_owned(),
            key,
        }
    }

    #[test]
    fn every_option_is_ours_and_the_command_is_one_word() {
        let target = target(SshPrivateKey::File("/k/50% \"x".to_owned()));
        let words = arguments(&target, Path::new("/k/50%"), Path::new("/d/kh"), "a; b c");
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        assert!(words.iter().any(|word| word == "IdentityFile=\"/k/50%%\""));
        assert_eq!(words[words.len() - 3..], ["--", "127.0.0.1", "a; b c"]);
        assert!(words.iter().any(|word| word == "BatchMode=yes"));
    }

    #[tokio::test]
    async fn a_key_of_the_record_is_on_disk_only_while_it_is_used() {
        let scratch = TestbedDirectory::new();
        let runner = SshCommandRunner::new(&scratch.0, None);
        let target = target(SshPrivateKey::Contents(SecretText::new("no key\n")));
        // Nothing listens on port 1; where ssh is not installed, the error says so.
        match runner.run(7, &target, "true").await {
            Ok(ran) => assert_eq!(ran.status, 255),
            Err(message) => assert!(message.contains("ssh cannot be used"), "{message}"),
        }
        let left: Vec<_> = std::fs::read_dir(scratch.0.join("ssh"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name.to_string_lossy().starts_with("key"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn keys_that_were_left_behind_are_removed_and_nothing_else() {
        let scratch = TestbedDirectory::new();
        scratch.file("ssh/key-7", b"k");
        scratch.file("ssh/known_hosts", b"h");
        SshCommandRunner::new(&scratch.0, None);
        assert!(!scratch.0.join("ssh/key-7").exists());
        assert!(scratch.0.join("ssh/known_hosts").exists());
    }

    #[test]
    fn a_key_file_is_readable_by_the_box_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let scratch = TestbedDirectory::new();
        let path = scratch.0.join("key");
        let key_file = SshKeyFile::write_temporary(path.clone(), b"k").unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(key_file);
        assert!(!path.exists());
    }

    #[test]
    fn a_key_file_lies_in_the_directory_of_the_settings() {
        let scratch = TestbedDirectory::new();
        let inside = scratch.file("keys/id", b"key");
        let outside = scratch.file("secret", b"secret");
        std::os::unix::fs::symlink(&outside, scratch.0.join("keys/link")).unwrap();
        let keys = scratch.0.join("keys");
        let named =
            |path: &Path| SshKeyFile::named_by_node(&path.display().to_string(), Some(&keys));
        assert_eq!(
            named(&inside).ok().map(|key| key.path.clone()),
            Some(inside.clone())
        );
        for path in [
            outside,
            keys.join("link"),
            keys.join("../secret"),
            keys.join("absent"),
        ] {
            let message = named(&path).err().unwrap();
            assert!(message.contains("ssh_key_filename"), "{message}");
        }
        let message = SshKeyFile::named_by_node("/k", None).err().unwrap();
        assert!(message.contains("hardware.ssh_keys"), "{message}");
    }
}
