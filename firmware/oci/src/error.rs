//! Why a reference is not resolved or a layer is not served, in sentences for the operator.

/// Why there is no image of a reference. Each sentence says what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OciError {
    /// The registry needs a login, and there are no credentials.
    #[error(
        "registry {registry} needs a login for repository {repository}: set image_pull_secret in \
         the instance_info of the node, or add a section [[registry]] to the settings"
    )]
    NoCredentials {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
    },
    /// The file with the password of the settings cannot be read.
    #[error("the password_file of registry {registry} in the settings cannot be read: {why}")]
    PasswordFile {
        /// The registry.
        registry: String,
        /// The path and the error of the operating system.
        why: String,
    },
    /// The token server or the registry refused user and password.
    #[error(
        "registry {registry} refused the login of {user} for repository {repository} ({why}): \
         correct user and password in image_pull_secret, or in [[registry]] of the settings"
    )]
    LoginRefused {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
        /// The user, or a text for a secret without one.
        user: String,
        /// What refused it, with the status.
        why: String,
    },
    /// The registry does not accept the token.
    #[error(
        "registry {registry} refused the token for repository {repository} ({why}): give {user} \
         permission to pull from it, or use other credentials"
    )]
    TokenRefused {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
        /// The user, or a text for a client without one.
        user: String,
        /// The response.
        why: String,
    },
    /// The challenge cannot be answered.
    #[error("registry {registry} asks for authorization in an unsupported way: {why}")]
    Challenge {
        /// The registry.
        registry: String,
        /// What is unsupported.
        why: String,
    },
    /// The token server gave no usable token.
    #[error("the token server of registry {registry} at {realm} {why}")]
    TokenServer {
        /// The registry.
        registry: String,
        /// The URL.
        realm: String,
        /// The reason.
        why: String,
    },
    /// There is no such tag, digest or repository.
    #[error(
        "registry {registry} has no {object} in repository {repository}: correct the reference, or \
         push the image"
    )]
    NotFound {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
        /// `tag X` or `manifest X`.
        object: String,
    },
    /// The manifest has another digest.
    #[error(
        "registry {registry} served a manifest with a wrong digest for {object} in repository \
         {repository}: {expected} is expected, {found} was found; push the image again"
    )]
    ManifestDigest {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
        /// What was requested.
        object: String,
        /// The expected digest.
        expected: String,
        /// The digest of the response.
        found: String,
    },
    /// The manifest is not one.
    #[error("registry {registry} served no usable manifest for {object} in {repository}: {why}")]
    Manifest {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
        /// What was requested.
        object: String,
        /// What is wrong.
        why: String,
    },
    /// No layer is a disk image.
    #[error(
        "{reference} has no usable disk image{wanted}; it has: {found}. Push a raw, qcow2, zstd, \
         gzip or xz disk image as one layer, with its file name as org.opencontainers.image.title"
    )]
    NoLayer {
        /// The reference.
        reference: String,
        /// ` for architecture X`, or nothing.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// The registry has a problem now.
    #[error(
        "registry {registry} answered with status {status} for {object} in {repository}; retry"
    )]
    Status {
        /// The registry.
        registry: String,
        /// The repository.
        repository: String,
        /// What was requested.
        object: String,
        /// The status.
        status: u16,
    },
    /// The registry cannot be reached.
    #[error("registry {registry} {why}; fix the network path to it, then retry")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The reason.
        why: String,
    },
}

impl OciError {
    /// Whether a retry without a change gives the same result.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Status { .. } | Self::Unreachable { .. } | Self::TokenServer { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_of_the_network_is_not_final() {
        let unreachable = OciError::Unreachable {
            registry: "h".into(),
            why: "does not answer".into(),
        };
        assert!(!unreachable.is_final());
        assert_eq!(
            unreachable.to_string(),
            "registry h does not answer; fix the network path to it, then retry"
        );
        let absent = OciError::NotFound {
            registry: "h".into(),
            repository: "a".into(),
            object: "tag 12".into(),
        };
        assert!(absent.is_final());
        assert!(
            absent
                .to_string()
                .contains("registry h has no tag 12 in repository a")
        );
    }
}
