//! The worker's side: a job from the input, a record to the output.

use std::{
    io::{self, BufRead, Write},
    sync::mpsc,
    thread,
};

use parking_lot::Mutex;

use super::{ClusterError, Order, Transfer, WorkerLine};
use crate::{load::Engine, preflight::raise_descriptors};

/// Does what the parent asks on standard input, and answers on standard output.
///
/// # Errors
/// When the input is no job or the output cannot be written; a job that fails is answered.
pub fn run_worker() -> Result<(), ClusterError> {
    let mut order = String::new();
    io::stdin().lock().read_line(&mut order)?;
    let outcome =
        serde_json::from_str(&order).map_err(io::Error::from).map_err(ClusterError::from).and_then(work);
    say(&match outcome {
        Ok(record) => WorkerLine::Done(Box::new(record)),
        Err(error) => WorkerLine::Failed(error.to_string()),
    })?;
    Ok(())
}

fn work(Order { job, plan }: Order) -> Result<Transfer, ClusterError> {
    // A refusal shows as EMFILE errors in the measurement.
    let _refused = raise_descriptors().is_err();
    let (_, options) = job.resolve()?;
    let mut engine = Engine::new(options);
    let stop = engine.stop_handle();
    let (go, wait) = mpsc::sync_channel::<()>(1);
    thread::Builder::new().name("orders".to_owned()).spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            match line.as_str() {
                // A second "go" says nothing new.
                "go" => drop(go.try_send(())),
                _ => break,
            }
        }
        // "stop", or the parent is gone. Dropping `go` opens the gate.
        stop.stop();
    })?;
    let broken = Mutex::new(None);
    let note = |result: io::Result<()>| {
        if let Err(error) = result {
            broken.lock().get_or_insert(error);
        }
    };
    engine = engine.on_progress(Box::new(|progress| {
        // A parent that is gone ends this worker by its input.
        let _gone = say(&WorkerLine::Progress(*progress)).is_err();
    }));
    let measured = engine.run_gated(&plan, &mut || {
        note(say(&WorkerLine::Ready));
        let _opened = wait.recv().is_ok();
    })?;
    match broken.into_inner() {
        Some(error) => Err(error.into()),
        None => Ok(Transfer::from(&measured)),
    }
}

fn say(line: &WorkerLine) -> io::Result<()> {
    let mut text = serde_json::to_string(line)?;
    text.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
