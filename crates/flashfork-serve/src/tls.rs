//! TLS, of the server and of the commands that ask it.

use flashfork_terminal::CliError;
use std::{fmt::Display, path::Path, sync::Arc};
use tokio_rustls::{
	TlsAcceptor, TlsConnector,
	rustls::{
		ClientConfig, RootCertStore, ServerConfig,
		pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
		server::WebPkiClientVerifier,
	},
};

type Result<T> = std::result::Result<T, CliError>;

fn bad<E: Display>(path: &Path) -> impl Fn(E) -> CliError {
	move |e| CliError::Unable(format!("{}: {e}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
	let all = CertificateDer::pem_file_iter(path).map_err(bad(path))?;
	let all = all.collect::<std::result::Result<Vec<_>, _>>().map_err(bad(path))?;
	if all.is_empty() { Err(bad(path)("there is no certificate in it (PEM)")) } else { Ok(all) }
}

/// Whoever may sign certificates.
fn roots(path: &Path) -> Result<Arc<RootCertStore>> {
	let mut roots = RootCertStore::empty();
	certificates(path)?.into_iter().try_for_each(|one| roots.add(one)).map_err(bad(path))?;
	Ok(roots.into())
}

/// What takes connections, those of clients with certificates only if these are to be signed by somebody.
pub fn acceptor(certificate: &Path, key: &[u8], client_ca: Option<&Path>) -> Result<TlsAcceptor> {
	let builder = ServerConfig::builder();
	let builder = match client_ca {
		Some(ca) => {
			builder.with_client_cert_verifier(WebPkiClientVerifier::builder(roots(ca)?).build().map_err(bad(ca))?)
		}
		None => builder.with_no_client_auth(),
	};
	let key = PrivateKeyDer::from_pem_slice(key)
		.map_err(|e| CliError::Unable(format!("the private key of {}: {e}", certificate.display())))?;
	let config = builder.with_single_cert(certificates(certificate)?, key).map_err(bad(certificate))?;
	Ok(Arc::new(config).into())
}

/// What makes connections, to servers whose certificates one of these signs; with an own certificate and its key.
pub fn connector(ca: &Path, own: Option<(&Path, &Path)>) -> Result<TlsConnector> {
	let builder = ClientConfig::builder().with_root_certificates(roots(ca)?);
	let config = match own {
		Some((certificate, key)) => {
			let key = PrivateKeyDer::from_pem_file(key).map_err(bad(key))?;
			builder.with_client_auth_cert(certificates(certificate)?, key).map_err(bad(certificate))?
		}
		None => builder.with_no_client_auth(),
	};
	Ok(Arc::new(config).into())
}
