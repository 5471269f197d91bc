//! Disk images in OCI registries (the OCI distribution and image specifications): which layer of
//! which manifest is the disk image of a reference, and how a client gets permission to read it.
//!
//! [`OciLookup`] resolves a reference: it names the next request and parses the response, until
//! the layer with the disk image is known. [`RegistryAuthorization`] answers the challenges of a
//! registry, with [`RegistryCredentials`] for its token server or for the registry itself. All
//! that comes from a registry is untrusted and bounded; a manifest is verified against its digest
//! before it is parsed. Nothing here opens a connection.

mod authorization;
mod challenge;
mod choice;
mod credentials;
mod document;
mod error;
mod lookup;

pub use authorization::{ChallengeAction, RegistryAuthorization, TOKEN_BODY_BYTES_MAX};
pub use challenge::{CHALLENGE_BYTES_MAX, RegistryChallenge, parse_challenges};
pub use choice::{LayerChoice, choose_layer, choose_manifests};
pub use credentials::RegistryCredentials;
pub use document::{
    LAYERS_MAX, MANIFEST_BYTES_MAX, MANIFESTS_MAX, OciDescriptor, OciDocument, OciManifest,
};
pub use error::OciError;
pub use lookup::{OciImage, OciLookup, OciLookupStep, OciQuery, OciRequest, OciResponse};
