//! The resource of everything that this process sends: its name, its version, and its instance.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::config::{ServiceName, Telemetry as TelemetrySettings};

/// The service's name where nothing else says one.
const SERVICE: &str = "tidegate";
const SERVICE_NAME: &str = "service.name";

/// What is said of this process. Without an instance of its own, its numbers would be one with those of another node.
pub(super) fn resource(settings: &TelemetrySettings, instance: [u8; 16]) -> Vec<(String, String)> {
    let mut resource: Vec<(String, String)> = Vec::new();
    if let Some(ServiceName(name)) = &settings.service_name {
        resource.push((SERVICE_NAME.to_owned(), name.clone()));
    }
    let stated = settings.resource.iter().map(|it| (it.name.clone(), it.value.clone()));
    let own = [
        (SERVICE_NAME, SERVICE.to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", uuid(instance)),
    ];
    for (name, value) in stated.chain(own.map(|(name, value)| (name.to_owned(), value))) {
        if resource.iter().all(|(known, _)| *known != name) {
            resource.push((name, value));
        }
    }
    resource
}

/// A name for this start: no secret, so that bytes which the system does not give are zero.
pub(super) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    if getrandom(&mut bytes, GetRandomFlags::empty()).is_err() {
        tracing::warn!("the system gives no random bytes: service.instance.id is the same as elsewhere");
    }
    bytes
}

/// As a UUID of version 4.
fn uuid(mut bytes: [u8; 16]) -> String {
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = |range: std::ops::Range<usize>| -> String {
        bytes[range].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    [digits(0..4), digits(4..6), digits(6..8), digits(8..10), digits(10..16)].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Flags, Settings, load};

    fn settings(environment: &[(&str, &str)]) -> Settings {
        load(None, &environment.iter().copied().collect::<Environment>(), &Flags::default())
            .unwrap()
            .config
            .settings
    }

    #[test]
    fn what_an_operator_says_of_the_process_comes_first_and_nothing_is_said_twice() {
        let of = |environment: &[(&str, &str)], name: &str| {
            let resource = resource(&settings(environment).telemetry, [7; 16]);
            let said: Vec<String> =
                resource.into_iter().filter(|(known, _)| known == name).map(|(_, value)| value).collect();
            assert_eq!(said.len(), 1, "{name}: {said:?}");
            said[0].clone()
        };
        let stated = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=shop,service.instance.id=node-1");
        assert_eq!(of(&[], SERVICE_NAME), "tidegate");
        assert_eq!(of(&[stated], SERVICE_NAME), "shop");
        assert_eq!(of(&[stated, ("OTEL_SERVICE_NAME", "gate")], SERVICE_NAME), "gate");
        assert_eq!(of(&[stated], "service.instance.id"), "node-1");
        assert_eq!(of(&[], "service.instance.id"), "07070707-0707-4707-8707-070707070707");
        assert_eq!(of(&[], "service.version"), env!("CARGO_PKG_VERSION"));
    }
}
