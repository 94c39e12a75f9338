//! Servers of HTTP/2 that take few requests at once on a connection, and say so only after requests have come: h2's own server, whose
//! first SETTINGS are held back.

use std::io::{BufReader, Cursor, Read, Write};
use std::net::{SocketAddr, TcpStream as Client};
use std::sync::mpsc::{SyncSender, sync_channel};

use crate::support::{PATIENCE, TestGateway, config, head};
use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use serde_json::json;
use tidegate_gateway::limits::Unlimited;
use tidegate_gateway::service::GatewaySettings;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};
use tokio::sync::watch;

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();

/// The requests in what a client of HTTP/2 has sent.
fn requests(sent: &[u8]) -> usize {
    let (mut rest, mut found) = (sent.get(PREFACE..).unwrap_or_default(), 0);
    while let [one, two, three, kind, ..] = *rest {
        let length = 9 + u32::from_be_bytes([0, one, two, three]) as usize;
        let Some(next) = rest.get(length..) else { break };
        // HEADERS.
        found += usize::from(kind == 1);
        rest = next;
    }
    found
}

/// Reads what comes and tells of each request, until it is to begin. Then it takes one request at once.
async fn serve(stream: TcpStream, told: SyncSender<()>, mut begins: watch::Receiver<bool>) {
    let (mut reader, writer) = stream.into_split();
    let mut sent = Vec::new();
    loop {
        let mut piece = [0; 4096];
        tokio::select! {
            _ = begins.changed() => break,
            got = reader.read(&mut piece) => {
                let (before, got) = (requests(&sent), got.unwrap());
                if got == 0 {
                    return;
                }
                sent.extend_from_slice(&piece[..got]);
                (before..requests(&sent)).for_each(|_| told.send(()).unwrap());
            }
        }
    }
    let replayed = tokio::io::AsyncReadExt::chain(Cursor::new(sent), reader);
    let io = tokio::io::join(replayed, writer);
    let Ok(mut connection) = Builder::new().max_concurrent_streams(1).handshake::<_, Bytes>(io).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        drop(tokio::spawn(answer(request.into_body(), respond)));
    }
}

/// Says how many bytes a request had.
async fn answer(mut body: RecvStream, mut respond: SendResponse<Bytes>) {
    let mut length = 0;
    while let Some(Ok(piece)) = body.data().await {
        length += piece.len();
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    let reply = http::Response::builder().header("content-length", "1").body(()).unwrap();
    let mut reply = respond.send_response(reply, false).unwrap();
    reply.send_data(Bytes::from(length.to_string()), true).unwrap();
}

fn server(runtime: &Runtime, told: SyncSender<()>, begins: watch::Receiver<bool>) -> SocketAddr {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    drop(runtime.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            drop(tokio::spawn(serve(stream, told.clone(), begins.clone())));
        }
    }));
    address
}

/// A request whose body is under way cannot be repeated: on a connection that has no room for it, it would be lost.
#[test]
fn requests_that_come_before_a_server_says_how_many_it_takes_are_refused_by_none() {
    let runtime = RuntimeBuilder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ((told, heard), (begin, begins)) = (sync_channel(16), watch::channel(false));
    let address = server(&runtime, told, begins);
    let upstream = json!([{"name": "app", "servers": [format!("http://{address}")], "protocol": "http2"}]);
    let config = config(upstream, json!([{"name": "all", "upstream": "app"}]));
    // One core, so that each request could go on the connection of the one before.
    let gateway = TestGateway::start_on(1, Unlimited, GatewaySettings::default(), &config, |gateway| gateway);
    let clients: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = gateway.connect();
            let begun = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
            client.write_all(begun).unwrap();
            heard.recv_timeout(PATIENCE).expect("the request is sent to the server");
            client
        })
        .collect();
    begin.send(true).unwrap();
    for mut client in clients {
        client.write_all(b"4\r\ndefg\r\n0\r\n\r\n").unwrap();
        let mut reader = BufReader::new(client);
        let head = head(&mut reader);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let mut body = [0; 1];
        reader.read_exact(&mut body).unwrap();
        assert_eq!(body, *b"7", "bytes that its server got");
    }
    let (_, server) = &gateway.gateway.upstreams()[0].servers[0];
    assert_eq!(server.failures, 0, "and nobody blames it");
}
