//! Runs a program and stops single threads of it and of all that it starts.
//!
//! ```text
//!   Running --chosen, interrupt--> Asked --stopped--> Held --time is up--> Running
//!                                    |                 ^
//!                                    +--> Armed -------+   at a system call to come
//! ```
//!
//! By ptrace, since a signal stops a whole process and a freezer a whole group. Only threads that
//! were chosen are stopped at system calls, so the others run at full speed. The calls to ptrace are
//! those of `nix`; waiting is rustix's, which also tells of signals that `nix` has no name for.
//!
//! **A pause shows only as a pause.** A stop interrupts the system call that a thread waits in, and
//! some (`epoll_wait`, `recv` with a timeout) then fail with EINTR, which no slow machine causes.
//! Such a call is turned into one that the kernel restarts.
//!
//! **A process that a test freezes is let go**: with SIGSTOP in force it is detached, stays frozen
//! until the test thaws it, and runs on without pauses. `nix` has no PTRACE_LISTEN, which would keep it.
//!
//! Nothing outlives the run: what is left at its end is killed, and the kernel kills everything that
//! is traced if this process ends before.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    PidfdFlags, WaitOptions, WaitStatus, kill_process, pidfd_open, pidfd_send_signal, wait,
};

use super::chance::{Chance, HoldPoint};

/// So many threads at most are held at once; the rest of the program goes on.
const HELD_MAX: usize = 3;
/// Time for what was killed to be gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Waits for a line before it becomes the program, so that no thread starts untraced.
const GATE: &str = "read -r go && exec \"$0\" \"$@\" </dev/null";
/// `__WALL`: threads are waited for as processes are.
const ALL_THREADS: WaitOptions = WaitOptions::from_bits_retain(0x4000_0000);
/// `PTRACE_EVENT_STOP`: a stop that was asked for, the first of a new thread, or SIGSTOP in force.
const EVENT_STOP: i32 = 128;
/// SIGTRAP, and the bit by which `PTRACE_O_TRACESYSGOOD` marks a system call.
const SYSTEM_CALL: i32 = 5 | 0x80;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceEnd {
    /// The program's exit code.
    Exit(i32),
    /// The signal that ended it.
    Signal(i32),
    /// It ran for longer than it may and was killed.
    Overrun,
}

/// What a run was.
#[derive(Clone, Copy, Debug)]
pub(super) struct TracedRun {
    /// How it ended.
    pub(super) end: TraceEnd,
    /// Number of pauses.
    pub(super) pauses: usize,
    /// Their sum.
    pub(super) paused: Duration,
    /// Number of threads that were seen.
    pub(super) threads: usize,
}

#[derive(Clone, Copy, Debug)]
enum ThreadState {
    Running,
    /// Interrupted, and not yet seen to stop.
    Asked(HoldPoint),
    /// Runs on, stopping at system calls, and is held after so many.
    Armed(u64),
    Held {
        until: Instant,
    },
}

#[derive(Debug)]
struct Tracer {
    threads: BTreeMap<Pid, ThreadState>,
    /// Processes that the test froze: no longer traced, so held by what survives their id's reuse.
    released: Vec<OwnedFd>,
    chance: Chance,
    next: Instant,
    main: Pid,
    end: Option<TraceEnd>,
    run: TracedRun,
}

/// Runs `command` under pauses for `longest` at most; what it prints goes to `output`.
///
/// # Errors
/// When it cannot be started, or ptrace is not allowed here.
pub(super) fn run(
    command: &Command,
    output: File,
    chance: Chance,
    longest: Duration,
) -> anyhow::Result<TracedRun> {
    let errors = output.try_clone().context("the output's second handle")?;
    let mut gate = behind_gate(command);
    let mut child =
        gate.stdin(Stdio::piped()).stdout(output).stderr(errors).spawn().context("sh does not start")?;
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    // After the start, so that the program does not inherit it.
    children.thread_block().context("SIGCHLD cannot be blocked")?;
    let outcome = SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("signalfd")
        .and_then(|changes| trace(&mut child, &changes, chance, longest));
    children.thread_unblock().context("SIGCHLD cannot be unblocked")?;
    outcome
}

