//! Making and judging the certificates of the webhook server. Pure: the time
//! and the names come in as arguments, nothing is stored or served here.

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::{
    RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier as _},
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    sign::CertifiedKey,
};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Certificates begin this much earlier, for clocks that are behind.
const BACKDATED: Duration = Duration::from_secs(300);

/// A certificate authority, and the certificate that it signed for the server.
/// All in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Certificate of the authority: what clients trust.
    pub ca: String,
    /// Its key.
    pub ca_key: String,
    /// Certificate of the server.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("ca", &self.ca)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// How long certificates are good for.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// The authority.
    pub ca: Duration,
    /// The server's certificate; never longer than its authority.
    pub leaf: Duration,
    /// What has less than this left is replaced.
    pub renew_before: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            ca: DAY.saturating_mul(3650),
            leaf: DAY.saturating_mul(365),
            renew_before: DAY.saturating_mul(30),
        }
    }
}

/// The time in which a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its first second.
    pub not_before: Timestamp,
    /// Its last second.
    pub not_after: Timestamp,
}

/// What to do with credentials that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Serve them.
    Good,
    /// The server's certificate needs a successor, and why; the authority is
    /// still good.
    LeafDue(String),
    /// All of it has to be made anew, and why.
    Unusable(String),
}

/// Certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A name that no certificate can hold, or a failure of the random source.
    #[error("certificates for {names} cannot be made: {source}")]
    Issue {
        /// The names asked for.
        names: String,
        /// What went wrong.
        source: rcgen::Error,
    },
    /// The text is no certificate or key.
    #[error("{what} cannot be read: {why}")]
    Read {
        /// Which part.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Certificates for no name at all are of no use.
    #[error("no name to make a certificate for: set --webhook-url or --webhook-service")]
    NoNames,
}

impl CertificateError {
    fn read(what: &'static str, why: impl fmt::Display) -> Self {
        Self::Read {
            what,
            why: why.to_string(),
        }
    }
}

/// Makes an authority, and a certificate for `names` (DNS names or addresses).
///
/// # Errors
/// Names that no certificate can hold, or none at all.
pub fn issue(
    names: &[String],
    lifetimes: Lifetimes,
    now: Timestamp,
) -> Result<Credentials, CertificateError> {
    let made = || {
        let key = KeyPair::generate()?;
        let mut params = dated(CertificateParams::default(), now, lifetimes.ca, None);
        params
            .distinguished_name
            .push(DnType::CommonName, "belay webhook CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = params.self_signed(&key)?;
        let issuer = Issuer::new(params, &key);
        let (certificate, leaf_key) = sign(&issuer, names, lifetimes, now, None)?;
        Ok(Credentials {
            ca: ca.pem(),
            ca_key: key.serialize_pem(),
            certificate,
            key: leaf_key,
        })
    };
    if names.is_empty() {
        return Err(CertificateError::NoNames);
    }
    made().map_err(|source| CertificateError::Issue {
        names: names.join(", "),
        source,
    })
}

/// Makes a new certificate for the server under the authority that exists.
///
/// # Errors
/// An authority that cannot be read, and as [`issue`].
pub fn renew_leaf(
    current: &Credentials,
    names: &[String],
    lifetimes: Lifetimes,
    now: Timestamp,
) -> Result<Credentials, CertificateError> {
    if names.is_empty() {
        return Err(CertificateError::NoNames);
    }
    let end = validity("the CA certificate", &current.ca)?.not_after;
    let key = KeyPair::from_pem(&current.ca_key)
        .map_err(|error| CertificateError::read("the CA key", error))?;
    let issuer = Issuer::from_ca_cert_pem(&current.ca, key)
        .map_err(|error| CertificateError::read("the CA certificate", error))?;
    let (certificate, key) = sign(&issuer, names, lifetimes, now, Some(end)).map_err(|source| {
        CertificateError::Issue {
            names: names.join(", "),
            source,
        }
    })?;
    Ok(Credentials {
        certificate,
        key,
        ..current.clone()
    })
}

fn sign<S: rcgen::SigningKey>(
    issuer: &Issuer<'_, S>,
    names: &[String],
    lifetimes: Lifetimes,
    now: Timestamp,
    end: Option<Timestamp>,
) -> Result<(String, String), rcgen::Error> {
    let lifetime = lifetimes.leaf.min(lifetimes.ca);
    let mut params = dated(CertificateParams::new(names)?, now, lifetime, end);
    params
        .distinguished_name
        .push(DnType::CommonName, "belay webhook");
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn dated(
    mut params: CertificateParams,
    now: Timestamp,
    lifetime: Duration,
    end: Option<Timestamp>,
) -> CertificateParams {
    let since_epoch =
        |time: Timestamp| Duration::from_secs(u64::try_from(time.as_second()).unwrap_or(0));
    let now = since_epoch(now);
    let mut last = now.saturating_add(lifetime);
    if let Some(end) = end {
        last = last.min(since_epoch(end));
    }
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + last;
    params
}

/// Reads the validity of a certificate in PEM.
///
/// # Errors
/// Text that is no certificate; `what` names it in the message.
pub fn validity(what: &'static str, pem: &str) -> Result<Validity, CertificateError> {
    let der = certificate(what, pem)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der)
        .map_err(|error| CertificateError::read(what, error))?;
    let time = |time: x509_parser::time::ASN1Time| {
        Timestamp::from_second(time.timestamp())
            .map_err(|error| CertificateError::read(what, error))
    };
    Ok(Validity {
        not_before: time(parsed.validity().not_before)?,
        not_after: time(parsed.validity().not_after)?,
    })
}

/// The certificate in a PEM text.
///
/// # Errors
/// Text that holds none; `what` names it in the message.
pub fn certificate(
    what: &'static str,
    pem: &str,
) -> Result<CertificateDer<'static>, CertificateError> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| CertificateError::read(what, error))
}

