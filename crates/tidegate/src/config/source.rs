//! Where a process gets its configuration: the file's path, the environment, the flags.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tidegate_settings::document::MAX_FILE_BYTES;
use tidegate_settings::resolve::TOKEN_FILE_VARIABLE;

use super::{Environment, File, Flags, Loaded, Mistakes, load, token_file};

/// What people call the file. It is never read unasked: what a folder happens to have must not change what is in force.
const USUAL_FILE: &str = "tidegate.toml";

/// Everything that a configuration is made of, so that it can be made again.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file, if there is one.
    pub path: Option<PathBuf>,
    /// The environment at start: it does not change while a process runs.
    pub environment: Environment,
    /// The flags at start.
    pub flags: Flags,
}

/// What came of looking for the operator's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorToken {
    /// The configuration names no file for it, or has one itself.
    NotInFile,
    /// It is in this file.
    In(PathBuf),
    /// It was made, and is in this file.
    Made(PathBuf),
}

impl Source {
    /// Reads the file and makes the configuration, with the operator's token from its file where nothing else
    /// has one. Blocks on the disk.
    ///
    /// # Errors
    /// Everything that is wrong; a file that cannot be read is one mistake.
    pub fn load(&self) -> Result<Loaded, Mistakes> {
        let mut loaded = self.load_with_token()?;
        loaded.warnings.extend(self.unread_file());
        Ok(loaded)
    }

    fn load_with_token(&self) -> Result<Loaded, Mistakes> {
        let loaded = self.load_with(&self.environment);
        let Some(path) = self.token_file(&loaded) else { return loaded };
        match token_file::read(&path) {
            Ok(Some(token)) => self.load_with(&self.environment.clone().with_token(token)),
            Ok(None) => loaded,
            Err(error) => Err(Mistakes::unreadable(&path.display().to_string(), error.to_string())),
        }
    }

    /// Makes the operator's token if the configuration has none, names a file for it, and that is not there.
    /// Blocks on the disk.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn make_token(&self) -> Result<OperatorToken, Mistakes> {
        let Some(path) = self.token_file(&self.load_with(&self.environment)) else {
            return Ok(OperatorToken::NotInFile);
        };
        match token_file::make(&path) {
            Ok(true) => Ok(OperatorToken::Made(path)),
            Ok(false) => Ok(OperatorToken::In(path)),
            Err(error) => Err(Mistakes::unreadable(&path.display().to_string(), error.to_string())),
        }
    }

    /// The operator's token, if it is in a file.
    ///
    /// # Errors
    /// When that cannot be read.
    pub fn token(&self) -> io::Result<Option<String>> {
        self.token_file(&self.load_with(&self.environment)).map_or(Ok(None), |path| token_file::read(&path))
    }

    /// That a file which somebody may have meant is in the working directory and not read.
    fn unread_file(&self) -> Option<String> {
        let is_unread = self.path.is_none() && Path::new(USUAL_FILE).is_file();
        is_unread.then(|| format!("{USUAL_FILE} is here and not read: --config {USUAL_FILE} reads it"))
    }

    /// The file with the token, unless the configuration has a token without it.
    fn token_file(&self, loaded: &Result<Loaded, Mistakes>) -> Option<PathBuf> {
        let path = self.environment.get(TOKEN_FILE_VARIABLE)?;
        let has_token = loaded.as_ref().is_ok_and(|it| it.config.settings.admin.token.is_some());
        (!has_token).then(|| PathBuf::from(path))
    }

    fn load_with(&self, environment: &Environment) -> Result<Loaded, Mistakes> {
        let Some(path) = &self.path else { return load(None, environment, &self.flags) };
        let name = path.display().to_string();
        let bytes = read(path).map_err(|error| Mistakes::unreadable(&name, error.to_string()))?;
        load(Some(File { name: &name, bytes: &bytes }), environment, &self.flags)
    }
}

/// At most one byte more than is accepted, so that a huge file costs no memory.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"));
    }
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
