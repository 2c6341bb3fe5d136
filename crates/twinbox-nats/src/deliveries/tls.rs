//! TLS with the certificates that the options name.
use crate::options::NatsOptions;
use async_nats::rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use twinbox_core::task_name::TaskName;

/// Makes a connection a TLS connection to `host`. Reads the certificates again each time.
pub(super) async fn secured(
    stream: TcpStream,
    host: &str,
    options: &NatsOptions,
) -> io::Result<TlsStream<TcpStream>> {
    let (roots, client) = (options.ca_file.clone(), options.client_certificate.clone());
    let config =
        tokio::task::spawn_blocking(TaskName::NatsTls.of(move || config(roots.as_deref(), client))).await??;
    let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(Arc::new(config)).connect(host, stream).await
}

fn config(ca_file: Option<&Path>, client: Option<(PathBuf, PathBuf)>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(io::Error::other)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let config = ClientConfig::builder().with_root_certificates(roots);
    let Some((certificate, key)) = client else { return Ok(config.with_no_client_auth()) };
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    config.with_client_auth_cert(certificates(&certificate)?, key).map_err(io::Error::other)
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(io::Error::other)
}