/// The same program behind a shell that waits for a line.
fn behind_gate(command: &Command) -> Command {
    let mut gate = Command::new("sh");
    gate.args(["-c", GATE]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => gate.env(name, value),
            None => gate.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        gate.current_dir(folder);
    }
    gate
}

fn trace(
    child: &mut Child,
    changes: &SignalFd,
    chance: Chance,
    longest: Duration,
) -> anyhow::Result<TracedRun> {
    let main = Pid::from_raw(i32::try_from(child.id()).context("a process id")?);
    let follow = Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(main, follow)
        .context("ptrace is not allowed here (in a container: --cap-add SYS_PTRACE)")?;
    child.stdin.take().context("the gate's input")?.write_all(b"go\n").context("the gate")?;

    let start = now();
    let mut tracer = Tracer {
        threads: BTreeMap::from([(main, ThreadState::Running)]),
        released: Vec::new(),
        chance,
        next: start,
        main,
        end: None,
        run: TracedRun { end: TraceEnd::Overrun, pauses: 0, paused: Duration::ZERO, threads: 1 },
    };
    while tracer.end.is_none() && now() < start + longest {
        tracer.reap();
        tracer.act(now());
        wait_until(changes, tracer.earliest().min(start + longest))?;
    }
    tracer.finish(changes)
}