/// The server's certificate with its key, checked to belong together.
///
/// # Errors
/// Text that is no certificate or key, or the key of another certificate.
pub fn certified_key(credentials: &Credentials) -> Result<CertifiedKey, CertificateError> {
    let leaf = certificate("the server certificate", &credentials.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(credentials.key.as_bytes())
        .map_err(|error| CertificateError::read("the server key", error))?;
    CertifiedKey::from_der(vec![leaf], key, &ring::default_provider())
        .map_err(|error| CertificateError::read("the server key", error))
}

/// Judges credentials as the API server will: chain, names and time, now and
/// until they would be replaced.
#[must_use]
pub fn judge(
    credentials: &Credentials,
    names: &[String],
    lifetimes: Lifetimes,
    now: Timestamp,
) -> Standing {
    let soon = now
        .checked_add(lifetimes.renew_before)
        .unwrap_or(Timestamp::MAX);
    match validity("the CA certificate", &credentials.ca) {
        Err(error) => return Standing::Unusable(error.to_string()),
        Ok(ca) if soon > ca.not_after => {
            return Standing::Unusable(format!("the CA ends at {}", ca.not_after));
        }
        Ok(ca) if now < ca.not_before => {
            return Standing::Unusable(format!("the CA begins at {}", ca.not_before));
        }
        Ok(_) => {}
    }
    if let Err(error) = KeyPair::from_pem(&credentials.ca_key) {
        return Standing::Unusable(format!("the CA key cannot be read: {error}"));
    }
    match verify(credentials, names, now).and_then(|()| verify(credentials, names, soon)) {
        Ok(()) => Standing::Good,
        Err(why) => Standing::LeafDue(why),
    }
}

fn verify(credentials: &Credentials, names: &[String], now: Timestamp) -> Result<(), String> {
    let certified = certified_key(credentials).map_err(|error| error.to_string())?;
    let leaf = certified.end_entity_cert().map_err(|e| e.to_string())?;
    let roots = trust(&credentials.ca).map_err(|error| error.to_string())?;
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| error.to_string())?;
    let second = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    for name in names {
        let server = ServerName::try_from(name.as_str()).map_err(|e| format!("{name}: {e}"))?;
        verifier
            .verify_server_cert(leaf, &[], &server, &[], UnixTime::since_unix_epoch(second))
            .map_err(|error| format!("not good for {name} at {now}: {error}"))?;
    }
    Ok(())
}

