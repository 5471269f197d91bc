//! Seals (encrypts) the secrets of records.
//!
//! Every value under a secret key, at any depth of a free-form object, is removed from the text
//! of the object and stored after it, sealed. The text contains no mark for it, so no value of
//! an operator can be mistaken for a sealed value. The nonce is a keyed digest of the value and
//! its place, so equal records have equal bytes and this crate needs no randomness. A sealed
//! value is bound to its place and cannot be opened in another record, field or key.

use std::fmt;

use ring::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trivet_board_hal::BoxKey;
use trivet_model::node::JsonObject;
use trivet_model::secret::{is_sealed_key, without_url_credentials};

use crate::error::RecordError;
use crate::schema::{self, JSON_DEPTH_MAX};
use crate::{RecordKey, RecordKind};

/// Inputs of the derivation of keys (RFC 5869). They are ours and never change.
const SALT: &[u8] = b"trivet store";
const CIPHER_INFO: &[u8] = b"seal 1 chacha20-poly1305";
const NONCE_INFO: &[u8] = b"seal 1 nonce hmac-sha256";

/// The keys for sealing, derived from the key of the store.
pub(crate) struct Sealer {
    cipher: LessSafeKey,
    nonces: hmac::Key,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Sealer(..)")
    }
}

impl Sealer {
    pub(crate) fn new(key: &BoxKey) -> Self {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(key.expose());
        let cipher = root.expand(&[CIPHER_INFO], &aead::CHACHA20_POLY1305);
        let nonces = root.expand(&[NONCE_INFO], hmac::HMAC_SHA256);
        let short = "a key of 32 bytes is not too long for HKDF";
        Self {
            cipher: LessSafeKey::new(UnboundKey::from(cipher.expect(short))),
            nonces: nonces.expect(short).into(),
        }
    }

    /// Seals the values of this record.
    pub(crate) fn of(&self, at: RecordKey) -> RecordSeal<'_> {
        RecordSeal::of(Some(self), at)
    }
}

/// A sealed value: nonce, ciphertext, tag. Frozen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SealedBytes(Vec<u8>);

/// Free-form JSON and its sealed secrets. Frozen.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SealedJson {
    /// JSON text, with null in place of each secret.
    text: String,
    secrets: Vec<SealedSecret>,
}

/// One secret of a free-form object. Frozen.
#[derive(Debug, Serialize, Deserialize)]
struct SealedSecret {
    /// Its place in the object as a JSON pointer (RFC 6901).
    path: String,
    value: SealedBytes,
}

/// The place of a value in a record: the field, the index of the part that the field belongs
/// to, and the JSON pointer in the field.
#[derive(Clone, Copy)]
struct SealedPosition<'a> {
    field: &'static str,
    item: u32,
    path: &'a str,
}

/// Seals and opens the values of one record.
#[derive(Clone, Copy)]
pub(crate) struct RecordSeal<'a> {
    /// None without a key: then sealed values cannot be opened.
    sealer: Option<&'a Sealer>,
    pub(crate) at: RecordKey,
}

impl<'a> RecordSeal<'a> {
    /// For the values of this record. Without a sealer, sealed values cannot be opened.
    pub(crate) fn of(sealer: Option<&'a Sealer>, at: RecordKey) -> Self {
        Self { sealer, at }
    }

    /// An object with its secrets sealed.
    pub(crate) fn object(
        &self,
        field: &'static str,
        item: u32,
        object: &JsonObject,
    ) -> Result<SealedJson, RecordError> {
        let inner = JSON_DEPTH_MAX - 1;
        if !object
            .values()
            .all(|value| schema::is_shallow(value, inner))
        {
            return Err(schema::too_deep(self.kind_name(), field));
        }
        let mut found = Vec::new();
        secrets_of_object(object, &mut String::new(), &mut found);
        if found.is_empty() {
            return self.without_secrets(serde_json::to_string(object));
        }
        let rest = Value::Object(object.clone());
        self.with_secrets(field, item, rest, &found)
    }

    /// Any JSON value with its secrets sealed.
    pub(crate) fn value(
        &self,
        field: &'static str,
        item: u32,
        value: &Value,
    ) -> Result<SealedJson, RecordError> {
        if !schema::is_shallow(value, JSON_DEPTH_MAX) {
            return Err(schema::too_deep(self.kind_name(), field));
        }
        let mut found = Vec::new();
        secrets_of_value(value, &mut String::new(), &mut found);
        if found.is_empty() {
            return self.without_secrets(serde_json::to_string(value));
        }
        self.with_secrets(field, item, value.clone(), &found)
    }

    /// A text that is a secret as a whole.
    pub(crate) fn text(&self, field: &'static str, text: &str) -> Result<SealedBytes, RecordError> {
        self.seal(SealedPosition::whole(field), text.as_bytes())
    }

    /// Opens an object or a value with its secrets.
    pub(crate) fn open_json<T: DeserializeOwned>(
        &self,
        field: &'static str,
        item: u32,
        sealed: &SealedJson,
    ) -> Result<T, RecordError> {
        let unreadable = || self.malformed("its JSON cannot be read");
        if sealed.secrets.is_empty() {
            return serde_json::from_str(&sealed.text).map_err(|_| unreadable());
        }
        let mut whole: Value = serde_json::from_str(&sealed.text).map_err(|_| unreadable())?;
        for SealedSecret { path, value } in &sealed.secrets {
            let plain = self.open(SealedPosition { field, item, path }, value)?;
            match whole.pointer_mut(path) {
                Some(place @ Value::Null) => {
                    *place = serde_json::from_slice(&plain).map_err(|_| unreadable())?;
                }
                _ => return Err(self.malformed("a sealed value has no place in its object")),
            }
        }
        serde_json::from_value(whole).map_err(|_| unreadable())
    }

