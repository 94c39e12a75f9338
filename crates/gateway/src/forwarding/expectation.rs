//! `Expect: 100-continue` (RFC 9110, 10.1.1): a client that waits is asked for its body when the server asks for it.
//!
//! ```text
//!   client: head, Expect ─> server: head, Expect
//!           100, body   <── 100                   the body is passed on
//!           401         <── 401, 413, ...         the body is never asked for, and the connection ends with the reply
//!           100, body   <── nothing for 1 s       it may be a server that does not know of expectations
//! ```
//!
//! hyper writes 100 to a client when its body is first polled, so that a body which waits is not polled. A reply of success without
//! 100 is one of a server that will read the body all the same.
//!
//! Deliberately absent: expectations of clients of HTTP/2, whom hyper cannot send 100, and towards servers of HTTP/2, whose 100 it
//! does not tell. There the body is asked for at once, as RFC 9110 lets a proxy do.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use http::header::{EXPECT, HeaderValue};
use http::{Request, StatusCode};
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};

use crate::forwarding::progress::BodyProgress;

/// How long a server may take to ask for a body. Clients wait as long, of their own accord (curl).
const PATIENCE: Duration = Duration::from_secs(1);

/// What a server has said, beside nothing (0): that it does not want the body; that it does, which counts for more.
const REFUSED: u8 = 1;
const WANTED: u8 = 2;

/// A client that waits until it is asked for its body.
#[derive(Debug, Default)]
pub(crate) struct Expectation {
    said: AtomicU8,
    /// Who reads the body.
    reader: Mutex<Option<Waker>>,
}

impl Expectation {
    /// Tells a server, and listens for its 100.
    pub(crate) fn pass_on<B>(self: &Arc<Self>, request: &mut Request<B>, is_http2: bool) {
        if is_http2 {
            return self.met();
        }
        request.headers_mut().insert(EXPECT, HeaderValue::from_static("100-continue"));
        let expectation = Arc::clone(self);
        hyper::ext::on_informational(request, move |interim| {
            if interim.status() == StatusCode::CONTINUE {
                expectation.met();
            }
        });
    }

    /// Takes note of the server's reply. A body that was asked for is passed on to its end whatever the reply says: the server may read
    /// it before it goes on.
    pub(crate) fn answered(&self, status: StatusCode) {
        if status.is_success() {
            self.met();
        } else {
            self.said.fetch_max(REFUSED, SeqCst);
        }
    }

    fn met(&self) {
        self.said.store(WANTED, SeqCst);
        let reader = self.reader.lock().take();
        reader.into_iter().for_each(Waker::wake);
    }
}

/// What a body waits for before its client is asked for it.
#[derive(Debug)]
pub(crate) struct BodyWait {
    expectation: Arc<Expectation>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl BodyWait {
    /// Waits for what this server says.
    pub(crate) fn new(expectation: Arc<Expectation>) -> Self {
        Self { expectation, timer: None }
    }

    /// Ready when the client is to be asked; never, if the server does not want the body. The wait is not the server's fault: it may
    /// wait as well, for a body that comes without being asked for.
    pub(crate) fn poll(&mut self, progress: &BodyProgress, cx: &mut Context<'_>) -> Poll<()> {
        // Before it is looked what was said, so that nothing is said in between.
        *self.expectation.reader.lock() = Some(cx.waker().clone());
        let said = self.expectation.said.load(SeqCst);
        if said == WANTED {
            return Poll::Ready(());
        }
        progress.awaits_more();
        if said == REFUSED {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        ready!(timer.as_mut().poll(cx));
        self.expectation.said.store(WANTED, SeqCst);
        Poll::Ready(())
    }
}
