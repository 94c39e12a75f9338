//! Opening a connection to one server, with its TLS and credentials.

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, TlsCertificates,
};

use super::config::{Address, RedisConfig};
use crate::batch::Failure;

/// Opens a connection. Sentinels have no users of their own here: `authenticate` is for servers.
pub(super) async fn open(
    config: &RedisConfig,
    address: &Address,
    authenticate: bool,
) -> Result<MultiplexedConnection, RedisError> {
    let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
    if authenticate {
        if let Some(username) = &config.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &config.password {
            settings = settings.set_password(&password.0);
        }
    }
    let host = address.host.clone();
    let place = match &config.tls {
        None => ConnectionAddr::Tcp(host, address.port),
        Some(_) => ConnectionAddr::TcpTls { host, port: address.port, insecure: false, tls_params: None },
    };
    let info = place
        .into_connection_info()?
        .set_tcp_settings(TcpSettings::default().set_nodelay(true))
        .set_redis_settings(settings);
    let client = match &config.tls {
        None => Client::open(info)?,
        Some(tls) => {
            let client_tls = tls.client.as_ref().map(|(certificate, key)| ClientTlsConfig {
                client_cert: certificate.clone(),
                client_key: key.0.clone().into_bytes(),
            });
            Client::build_with_tls(info, TlsCertificates { client_tls, root_cert: tls.root.clone() })?
        }
    };
    let timeouts = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        .set_response_timeout(Some(config.response_timeout));
    client.get_multiplexed_async_connection_with_config(&timeouts).await
}

/// The failure of a command that only prepares for a batch.
pub(super) fn unsent(address: &Address, error: &RedisError) -> Failure {
    Failure::Unsent(format!("{address}: {error}"))
}
