//! The certificate authority: created once, stored by the caller, signs certificates.

use std::fmt::{self, Write as _};
use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, SerialNumber,
};
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use trivet_net_tls::{one_certificate, private_key, provider};

use crate::AuthorityError;

/// Validity of an authority, longer than the life of a box.
pub const CA_DAYS: i64 = 20 * 365;

/// Validity of a server certificate. The box makes one at every start.
pub const SERVER_DAYS: i64 = 400;

/// How far back the validity starts, for nodes whose clocks are behind. With [`SERVER_DAYS`] it
/// stays below the 825 days that Apple's clients accept.
pub const BACKDATE_DAYS: i64 = 400;

/// Most names and addresses in one certificate. Ours.
pub const NAMES_MAX: usize = 64;

/// A clock before this (2026-01-01) was never set: a box without a battery would otherwise make
/// an authority that has expired once its clock is right.
pub const CLOCK_FLOOR_UNIX_S: u64 = 1_767_225_600;

/// RFC 5280, section 4.1.2.2 allows 20 bytes; 16 random ones are unique.
const SERIAL_BYTES: usize = 16;

/// Longest common name: RFC 5280, appendix A, ub-common-name.
const COMMON_NAME_CHARS_MAX: usize = 64;

/// A certificate authority with its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key must not be in logs.
        formatter
            .debug_struct("Authority")
            .field("fingerprint", &self.fingerprint())
            .finish()
    }
}

impl Authority {
    /// Creates a new authority. `name` distinguishes the authorities of different boxes in a
    /// browser.
    pub fn create(now_unix_s: u64, name: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = params(now_unix_s, CA_DAYS)?;
        params.distinguished_name = subject(&format!("Trivet CA {name}"));
        // It signs no further authorities.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        Ok(Authority {
            certificate_pem: certificate.pem(),
            certificate: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    /// Loads an authority from the two PEM texts it was saved as.
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Self, AuthorityError> {
        let certificate = one_certificate(certificate_pem)?;
        let signing = provider()
            .key_provider
            .load_private_key(private_key(key_pem)?)?;
        CertifiedKey::new(vec![certificate.clone()], signing)
            .keys_match()
            .map_err(|_| AuthorityError::KeyMismatch)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, KeyPair::from_pem(key_pem)?)?;
        if !issuer.key_usages().contains(&KeyUsagePurpose::KeyCertSign) {
            return Err(AuthorityError::NotAnAuthority);
        }
        Ok(Authority {
            issuer,
            certificate,
            certificate_pem: certificate_pem.to_owned(),
        })
    }

    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// The authority's certificate, for clients that must trust it.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's private key, to be saved where only the owner can read it.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// SHA-256 of the certificate, in the format of `openssl x509 -fingerprint -sha256` and
    /// browsers.
    pub fn fingerprint(&self) -> String {
        let digest = digest::digest(&digest::SHA256, &self.certificate);
        let mut text = String::new();
        for (index, byte) in digest.as_ref().iter().enumerate() {
            let colon = if index == 0 { "" } else { ":" };
            write!(text, "{colon}{byte:02X}").expect("writing to a String never fails");
        }
        text
    }

    /// A new certificate for a server of the box: its chain and its key, both PEM.
    pub fn server_certificate(
        &self,
        names: &[String],
        ips: &[IpAddr],
        now_unix_s: u64,
    ) -> Result<(String, String), AuthorityError> {
        let count = names.len() + ips.len();
        if count == 0 {
            return Err(AuthorityError::NoNames);
        }
        if count > NAMES_MAX {
            return Err(AuthorityError::TooManyNames {
                count,
                most: NAMES_MAX,
            });
        }
        let mut params = params(now_unix_s, SERVER_DAYS)?;
        for name in names {
            params
                .subject_alt_names
                .push(SanType::DnsName(name.as_str().try_into()?));
        }
        params
            .subject_alt_names
            .extend(ips.iter().copied().map(SanType::IpAddress));
        let shown = names
            .first()
            .cloned()
            .or_else(|| ips.first().map(ToString::to_string));
        params.distinguished_name = subject(&shown.unwrap_or_default());
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let chain = format!("{}{}", certificate.pem(), self.certificate_pem);
        Ok((chain, key.serialize_pem()))
    }
}

/// Fields that all certificates share: validity and serial number. rcgen's defaults are all
/// replaced: they name rcgen and last two thousand years.
pub(crate) fn params(now_unix_s: u64, days: i64) -> Result<CertificateParams, AuthorityError> {
    let clock = || AuthorityError::Clock { now_unix_s };
    let seconds = i64::try_from(now_unix_s.max(CLOCK_FLOOR_UNIX_S)).map_err(|_| clock())?;
    let now = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| clock())?;
    let mut params = CertificateParams::default();
    params.not_before = now
        .checked_sub(Duration::days(BACKDATE_DAYS))
        .ok_or_else(clock)?;
    params.not_after = now.checked_add(Duration::days(days)).ok_or_else(clock)?;
    params.serial_number = Some(serial()?);
    Ok(params)
}

