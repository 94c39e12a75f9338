//! The commands in `tidegate --help`, by what they are for: clap has one list for all.

use clap::Command;

/// What a group is called, and its commands.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Serve", &["serve", "gateway", "edge"]),
    ("Configure", &["check", "config", "import", "doctor", "token"]),
    (
        "Ask a running server",
        &["health", "decide", "explain", "top", "keys", "certificates", "revert", "intake"],
    ),
    ("Measure", &["load", "saturate", "compare", "plan", "audit", "stub"]),
];
/// The group of whatever is in no other.
const OTHER: &str = "Other";

/// The program, whose help has its commands in groups.
#[must_use]
pub fn grouped(program: Command) -> Command {
    let (style, reset) = {
        let style = program.get_styles().get_header();
        (style.render().to_string(), style.render_reset().to_string())
    };
    let mut text = String::new();
    let groups = GROUPS.map(|(title, names)| (title, commands(&program, |name| names.contains(&name))));
    let is_other = |name: &str| !GROUPS.iter().any(|(_, names)| names.contains(&name));
    let all = groups.into_iter().chain([(OTHER, commands(&program, is_other))]);
    for (title, commands) in all.filter(|(_, commands)| !commands.is_empty()) {
        text.push_str(&format!("{style}{title}:{reset}\n{commands}\n"));
    }
    let head = "{about-with-newline}\n{usage-heading} {usage}\n\n";
    program.help_template(format!("{head}{text}{style}Options:{reset}\n{{options}}{{after-help}}"))
}

/// A line for each command that is one of these.
fn commands(program: &Command, is_one: impl Fn(&str) -> bool) -> String {
    let shown = || program.get_subcommands().filter(|it| !it.is_hide_set());
    let width = shown().map(|it| it.get_name().len()).max().unwrap_or_default();
    let lines = shown().filter(|it| is_one(it.get_name())).map(|it| {
        let about = it.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:width$}  {about}\n", it.get_name())
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_what_is_hidden_in_none() {
        let program = Command::new("p")
            .about("What it is")
            .subcommand(Command::new("serve").about("Serves"))
            .subcommand(Command::new("new").about("In no group yet"))
            .subcommand(Command::new("secret").hide(true));
        let help = grouped(program).render_help().to_string();
        assert!(help.starts_with("What it is\n\nUsage: p"), "{help}");
        assert!(help.contains("Serve:\n  serve  Serves\n"), "{help}");
        assert!(help.contains("Other:\n  new    In no group yet\n\nOptions:\n"), "{help}");
        assert!(!help.contains("secret"), "{help}");
        let names: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), different.len());
    }
}
