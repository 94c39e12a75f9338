//! Parsers for the kernel's files about a process, its threads and the machine.
//!
//! Pure: text in, figures out. References: proc(5), the kernel's `Documentation/scheduler/sched-stats.rst`
//! (second field of `schedstat`: nanoseconds runnable without a core).

/// CPU time of a process or thread, in clock ticks (USER_HZ).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTicks {
    /// The command or thread name.
    pub name: String,
    /// User and system time together.
    pub ticks: u64,
}

/// Reads `/proc/PID/stat` or `/proc/PID/task/TID/stat`. The name may hold spaces and parentheses.
#[must_use]
pub fn stat(text: &str) -> Option<CpuTicks> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let name = text.get(open + 1..close)?.to_owned();
    let fields: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
    // Fields 14 and 15 of the file; two stand before the name's end.
    let (user, system): (u64, u64) = (fields.get(11)?.parse().ok()?, fields.get(12)?.parse().ok()?);
    Some(CpuTicks { name, ticks: user.saturating_add(system) })
}

/// Reads the run delay of `/proc/PID/task/TID/schedstat`, in nanoseconds.
#[must_use]
pub fn run_delay_nanos(text: &str) -> Option<u64> {
    text.split_whitespace().nth(1)?.parse().ok()
}

/// Reads the soft limit of open files from `/proc/PID/limits`.
#[must_use]
pub fn descriptor_limit(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// Reads resident memory from `/proc/PID/status`, in bytes.
#[must_use]
pub fn resident_bytes(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
}

/// What became of the time of some cores, in clock ticks (USER_HZ).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreTicks {
    /// Cores that are counted.
    pub cores: u32,
    /// Nothing to do, or waiting for a disk.
    pub idle: u64,
    /// Taken by the host of a virtual machine.
    pub stolen: u64,
    /// All of it.
    pub all: u64,
}

/// Reads `/proc/stat`: the cores that `counts` says, by their numbers. None when there is no such core.
#[must_use]
pub fn core_ticks(text: &str, counts: impl Fn(u32) -> bool) -> Option<CoreTicks> {
    let mut sum = CoreTicks::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("cpu")) {
        let (number, rest) = line.split_once(' ')?;
        let Ok(number) = number.parse::<u32>() else { continue };
        let fields: Vec<u64> = rest.split_whitespace().map_while(|f| f.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; guest time is part of user time already.
        let (Some(idle), Some(waiting)) = (fields.get(3), fields.get(4)) else { continue };
        if !counts(number) {
            continue;
        }
        sum.cores += 1;
        sum.idle = sum.idle.saturating_add(*idle).saturating_add(*waiting);
        sum.stolen = sum.stolen.saturating_add(fields.get(7).copied().unwrap_or(0));
        sum.all = fields.iter().take(8).fold(sum.all, |sum, f| sum.saturating_add(*f));
    }
    (sum.cores > 0).then_some(sum)
}

/// First and last number of each range of cores in the line `Cpus_allowed_list` of `/proc/PID/status`.
#[must_use]
pub fn allowed_cores(text: &str) -> Option<Vec<(u32, u32)>> {
    let list = text.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?;
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some((low.parse().ok()?, high.parse().ok()?))
    };
    list.trim().split(',').map(range).collect()
}

/// Reads `/proc/PID/task/TID/children`: numbers of processes that blanks separate.
#[must_use]
pub fn children(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The inode of `socket:[123]`, as a descriptor's link shows it.
#[must_use]
pub fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn captured_files() {
        let line = "4242 (worker (a) 1) S 1 4242 4242 0 -1 4194304 931 0 2 0 5123 877 0 0 20 0 9 0 99321 0 0";
        assert_eq!(stat(line), Some(CpuTicks { name: "worker (a) 1".to_owned(), ticks: 6_000 }));
        assert_eq!(run_delay_nanos("5120000000 740000000 88121\n"), Some(740_000_000));
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            20000                20000                files\n";
        assert_eq!(descriptor_limit(limits), Some(20_000));
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t  2048 kB\n"), Some(2_097_152));
        let machine = "cpu  100 5 40 700 50 2 3 100 0 0\ncpu0 50 2 20 400 25 0 0 0 0 0\n\
                       cpu1 50 3 20 300 25 2 3 100 0 0\nintr 1 2\n";
        let all = CoreTicks { cores: 2, idle: 750, stolen: 100, all: 1_000 };
        assert_eq!(core_ticks(machine, |_| true), Some(all));
        let first = CoreTicks { cores: 1, idle: 425, stolen: 0, all: 497 };
        assert_eq!(core_ticks(machine, |core| core == 0), Some(first));
        assert_eq!(core_ticks(machine, |core| core > 1), None);
        assert_eq!(allowed_cores("Name:\tx\nCpus_allowed_list:\t0-1,4\n"), Some(vec![(0, 1), (4, 4)]));
        assert_eq!(allowed_cores("Cpus_allowed_list:\t0-x\n"), None);
        assert_eq!(children("12 345 \n"), [12, 345]);
        assert_eq!(socket_inode("socket:[41121]"), Some(41_121));
        assert_eq!(socket_inode("/dev/null"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "[()a-z 0-9:\n]{0,120}") {
            prop_assert!(stat(&text).is_none_or(|s| text.contains(&s.name)));
            let cores = format!("cpu0{text}");
            prop_assert!(core_ticks(&cores, |_| true).is_none_or(|ticks| ticks.idle <= ticks.all));
            let _any = allowed_cores(&format!("Cpus_allowed_list:{text}")).is_some();
        }
    }
}
