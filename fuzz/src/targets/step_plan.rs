//! Any bytes give a step plan or an error, and a plan that was read can be written and read again.

use tidegate_judge::measurement::StepPlan;

pub(super) fn run(data: &[u8]) {
    if let Ok(plan) = serde_json::from_slice::<StepPlan>(data) {
        let written = serde_json::to_vec(&plan).expect("a plan has only numbers, flags and names");
        let read: StepPlan = serde_json::from_slice(&written).expect("what we write is what we read");
        assert_eq!(read.connections, plan.connections);
    }
}
