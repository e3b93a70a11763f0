//! Ports of this machine, and the smallest HTTP client that can ask a health
//! endpoint without a runtime.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::Duration;

use crate::error::Error;

/// Below the range from which systems take the ports of outgoing connections,
/// so that a port cannot be lost between being found and being listened on.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

static HANDED_OUT: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A TCP port on 127.0.0.1 that nobody listens on, never given out twice by
/// this process.
///
/// # Errors
/// When no port is free.
pub fn free_port() -> Result<u16, Error> {
    let mut guard = HANDED_OUT
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let taken = guard.get_or_insert_default();
    let random = RandomState::new();
    for attempt in 0..2_000u32 {
        let offset = random.hash_one(attempt) % u64::from(PORTS.end - PORTS.start);
        let Ok(offset) = u16::try_from(offset) else {
            continue;
        };
        let port = PORTS.start + offset;
        if !taken.contains(&port) && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            taken.insert(port);
            return Ok(port);
        }
    }
    Err(Error::NoPort)
}

/// The loopback address of a port.
pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Whether somebody accepts connections there.
pub(crate) fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&local(port), Duration::from_millis(200)).is_ok()
}

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpReply {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// `GET http://ADDRESS PATH` in plain HTTP/1.0, within 2 s for each read.
///
/// # Errors
/// When nobody answers, or not in HTTP.
pub fn http_get(address: SocketAddr, path: &str) -> Result<HttpReply, Error> {
    const TIMEOUT: Duration = Duration::from_secs(2);
    let fail = |reason: String| Error::Http {
        address,
        path: path.to_owned(),
        reason,
    };
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = exchange().map_err(|error| fail(error.to_string()))?;
    parse_reply(&answer).ok_or_else(|| fail("the answer is not HTTP".to_owned()))
}

fn parse_reply(answer: &str) -> Option<HttpReply> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split_whitespace().nth(1)?.parse().ok()?;
    Some(HttpReply {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_never_given_out_twice() {
        let ports: HashSet<u16> = (0..50).map(|_| free_port().expect("a port")).collect();
        assert_eq!(ports.len(), 50);
    }

    #[test]
    fn an_answer_is_split_into_status_and_body() {
        let reply = parse_reply("HTTP/1.0 503 Nope\r\nA: b\r\n\r\nnot ready").expect("HTTP");
        assert_eq!((reply.status, reply.body.as_str()), (503, "not ready"));
        assert_eq!(parse_reply("garbage"), None);
    }
}