    /// Opens a text.
    pub(crate) fn open_text(
        &self,
        field: &'static str,
        sealed: &SealedBytes,
    ) -> Result<String, RecordError> {
        let plain = self.open(SealedPosition::whole(field), sealed)?;
        String::from_utf8(plain).map_err(|_| self.malformed("a sealed text is not UTF-8"))
    }

    fn without_secrets(&self, text: serde_json::Result<String>) -> Result<SealedJson, RecordError> {
        let text = text.map_err(|_| self.malformed("a value has no text"))?;
        let secrets = Vec::new();
        Ok(SealedJson { text, secrets })
    }

    fn with_secrets(
        &self,
        field: &'static str,
        item: u32,
        mut rest: Value,
        found: &[(String, &Value)],
    ) -> Result<SealedJson, RecordError> {
        let mut secrets = Vec::with_capacity(found.len());
        for (path, value) in found {
            let plain = serde_json::to_vec(value);
            let plain = plain.map_err(|_| self.malformed("a value has no text"))?;
            let value = self.seal(SealedPosition { field, item, path }, &plain)?;
            let place = rest.pointer_mut(path);
            *place.ok_or_else(|| self.malformed("a secret has no place"))? = Value::Null;
            let path = path.clone();
            secrets.push(SealedSecret { path, value });
        }
        let mut sealed = self.without_secrets(serde_json::to_string(&rest))?;
        sealed.secrets = secrets;
        Ok(sealed)
    }

    fn seal(&self, spot: SealedPosition<'_>, plain: &[u8]) -> Result<SealedBytes, RecordError> {
        let sealer = self.sealer.ok_or_else(|| self.closed())?;
        let place = self.associated_data(spot);
        let nonce = sealer.nonce(&place, plain);
        let mut bytes = Vec::with_capacity(NONCE_LEN + plain.len() + aead::MAX_TAG_LEN);
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(plain);
        let secret = bytes.get_mut(NONCE_LEN..).unwrap_or_default();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = sealer
            .cipher
            .seal_in_place_separate_tag(nonce, Aad::from(place), secret)
            .map_err(|_| self.malformed("a secret is too long to be sealed"))?;
        bytes.extend_from_slice(tag.as_ref());
        Ok(SealedBytes(bytes))
    }

    fn open(&self, spot: SealedPosition<'_>, sealed: &SealedBytes) -> Result<Vec<u8>, RecordError> {
        let sealer = self.sealer.ok_or_else(|| self.closed())?;
        let parts = sealed.0.split_first_chunk::<NONCE_LEN>();
        let (nonce, rest) = parts.ok_or_else(|| self.closed())?;
        let mut rest = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let place = Aad::from(self.associated_data(spot));
        let plain = sealer.cipher.open_in_place(nonce, place, &mut rest);
        let length = plain.map_err(|_| self.closed())?.len();
        rest.truncate(length);
        Ok(rest)
    }

    /// The associated data: kind and id of the record, field, item and path.
    fn associated_data(&self, spot: SealedPosition<'_>) -> Vec<u8> {
        let mut place = vec![self.at.kind];
        place.extend_from_slice(&self.at.id);
        place.extend_from_slice(&(spot.field.len() as u32).to_le_bytes());
        place.extend_from_slice(spot.field.as_bytes());
        place.extend_from_slice(&spot.item.to_le_bytes());
        place.extend_from_slice(spot.path.as_bytes());
        place
    }

    fn kind_name(&self) -> &'static str {
        RecordKind::from_number(self.at.kind).map_or("foreign", RecordKind::name)
    }

    fn malformed(&self, what: &'static str) -> RecordError {
        let kind = self.kind_name();
        RecordError::Malformed { kind, what }
    }

    fn closed(&self) -> RecordError {
        let kind = self.kind_name();
        RecordError::Sealed { kind }
    }
}

impl SealedPosition<'static> {
    const fn whole(field: &'static str) -> Self {
        Self {
            field,
            item: 0,
            path: "",
        }
    }
}

impl Sealer {
    /// Equal nonces mean equal values in equal places, except with a probability of 2^-96 for
    /// each pair.
    fn nonce(&self, place: &[u8], plain: &[u8]) -> [u8; NONCE_LEN] {
        let mut digest = hmac::Context::with_key(&self.nonces);
        digest.update(&(place.len() as u32).to_le_bytes());
        digest.update(place);
        digest.update(plain);
        let tag = digest.sign();
        let mut nonce = [0; NONCE_LEN];
        nonce
            .iter_mut()
            .zip(tag.as_ref())
            .for_each(|(to, from)| *to = *from);
        nonce
    }
}

/// The secrets of an object with their pointers. A secret is sealed as a whole; null is not a
/// secret.
fn secrets_of_object<'v>(
    object: &'v JsonObject,
    path: &mut String,
    found: &mut Vec<(String, &'v Value)>,
) {
    let length = path.len();
    for (key, value) in object {
        path.push('/');
        path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        if is_sealed_key(key) && !value.is_null() {
            found.push((path.clone(), value));
        } else {
            secrets_of_value(value, path, found);
        }
        path.truncate(length);
    }
}

fn secrets_of_value<'v>(value: &'v Value, path: &mut String, found: &mut Vec<(String, &'v Value)>) {
    match value {
        Value::Object(object) => secrets_of_object(object, path, found),
        Value::Array(items) => {
            let length = path.len();
            for (index, item) in items.iter().enumerate() {
                path.push('/');
                path.push_str(&index.to_string());
                secrets_of_value(item, path, found);
                path.truncate(length);
            }
        }
        Value::String(text) if without_url_credentials(text).is_some() => {
            found.push((path.clone(), value));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
