//! One command-line flag per setting, made from the table: `--http-listen ADDRESS`.
//!
//! Secrets have none: flags are visible to every user in `ps`.

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use tidegate_settings::resolve::FlagValues;
use tidegate_settings::setting::Setting;

use super::settings::TABLE;

/// Settings given on the command line, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub(super) values: FlagValues,
}

impl Args for Flags {
    fn augment_args(command: Command) -> Command {
        let flag = |setting: &'static Setting| {
            let mut help = setting.doc.trim().to_owned();
            if !setting.default.is_empty() {
                help.push_str(&format!(" [default: {}]", setting.default));
            }
            let arg = Arg::new(setting.path).long(setting.flag_name()?).value_name("VALUE").help(help);
            // There are more than a hundred, which `-h` leaves to `--help`.
            Some(arg.help_heading("Settings").hide_short_help(true))
        };
        command.args(TABLE.iter().filter_map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for setting in TABLE.iter().filter(|setting| setting.flag) {
            if let Some(value) = matches.get_one::<String>(setting.path) {
                self.values.insert(setting.path, value.clone());
            }
        }
        Ok(())
    }
}
