//! Requests and their deadlines.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::body::{ConnectionTask, HttpBody};
use crate::{HttpError, connection, proxy};

/// A server, and whom to trust there.
#[derive(Clone, Debug)]
pub struct HttpServer {
    host: String,
    port: u16,
    /// With it the connection is TLS.
    tls: Option<Arc<ClientConfig>>,
}

impl HttpServer {
    /// A server without TLS. An IPv6 address may have brackets.
    pub fn plain(host: &str, port: u16) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port,
            tls: None,
        }
    }

    /// A server with TLS, which must be trusted by this configuration.
    pub fn secure(host: &str, port: u16, tls: Arc<ClientConfig>) -> Self {
        Self {
            tls: Some(tls),
            ..Self::plain(host, port)
        }
    }

    fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// How long a request may take.
#[derive(Clone, Copy, Debug)]
pub struct HttpTimeouts {
    /// Until there is a connection, TLS included.
    pub connect: Duration,
    /// In all: until the head of the response ([`HttpClient::send`]) or the end of its body
    /// ([`HttpClient::exchange`]).
    pub total: Duration,
}

/// Sends requests.
#[derive(Clone, Debug)]
pub struct HttpClient {
    timeouts: HttpTimeouts,
    local: Option<IpAddr>,
    proxy: Option<String>,
}

impl HttpClient {
    /// A client that connects directly, from any address of this machine.
    pub fn new(timeouts: HttpTimeouts) -> Self {
        Self {
            timeouts,
            local: None,
            proxy: None,
        }
    }

    /// Connects from this address, if there is one to choose.
    #[must_use]
    pub fn from_address(mut self, local: IpAddr) -> Self {
        self.local = Some(local).filter(|local| !local.is_unspecified());
        self
    }

    /// Connects through this proxy, as `host:port`, if there is one.
    #[must_use]
    pub fn through_proxy(mut self, proxy: Option<String>) -> Self {
        self.proxy = proxy;
        self
    }

    /// Sends a request, and returns the response as soon as its head is here. The request has its
    /// target in origin form (RFC 9112, section 3.2.1) and a Host field.
    pub async fn send<B>(
        &self,
        server: &HttpServer,
        request: Request<B>,
    ) -> Result<Response<HttpBody>, HttpError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Error + Send + Sync,
    {
        self.send_until(Instant::now(), server, request).await
    }

    /// Sends a request and returns the whole response, whose body has at most `bytes_max` bytes.
    pub async fn exchange<B>(
        &self,
        server: &HttpServer,
        request: Request<B>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, HttpError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Error + Send + Sync,
    {
        let start = Instant::now();
        let (head, body) = self.send_until(start, server, request).await?.into_parts();
        let whole = timeout_at(start + self.timeouts.total, body.collect(bytes_max)).await;
        let whole = whole.map_err(|_| HttpError::ResponseTimedOut)??;
        Ok(Response::from_parts(head, whole))
    }

    async fn send_until<B>(
        &self,
        start: Instant,
        server: &HttpServer,
        mut request: Request<B>,
    ) -> Result<Response<HttpBody>, HttpError>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Error + Send + Sync,
    {
        let deadline = start + self.timeouts.total;
        let connected = deadline.min(start + self.timeouts.connect);
        if self.proxy.is_some() && server.tls.is_none() {
            let target = proxy::absolute(&server.authority(), request.uri());
            *request.uri_mut() = target.ok_or(HttpError::InvalidRequest)?;
        }
        let connecting = async {
            let Some(tls) = &server.tls else {
                return self.connect(server).await.map(HttpStream::Plain);
            };
            let name = connection::server_name(&server.host)?;
            let stream = self.connect(server).await?;
            let stream = connection::secure(stream, name, Arc::clone(tls)).await?;
            Ok(HttpStream::Tls(Box::new(stream)))
        };
        let stream = timeout_at(connected, connecting).await;
        let stream = stream.map_err(|_| HttpError::ConnectTimedOut)??;
        let answering = async {
            match stream {
                HttpStream::Plain(stream) => send_request(TokioIo::new(stream), request).await,
                HttpStream::Tls(stream) => send_request(TokioIo::new(*stream), request).await,
            }
        };
        let answered = timeout_at(deadline, answering).await;
        answered.map_err(|_| HttpError::ResponseTimedOut)?
    }

    async fn connect(&self, server: &HttpServer) -> Result<TcpStream, HttpError> {
        let Some(proxy) = &self.proxy else {
            let server = (server.host.as_str(), server.port);
            let stream = connection::connect(self.local, server).await;
            return stream.map_err(HttpError::Connect);
        };
        let stream = TcpStream::connect(proxy.as_str()).await;
        let mut stream = stream.map_err(HttpError::Connect)?;
        if server.tls.is_some() {
            proxy::open_tunnel(&mut stream, &server.authority()).await?;
        }
        Ok(stream)
    }
}

enum HttpStream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

async fn send_request<S, B>(stream: S, request: Request<B>) -> Result<Response<HttpBody>, HttpError>
where
    S: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Error + Send + Sync,
{
    let handshake = http1::handshake(stream).await;
    let (mut sender, connection) = handshake.map_err(HttpError::Handshake)?;
    let connection = ConnectionTask::new(tokio::spawn(async move {
        // The request or the body reports the same error.
        let _ = connection.await;
    }));
    let response: Response<Incoming> = sender
        .send_request(request)
        .await
        .map_err(HttpError::Disconnected)?;
    Ok(response.map(|body| HttpBody::new(body, connection)))
}