fn serial() -> Result<SerialNumber, AuthorityError> {
    let mut bytes = [0; SERIAL_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| AuthorityError::Random)?;
    // Positive and of full length for any random bytes.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

pub(crate) fn subject(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "Trivet");
    subject.push(
        DnType::CommonName,
        name.chars().take(COMMON_NAME_CHARS_MAX).collect::<String>(),
    );
    subject
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use trivet_net_tls::TlsConfigError;

    use super::*;

    const NOW_UNIX_S: u64 = 1_802_000_000;

    fn ours() -> Authority {
        Authority::create(NOW_UNIX_S, "rack 7").unwrap()
    }

    #[test]
    fn a_saved_authority_loads_the_same() {
        let first = ours();
        let loaded = Authority::load(first.certificate_pem(), &first.key_pem()).unwrap();
        assert_eq!(loaded.fingerprint(), first.fingerprint());
        assert_eq!(loaded.certificate_pem(), first.certificate_pem());
        assert_eq!(loaded.key_pem(), first.key_pem());
    }

    #[test]
    fn the_fingerprint_is_32_bytes_with_colons() {
        let text = ours().fingerprint();
        let bytes: Vec<&str> = text.split(':').collect();
        assert_eq!(bytes.len(), 32);
        assert!(
            bytes
                .iter()
                .all(|byte| u8::from_str_radix(byte, 16).is_ok() && byte.len() == 2)
        );
    }

    #[test]
    fn debug_output_holds_no_key() {
        let authority = ours();
        let shown = format!("{authority:?}");
        assert!(shown.contains(&authority.fingerprint()));
        assert!(!shown.contains("PRIVATE") && shown.len() < 150, "{shown}");
    }

    #[test]
    fn a_key_of_another_authority_is_refused() {
        let error = Authority::load(ours().certificate_pem(), &ours().key_pem()).unwrap_err();
        assert!(matches!(error, AuthorityError::KeyMismatch), "{error}");
    }

    #[test]
    fn a_server_certificate_is_not_an_authority() {
        let (chain, key) = ours()
            .server_certificate(&["a".to_owned()], &[], NOW_UNIX_S)
            .unwrap();
        let end = "-----END CERTIFICATE-----\n";
        let leaf = &chain[..chain.find(end).unwrap() + end.len()];
        let error = Authority::load(leaf, &key).unwrap_err();
        assert!(matches!(error, AuthorityError::NotAnAuthority), "{error}");
        let error = Authority::load(&chain, &key).unwrap_err();
        assert!(
            matches!(
                error,
                AuthorityError::Pem(TlsConfigError::NotOneCertificate)
            ),
            "{error}"
        );
    }

    #[test]
    fn invalid_texts_are_refused() {
        let first = ours();
        assert!(Authority::load("", "").is_err());
        assert!(Authority::load(first.certificate_pem(), "").is_err());
        let cut = &first.certificate_pem()[..200];
        assert!(Authority::load(cut, &first.key_pem()).is_err());
    }

    #[test]
    fn names_are_counted() {
        let authority = ours();
        let error = authority
            .server_certificate(&[], &[], NOW_UNIX_S)
            .unwrap_err();
        assert!(matches!(error, AuthorityError::NoNames), "{error}");
        let ips: Vec<IpAddr> = (0..NAMES_MAX)
            .map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last as u8)))
            .collect();
        authority.server_certificate(&[], &ips, NOW_UNIX_S).unwrap();
        let one_more = ["a".to_owned()];
        let error = authority
            .server_certificate(&one_more, &ips, NOW_UNIX_S)
            .unwrap_err();
        assert!(
            matches!(error, AuthorityError::TooManyNames { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_name_that_is_not_ascii_is_refused() {
        let names = ["b\u{fc}ro.example".to_owned()];
        assert!(ours().server_certificate(&names, &[], NOW_UNIX_S).is_err());
    }

    #[test]
    fn serials_are_positive_of_full_length_and_unique() {
        let serials: BTreeSet<Vec<u8>> = (0..1000).map(|_| serial().unwrap().to_bytes()).collect();
        assert_eq!(serials.len(), 1000);
        assert!(
            serials
                .iter()
                .all(|serial| serial.len() == 16 && serial[0] & 0xc0 == 0x40)
        );
    }

    #[test]
    fn validity_starts_in_the_past_and_has_its_length() {
        let params = params(NOW_UNIX_S, SERVER_DAYS).unwrap();
        let day_s = 24 * 3600;
        let now = i64::try_from(NOW_UNIX_S).unwrap();
        assert_eq!(params.not_before.unix_timestamp(), now - 400 * day_s);
        assert_eq!(params.not_after.unix_timestamp(), now + 400 * day_s);
        assert!((params.not_after - params.not_before).whole_days() < 825);
    }

    #[test]
    fn a_clock_that_was_never_set_counts_as_the_floor() {
        let unset = params(0, CA_DAYS).unwrap();
        let floor = params(CLOCK_FLOOR_UNIX_S, CA_DAYS).unwrap();
        assert_eq!(unset.not_after, floor.not_after);
    }

    #[test]
    fn a_clock_outside_the_range_of_certificates_is_refused() {
        for now_unix_s in [u64::MAX, 253_402_300_799, 1 << 40] {
            let error = Authority::create(now_unix_s, "late").unwrap_err();
            assert!(matches!(error, AuthorityError::Clock { .. }), "{error}");
        }
    }

    #[test]
    fn long_names_are_truncated_to_the_limit_of_a_subject() {
        assert!(Authority::create(NOW_UNIX_S, &"x".repeat(500)).is_ok());
        let subject = subject(&"x".repeat(500));
        let shown = format!("{subject:?}");
        assert!(shown.contains(&"x".repeat(64)) && !shown.contains(&"x".repeat(65)));
    }
}
