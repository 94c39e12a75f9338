//! Servers that answer before they have read a request's body, as `tidegate load` finds them: Node's own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::binary;
use serde_json::{Value, json};

/// Answers when a head is there. It then reads the body and goes on, or closes with the body unread.
const SERVER: &str = r"
const closes = process.argv[1] === 'closes';
const server = require('http').createServer((request, response) => {
  if (closes) {
    const reply = 'HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Length: 0\r\n\r\n';
    request.socket.write(reply, () => request.socket.destroy());
  } else {
    response.end('ok');
    request.resume();
  }
});
server.on('clientError', (error, socket) => { console.log(error.code); socket.destroy(); });
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
";

struct Server {
    process: Child,
    said: BufReader<ChildStdout>,
    port: String,
}

impl Server {
    fn start(way: &str) -> Self {
        let mut command = Command::new("node");
        command.args(["-e", SERVER, way]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut port = String::new();
        said.read_line(&mut port).unwrap();
        Self { process, said, port: port.trim().to_owned() }
    }

    /// Ends it: what it found wrong with what was sent.
    fn end(mut self) -> String {
        self.process.kill().unwrap();
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The record of 300 requests whose body is more than sockets hold.
fn measured(server: &Server) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body");
    std::fs::write(&body, vec![b'z'; 4 << 20]).unwrap();
    let (url, body) = (format!("http://127.0.0.1:{}/", server.port), format!("@{}", body.display()));
    let arguments =
        ["load", &url, "--data", &body, "-c", "16", "-n", "300", "-w", "0", "-d", "120", "-t", "1"];
    let output = binary().args(arguments).args(["--json", "--force"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn a_request_never_begins_in_what_is_left_of_one_that_was_answered_early() {
    let server = Server::start("keeps");
    let record = measured(&server);
    assert_eq!((&record["good"], &record["errors"]), (&json!(300), &json!({})), "{record}");
    let said = server.end();
    assert!(!said.contains("HPE_INVALID_METHOD"), "{said}");
}

#[test]
fn an_answer_counts_though_the_server_took_no_more_of_its_request() {
    let server = Server::start("closes");
    let record = measured(&server);
    assert_eq!((&record["denied"], &record["errors"]), (&json!(300), &json!({})), "{record}");
}
