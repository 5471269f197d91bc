//! Commands on a host by SSH, and their output, as values.

use trivet_model::secret::SecretText;

/// Longest run time of one command line, in milliseconds.
pub const SSH_RUN_TIMEOUT_MS: u64 = 60_000;

/// Most bytes of a command's standard output that are read. Ours: enough for the list of some
/// thousand machines.
pub const SSH_STDOUT_BYTES_MAX: usize = 1024 * 1024;

/// Where the private key is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SshPrivateKey {
    /// In this file on the box.
    File(String),
    /// The key itself.
    Contents(SecretText),
}

/// The host to log in to, and the credentials.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SshHost {
    /// IP address or name.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// User.
    pub username: String,
    /// Private key.
    pub key: SshPrivateKey,
}

/// The result of a command line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SshCommandOutput {
    /// The exit status of `ssh`, which is the command's if the command was run.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
}
