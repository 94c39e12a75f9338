//! Sample requests for `tidegate check`: the policies that apply to one, without a server.

use std::borrow::Cow;
use std::io::{self, Write};

use clap::error::Error;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use tidegate_algorithms::policy::{Attributes, Policy};
use tidegate_limiter::policy_set::PolicySet;
use tidegate_wire::path::readings;

use crate::config::{OnNoMatch, Value};

/// The flag's name.
const REQUEST: &str = "request";

/// An attribute's name and value.
type NamedValue<'a> = (&'a str, Cow<'a, [u8]>);

/// Sample requests, each a list of attributes.
#[derive(Clone, Debug, Default)]
pub(super) struct Samples(Vec<Vec<(String, String)>>);

/// Reads `NAME=VALUE`.
pub(super) fn attribute(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

impl Args for Samples {
    fn augment_args(command: Command) -> Command {
        let help = "A request, to see which policies apply to it: --request client_id=user123 path=/pay. \
                    May be given again";
        let arg = Arg::new(REQUEST).long(REQUEST).value_name("NAME=VALUE").help(help);
        command.arg(arg.num_args(1..).action(ArgAction::Append).value_parser(attribute))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Samples {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut samples = Self::default();
        samples.update_from_arg_matches(matches)?;
        Ok(samples)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let given = matches.get_occurrences::<(String, String)>(REQUEST).into_iter().flatten();
        self.0 = given.map(|one| one.cloned().collect()).collect();
        Ok(())
    }
}

impl Samples {
    /// Writes a line for each request.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub(super) fn describe(
        &self,
        set: &PolicySet,
        on_no_match: OnNoMatch,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let policies: Vec<&Policy> = set.policies().iter().map(|in_force| &in_force.policy).collect();
        for sample in &self.0 {
            let words: Vec<String> = sample.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            write!(out, "{}: ", words.join(" "))?;
            writeln!(out, "{}", outcome(&policies, &normalised(sample), on_no_match))?;
        }
        Ok(())
    }

    /// The attributes that the requests state.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().map(|(name, _)| name.as_str())
    }
}

/// A sample as the server would see it: with every reading of the path.
fn normalised(sample: &[(String, String)]) -> Vec<NamedValue<'_>> {
    let mut values = Vec::with_capacity(sample.len());
    for (name, value) in sample {
        if name == "path" {
            values.extend(readings(value.as_bytes()).all().map(|reading| (name.as_str(), reading)));
        } else {
            values.push((name.as_str(), Cow::Borrowed(value.as_bytes())));
        }
    }
    values
}

/// Which policies apply, or why none does.
fn outcome(policies: &[&Policy], sample: &[NamedValue<'_>], on_no_match: OnNoMatch) -> String {
    let pairs: Vec<(&str, &[u8])> = sample.iter().map(|(name, value)| (*name, &**value)).collect();
    let attributes = Attributes::new(&pairs);
    let mut apply: Vec<&Policy> =
        policies.iter().copied().filter(|policy| policy.applies_to(&attributes)).collect();
    let replaced: Vec<String> = apply.iter().flat_map(|policy| policy.replaces.clone()).collect();
    apply.retain(|policy| !replaced.iter().any(|name| **name == *policy.name));
    if apply.is_empty() {
        let reasons: Vec<String> = policies
            .iter()
            .filter_map(|policy| Some((policy, policy.first_mismatch(&attributes)?)))
            .map(|(policy, name)| match attributes.value(name) {
                Some(_) => format!("{} matches other values of {name:?}", policy.name),
                None => format!("{} needs {name:?}", policy.name),
            })
            .collect();
        let answer = if on_no_match == OnNoMatch::Allow { "allowed" } else { "denied" };
        return format!(
            "no policy applies, so it is {answer} (on_no_match = \"{}\"): {}",
            on_no_match.show(),
            reasons.join("; ")
        );
    }
    let described = apply.iter().map(|policy| {
        let keys: Vec<&str> = policy.key.iter().map(String::as_str).collect();
        let counted =
            if keys.is_empty() { "all together".to_owned() } else { format!("by {}", keys.join(", ")) };
        format!("{} applies, counted {counted}", policy.name)
    });
    described.collect::<Vec<_>>().join("; ")
}