impl Tracer {
    /// Takes note of every thread that has stopped or ended; whether there is any left.
    fn reap(&mut self) -> bool {
        loop {
            match wait(ALL_THREADS | WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.changed(Pid::from_raw(pid.as_raw_nonzero().get()), status),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn changed(&mut self, pid: Pid, status: WaitStatus) {
        if !status.stopped() {
            self.threads.remove(&pid);
            if pid == self.main {
                let exit = status.exit_status().map(TraceEnd::Exit);
                self.end = exit.or_else(|| status.terminating_signal().map(TraceEnd::Signal));
            }
            return;
        }
        let known = self.threads.len();
        let state = *self.threads.entry(pid).or_insert(ThreadState::Running);
        self.run.threads += self.threads.len() - known;
        let (signal, event) = ((status.as_raw() >> 8) & 0xff, status.as_raw() >> 16);
        match (event, state) {
            (EVENT_STOP, _) if signal != Signal::SIGTRAP as i32 => {
                self.threads.remove(&pid);
                // No process of its own where it is a thread of one.
                self.released.extend(raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()));
                // Gone if it was killed meanwhile, here and at every call below.
                ptrace::detach(pid, None).unwrap_or_default();
            }
            (EVENT_STOP, ThreadState::Asked(point)) => {
                restart_interrupted_call(pid);
                match point {
                    HoldPoint::Here => self.hold(pid),
                    HoldPoint::SystemCall(calls) => self.set(pid, ThreadState::Armed(calls)),
                }
                self.proceed(pid, None);
            }
            (0, ThreadState::Armed(calls)) if signal == SYSTEM_CALL => {
                match calls.checked_sub(1) {
                    None => self.hold(pid),
                    Some(calls) => self.set(pid, ThreadState::Armed(calls)),
                }
                self.proceed(pid, None);
            }
            (0, _) if signal != SYSTEM_CALL => self.proceed(pid, Signal::try_from(signal).ok()),
            _ => self.proceed(pid, None),
        }
    }

    fn set(&mut self, pid: Pid, state: ThreadState) {
        self.threads.insert(pid, state);
    }

    /// Holds a thread that stands still, unless enough are held.
    fn hold(&mut self, pid: Pid) {
        let held = self.threads.values().filter(|state| matches!(state, ThreadState::Held { .. })).count();
        if held >= HELD_MAX {
            return self.set(pid, ThreadState::Running);
        }
        let length = self.chance.length();
        self.run.pauses += 1;
        self.run.paused += length;
        self.set(pid, ThreadState::Held { until: now() + length });
    }

    /// Lets a thread that stands still go on, as its state says.
    fn proceed(&self, pid: Pid, signal: Option<Signal>) {
        match self.threads.get(&pid) {
            Some(ThreadState::Held { .. }) => {}
            Some(ThreadState::Armed(_)) => ptrace::syscall(pid, signal).unwrap_or_default(),
            _ => ptrace::cont(pid, signal).unwrap_or_default(),
        }
    }

    /// Ends the pauses whose time is up, and chooses a thread when it is time.
    fn act(&mut self, now: Instant) {
        let over = |state: &ThreadState| matches!(state, ThreadState::Held { until } if *until <= now);
        let done: Vec<Pid> =
            self.threads.iter().filter(|(_, state)| over(state)).map(|(pid, _)| *pid).collect();
        for pid in done {
            self.set(pid, ThreadState::Running);
            self.proceed(pid, None);
        }
        if now < self.next {
            return;
        }
        self.next = now + self.chance.until_next();
        let free = |state: &ThreadState| matches!(state, ThreadState::Running);
        let running: Vec<Pid> =
            self.threads.iter().filter(|(_, state)| free(state)).map(|(pid, _)| *pid).collect();
        let chosen = self.chance.below(running.len());
        let point = self.chance.point();
        if let Some(pid) = running.get(chosen).filter(|pid| ptrace::interrupt(**pid).is_ok()) {
            self.set(*pid, ThreadState::Asked(point));
        }
    }

    /// When there is something to do again, if no thread changes before.
    fn earliest(&self) -> Instant {
        let ends = self.threads.values().filter_map(|state| match state {
            ThreadState::Held { until } => Some(*until),
            _ => None,
        });
        ends.fold(self.next, Instant::min)
    }

    /// Kills what is left, and waits until it is gone.
    fn finish(mut self, changes: &SignalFd) -> anyhow::Result<TracedRun> {
        self.run.end = self.end.unwrap_or(TraceEnd::Overrun);
        for pid in self.threads.keys().filter_map(|pid| raw(*pid)) {
            kill_process(pid, rustix::process::Signal::KILL).unwrap_or_default();
        }
        for process in &self.released {
            pidfd_send_signal(process, rustix::process::Signal::KILL).unwrap_or_default();
        }
        let until = now() + PATIENCE;
        while self.reap() && now() < until {
            wait_until(changes, until.min(now() + Duration::from_millis(100)))?;
        }
        Ok(self.run)
    }
}

/// Makes the kernel restart a system call that fails with EINTR because the thread was stopped in it.
#[cfg(target_arch = "x86_64")]
fn restart_interrupted_call(pid: Pid) {
    /// What the kernel's own code returns to be restarted; never seen by a program.
    const RESTART: i64 = -512;
    let Ok(mut registers) = ptrace::getregs(pid) else { return };
    let in_call = registers.orig_rax.cast_signed() >= 0;
    if in_call && registers.rax.cast_signed() == -i64::from(nix::libc::EINTR) {
        registers.rax = RESTART.cast_unsigned();
        // Gone if it was killed meanwhile.
        ptrace::setregs(pid, registers).unwrap_or_default();
    }
}

/// Elsewhere the kernel decides about a restart before it stops: such calls fail with EINTR.
#[cfg(not(target_arch = "x86_64"))]
fn restart_interrupted_call(_: Pid) {}

fn raw(pid: Pid) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(pid.as_raw())
}

/// Waits until a thread changes or it is time.
fn wait_until(changes: &SignalFd, until: Instant) -> anyhow::Result<()> {
    let left = Timespec::try_from(until.saturating_duration_since(now())).context("a time to wait")?;
    let mut signals = [PollFd::from_borrowed_fd(changes.as_fd(), PollFlags::IN)];
    match poll(&mut signals, Some(&left)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error).context("poll"),
    }
    while let Ok(Some(_)) = changes.read_signal() {}
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "xtask is not the service: what it stops is no simulation")]
fn now() -> Instant {
    Instant::now()
}
