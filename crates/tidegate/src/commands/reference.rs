//! The reference of the command line, as Markdown: what `--help` says of every command, on one page.
//!
//! Settings are left out, which `serve` and others take as flags: their page is `docs/configuration.md`.

use clap::{Arg, ArgAction, Command};

/// Flags of settings are called as these are in the file: this one is among them.
const SETTINGS: &str = "http.listen";

const INTRODUCTION: &str = "# Command line

<!-- Made by `tidegate command-reference`. Edit the commands in crates/tidegate/src/commands. -->

What `tidegate COMMAND --help` says, for all commands. Exit codes: 0, it is as it should be; 1, it failed or was refused, with the reason
on standard error; 2, flags or a file have mistakes; 3, a finding that was asked for: a denial, a threshold that was missed.
Commands that ask a server take a token from `TIDEGATE_TOKEN` or from the file of `--token-file`.
";

/// The page.
#[must_use]
pub fn reference(mut program: Command) -> String {
    program.build();
    let mut page = INTRODUCTION.to_owned();
    for command in program.get_subcommands().filter(|it| !it.is_hide_set()) {
        section(command, "tidegate", &mut page);
    }
    page
}

fn section(command: &Command, above: &str, page: &mut String) {
    let name = format!("{above} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
    page.push_str(&format!("\n## `{name}`\n\n{}\n", about.unwrap_or_default().trim_end()));
    let subcommands: Vec<_> =
        command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help").collect();
    let all: Vec<_> = command.get_arguments().filter(|it| !it.is_hide_set() && !is_help(it)).collect();
    let has_settings = all.iter().any(|it| it.get_id() == SETTINGS);
    let is_setting = |it: &&Arg| has_settings && value_names(it) == ["<VALUE>"];
    let (settings, own): (Vec<_>, Vec<_>) = all.into_iter().partition(is_setting);
    if subcommands.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ");
        page.push_str(&format!("\n```text\n{usage}\n```\n"));
    }
    if let Some(examples) = command.get_after_long_help() {
        page.push_str(&format!("\nExamples:\n\n```text\n{}\n```\n", commands_of(&examples.to_string())));
    }
    if !own.is_empty() {
        page.push_str("\n| argument | default | what it is |\n|---|---|---|\n");
        for argument in own {
            row(argument, page);
        }
    }
    if !settings.is_empty() {
        page.push_str("\nEvery [setting](configuration.md) is a flag of it, too.\n");
    }
    for command in subcommands {
        section(command, &name, page);
    }
}

/// The command lines of a text of examples.
fn commands_of(examples: &str) -> String {
    let lines = examples.lines().map(str::trim).filter(|line| line.starts_with("tidegate "));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_help(argument: &Arg) -> bool {
    matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version
    )
}

/// What stands for its values.
fn value_names(argument: &Arg) -> Vec<String> {
    argument.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>")).collect()
}

fn row(argument: &Arg, page: &mut String) {
    let (values, takes) = (value_names(argument).join(" "), argument.get_action().takes_values());
    let mut name = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long}"),
        (None, Some(long)) => format!("--{long}"),
        (Some(short), None) => format!("-{short}"),
        (None, None) => String::new(),
    };
    if takes || name.is_empty() {
        name = format!("{name} {values}").trim().to_owned();
    }
    if argument.is_positional() && matches!(argument.get_action(), ArgAction::Append) {
        name.push_str("...");
    }
    let defaults: Vec<_> =
        argument.get_default_values().iter().map(|it| it.to_string_lossy().into_owned()).collect();
    let default = if takes && !defaults.is_empty() {
        format!("`{}`", defaults.join(","))
    } else if argument.is_required_set() {
        "required".to_owned()
    } else {
        String::new()
    };
    let mut help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    if let Some(variable) = argument.get_env() {
        help.push_str(&format!(" (environment: `{}`)", variable.to_string_lossy()));
    }
    let choices: Vec<_> = argument.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
    if takes && !choices.is_empty() {
        help.push_str(&format!(" (one of: {})", choices.join(", ")));
    }
    page.push_str(&format!("| `{}` | {default} | {} |\n", escaped(&name), escaped(&help)));
}

/// A text for a cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").trim_end().to_owned()
}
