//! HTTPS for the commands that ask a server: the handshake of `tidegate-upstream` in the place of ureq's own.
//!
//! ureq can speak TLS itself, by a feature that brings another set of authorities and no trust in a certificate that is its own
//! authority, which `openssl req -x509` makes and `tls.ca_file` of an upstream takes (decision 0360). ureq says of the interface
//! that is used here that a minor version may change it; Cargo.lock holds that.

use std::fmt;
use std::io::{Read as _, Write as _};

use tidegate_upstream::endpoint::EndpointUrl;
use tidegate_upstream::tls::{BlockingTls, TlsClient};
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport, TransportAdapter,
};

/// Makes the handshake where the URL is one of `https://`.
#[derive(Debug)]
pub(super) struct TlsConnector(TlsClient);

impl TlsConnector {
    pub(super) fn new(client: TlsClient) -> Self {
        Self(client)
    }
}

impl Connector<Box<dyn Transport>> for TlsConnector {
    type Out = Box<dyn Transport>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<Box<dyn Transport>>,
    ) -> Result<Option<Self::Out>, Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() || transport.is_tls() {
            return Ok(Some(transport));
        }
        let url = EndpointUrl::parse(&details.uri.to_string()).ok_or(Error::Tls("the URL names no host"))?;
        let mut stream = TransportAdapter::new(transport, details.current_time.clone());
        stream.set_timeout(details.timeout);
        let stream = self.0.handshake_blocking(url.target(), stream)?;
        let (input, output) = (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Box::new(TlsTransport { buffers: LazyBuffers::new(input, output), stream })))
    }
}

/// A connection over TLS.
struct TlsTransport {
    buffers: LazyBuffers,
    stream: BlockingTls<TransportAdapter>,
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.get_mut().set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output)?;
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.get_mut().set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsTransport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}
