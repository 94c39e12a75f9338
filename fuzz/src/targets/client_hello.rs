//! Any bytes are a ClientHello, the beginning of one, or neither; more bytes change none of the first and the last.

use tidegate_wire::client_hello::{Hello, MAX_HELLO, begins_in_clear, is_whole, read};

pub(super) fn run(data: &[u8]) {
    let whole = read(data);
    if let Ok(Hello::Whole(Some(name))) = &whole {
        assert!(!name.is_empty() && name.len() <= 253 && !name.bytes().any(|byte| byte.is_ascii_uppercase()));
    }
    if whole == Ok(Hello::Partial) {
        assert!(data.len() < MAX_HELLO);
        assert_eq!(is_whole(data), Ok(false));
    }
    if begins_in_clear(data).is_some() {
        assert!(whole.is_err(), "what begins in clear is no hello");
    }
    let half = read(&data[..data.len() / 2]);
    assert!(half == Ok(Hello::Partial) || half == whole, "{half:?} {whole:?}");
}
