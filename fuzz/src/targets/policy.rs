//! Any JSON gives a policy or a list of mistakes, and a policy's own document is that policy again.

use tidegate_algorithms::policy::parse;

pub(super) fn run(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(data) else { return };
    match parse(&value, "") {
        Ok(policy) => {
            let document = policy.document();
            let again = parse(&document, "").expect("our own document is valid");
            assert_eq!(again.document(), document);
        }
        Err(mistakes) => assert!(!mistakes.is_empty(), "refused without a reason"),
    }
}