/// A client's trust in the authorities of a PEM bundle.
///
/// # Errors
/// A bundle that cannot be read or holds none.
pub fn trust(bundle: &str) -> Result<RootCertStore, CertificateError> {
    let mut roots = RootCertStore::empty();
    for ca in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        ca.map_err(|error| CertificateError::read("the CA bundle", error))
            .and_then(|ca| {
                roots
                    .add(ca)
                    .map_err(|error| CertificateError::read("the CA bundle", error))
            })?;
    }
    if roots.is_empty() {
        return Err(CertificateError::read("the CA bundle", "it is empty"));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        vec!["belay.belay-system.svc".into(), "127.0.0.1".into()]
    }

    fn start() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    fn after(days: u32) -> Timestamp {
        start().checked_add(DAY * days).unwrap()
    }

    fn fresh() -> Credentials {
        issue(&names(), Lifetimes::default(), start()).unwrap()
    }

    fn judged(credentials: &Credentials, now: Timestamp) -> Standing {
        judge(credentials, &names(), Lifetimes::default(), now)
    }

    #[test]
    fn what_was_issued_is_good_until_it_is_nearly_over() {
        let credentials = fresh();
        assert_eq!(judged(&credentials, start()), Standing::Good);
        assert_eq!(judged(&credentials, after(334)), Standing::Good);
        assert!(matches!(
            judged(&credentials, after(336)),
            Standing::LeafDue(_)
        ));
        assert!(matches!(
            judged(&credentials, after(3630)),
            Standing::Unusable(_)
        ));
        let early = start().checked_sub(DAY).unwrap();
        assert!(matches!(judged(&credentials, early), Standing::Unusable(_)));
    }

    #[test]
    fn validity_is_read_from_the_certificate() {
        let ca = validity("the CA certificate", &fresh().ca).unwrap();
        assert_eq!(ca.not_before, start().checked_sub(BACKDATED).unwrap());
        assert_eq!(ca.not_after, after(3650));
    }

    #[test]
    fn a_renewed_leaf_stands_under_the_same_authority_and_never_outlives_it() {
        let old = fresh();
        let new = renew_leaf(&old, &names(), Lifetimes::default(), after(340)).unwrap();
        assert_eq!(new.ca, old.ca);
        assert_ne!(new.certificate, old.certificate);
        assert_eq!(judged(&new, after(340)), Standing::Good);
        let last = renew_leaf(&old, &names(), Lifetimes::default(), after(3500)).unwrap();
        let leaf = validity("the server certificate", &last.certificate).unwrap();
        assert_eq!(leaf.not_after, after(3650));
    }

    #[test]
    fn other_names_need_another_leaf_but_no_other_authority() {
        let other = vec!["belay.elsewhere.svc".to_owned()];
        let standing = judge(&fresh(), &other, Lifetimes::default(), start());
        assert!(matches!(standing, Standing::LeafDue(_)), "{standing:?}");
    }

    #[test]
    fn parts_that_do_not_belong_together_are_found() {
        let (one, two) = (fresh(), fresh());
        let mixed = Credentials {
            key: two.key.clone(),
            ..one.clone()
        };
        assert!(matches!(judged(&mixed, start()), Standing::LeafDue(_)));
        let foreign = Credentials {
            ca: two.ca,
            ..one.clone()
        };
        assert!(matches!(judged(&foreign, start()), Standing::LeafDue(_)));
        let garbage = Credentials {
            ca: "garbage".into(),
            ..one
        };
        assert!(matches!(judged(&garbage, start()), Standing::Unusable(_)));
    }

    #[test]
    fn keys_stay_out_of_debug_output() {
        assert!(!format!("{:?}", fresh()).contains("PRIVATE"));
    }

    #[test]
    fn no_name_is_an_error() {
        let error = issue(&[], Lifetimes::default(), start()).unwrap_err();
        assert!(matches!(error, CertificateError::NoNames));
    }
}
