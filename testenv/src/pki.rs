//! Keys and certificates of a cluster: one authority, the API server's serving
//! certificate, and the key that signs service account tokens.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::error::Error;

/// Where the files are.
#[derive(Debug, Clone)]
pub(crate) struct Pki {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) sa_key: PathBuf,
    pub(crate) sa_public: PathBuf,
}

impl Pki {
    /// Uses the files in `dir`, or makes them.
    pub(crate) fn ensure(dir: &Path) -> Result<Self, Error> {
        let pki = Self {
            ca: dir.join("ca.crt"),
            cert: dir.join("apiserver.crt"),
            key: dir.join("apiserver.key"),
            sa_key: dir.join("sa.key"),
            sa_public: dir.join("sa.pub"),
        };
        // The public key is written last: with it, the set is complete.
        if !pki.sa_public.exists() {
            std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
            pki.make()?;
        }
        Ok(pki)
    }

    fn make(&self) -> Result<(), Error> {
        let mut authority = CertificateParams::new(Vec::<String>::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority
            .distinguished_name
            .push(DnType::CommonName, "belay-testenv-ca");
        let ca_key = KeyPair::generate()?;
        let ca = authority.self_signed(&ca_key)?;

        let mut server = CertificateParams::new(vec![
            "127.0.0.1".to_owned(),
            "10.96.0.1".to_owned(),
            "localhost".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ])?;
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let server = server.signed_by(&server_key, &Issuer::from_params(&authority, &ca_key))?;

        let accounts = KeyPair::generate()?;
        write(&self.ca, &ca.pem())?;
        write(&self.cert, &server.pem())?;
        write(&self.key, &server_key.serialize_pem())?;
        write(&self.sa_key, &accounts.serialize_pem())?;
        write(&self.sa_public, &accounts.public_key_pem())
    }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(Error::io("write", path))
}
