//! Rules of Traefik's routers: ``Host(`shop.example`) && (PathPrefix(`/api`) || Path(`/health`))``.
//!
//! ```text
//!   any   = all { "||" all }
//!   all   = one { "&&" one }
//!   one   = "!" one | "(" any ")" | name "(" text { "," text } ")"
//!   text  = "`" as it is "`" | '"' with \" and \\ '"'
//! ```
//!
//! Traefik reads them as expressions of Go, so `!` binds closest and `&&` closer than `||`. A route of ours has no "or"
//! across its fields: a rule becomes its alternatives, each a list of matchers that must all fit.

/// Deepest nesting of parentheses and `!`.
const MAX_DEPTH: usize = 32;
/// Most alternatives of a rule.
const MAX_ALTERNATIVES: usize = 64;
/// Matchers of which a route has one: several arguments are alternatives.
const OF_PATHS: [&str; 3] = ["path", "pathprefix", "pathregexp"];

/// What a rule says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RuleNode {
    Call(MatcherCall),
    All(Vec<Self>),
    Any(Vec<Self>),
    /// With the character at which the `!` stands.
    Not(Box<Self>, usize),
}

/// A matcher with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MatcherCall {
    /// In lower case: Traefik takes `host` for `Host`.
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// The character of the rule at which it stands, from 1.
    pub(super) at: usize,
}

/// What is wrong with a rule, and at which of its characters, from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleMistake {
    pub(super) at: usize,
    pub(super) problem: String,
}

impl MatcherCall {
    pub(super) fn mistake(&self, problem: impl Into<String>) -> RuleMistake {
        RuleMistake { at: self.at, problem: problem.into() }
    }
}

/// Reads a rule.
pub(super) fn parse(text: &str) -> Result<RuleNode, RuleMistake> {
    let mut parser = RuleParser { text, at: 0, depth: 0 };
    let rule = parser.any()?;
    match parser.next() {
        None => Ok(rule),
        Some(')') => Err(parser.mistake(parser.at, "a ) closes nothing")),
        Some(letter) => {
            Err(parser.mistake(parser.at, format!("{letter:?} stands where && or || is expected")))
        }
    }
}

/// The alternatives of a rule, any of which takes a request.
pub(super) fn alternatives(rule: &RuleNode) -> Result<Vec<Vec<MatcherCall>>, RuleMistake> {
    let found: Vec<Vec<MatcherCall>> = match rule {
        RuleNode::Call(call) if OF_PATHS.contains(&call.name.as_str()) => {
            let one = |path: &String| vec![MatcherCall { arguments: vec![path.clone()], ..call.clone() }];
            call.arguments.iter().map(one).collect()
        }
        RuleNode::Call(call) => vec![vec![call.clone()]],
        RuleNode::Not(inner, at) => {
            if let RuleNode::Not(twice, _) = &**inner {
                return alternatives(twice);
            }
            let problem = "! is not understood here: a route has no condition that must not hold".to_owned();
            return Err(RuleMistake { at: *at, problem });
        }
        RuleNode::Any(members) => {
            let mut found = Vec::new();
            for member in members {
                found.extend(alternatives(member)?);
                bounded(found.len())?;
            }
            found
        }
        RuleNode::All(members) => {
            let mut found = vec![Vec::new()];
            for member in members {
                let further = alternatives(member)?;
                bounded(found.len() * further.len())?;
                let joined = |before: &Vec<MatcherCall>| -> Vec<Vec<MatcherCall>> {
                    further.iter().map(|after| [before.as_slice(), after.as_slice()].concat()).collect()
                };
                found = found.iter().flat_map(joined).collect();
            }
            found
        }
    };
    bounded(found.len())?;
    Ok(found)
}

fn bounded(count: usize) -> Result<(), RuleMistake> {
    let problem = format!("has more than {MAX_ALTERNATIVES} alternatives");
    if count > MAX_ALTERNATIVES { Err(RuleMistake { at: 1, problem }) } else { Ok(()) }
}

struct RuleParser<'t> {
    text: &'t str,
    /// The byte that is read next.
    at: usize,
    depth: usize,
}

impl RuleParser<'_> {
    fn any(&mut self) -> Result<RuleNode, RuleMistake> {
        let mut members = vec![self.all()?];
        while self.takes("||") {
            members.push(self.all()?);
        }
        Ok(joined(members, RuleNode::Any))
    }

    fn all(&mut self) -> Result<RuleNode, RuleMistake> {
        let mut members = vec![self.one()?];
        while self.takes("&&") {
            members.push(self.one()?);
        }
        Ok(joined(members, RuleNode::All))
    }

    fn one(&mut self) -> Result<RuleNode, RuleMistake> {
        self.blanks();
        let begin = self.at;
        if self.takes("!") {
            self.deeper(begin)?;
            let inner = self.one()?;
            self.depth -= 1;
            return Ok(RuleNode::Not(Box::new(inner), self.character(begin)));
        }
        if self.takes("(") {
            self.deeper(begin)?;
            let inner = self.any()?;
            self.depth -= 1;
            self.closes(begin, "&&, || or )")?;
            return Ok(inner);
        }
        self.call()
    }

    fn call(&mut self) -> Result<RuleNode, RuleMistake> {
        let begin = self.at;
        let rest = &self.text[begin..];
        let length = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if length == 0 {
            return Err(self.unexpected("a matcher, as in Host(`a`),"));
        }
        let name = rest[..length].to_ascii_lowercase();
        self.at += length;
        let open = self.at;
        if !self.takes("(") {
            return Err(self.unexpected("the ( of a matcher"));
        }
        let mut arguments = vec![self.text()?];
        while self.takes(",") {
            arguments.push(self.text()?);
        }
        self.closes(open, ", or )")?;
        Ok(RuleNode::Call(MatcherCall { name, arguments, at: self.character(begin) }))
    }

    /// A text in its quotes.
    fn text(&mut self) -> Result<String, RuleMistake> {
        self.blanks();
        let begin = self.at;
        if self.takes("`") {
            let text = self.text[self.at..].split_once('`').map(|(text, _)| text.to_owned());
            let text = text.ok_or_else(|| self.mistake(begin, "a ` is not closed"))?;
            self.at += text.len() + 1;
            return Ok(text);
        }
        if !self.takes("\"") {
            return Err(self.unexpected("a text in ` or \""));
        }
        let mut text = String::new();
        let mut letters = self.text[self.at..].char_indices();
        while let Some((offset, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.at += offset + 1;
                    return Ok(text);
                }
                '\\' => match letters.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => {
                        let problem =
                            "only \\\" and \\\\ are understood within \": write a text with \\ in `";
                        return Err(self.mistake(self.at + offset, problem));
                    }
                },
                letter => text.push(letter),
            }
        }
        Err(self.mistake(begin, "a \" is not closed"))
    }

    fn blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    /// The next character that is no blank.
    fn next(&mut self) -> Option<char> {
        self.blanks();
        self.text[self.at..].chars().next()
    }

    fn takes(&mut self, what: &str) -> bool {
        self.blanks();
        let is_there = self.text[self.at..].starts_with(what);
        if is_there {
            self.at += what.len();
        }
        is_there
    }

    /// The `)` of a `(` at the byte `open`.
    fn closes(&mut self, open: usize, expected: &str) -> Result<(), RuleMistake> {
        if self.takes(")") {
            return Ok(());
        }
        if self.next().is_none() {
            return Err(self.mistake(open, "a ( is not closed"));
        }
        Err(self.unexpected(expected))
    }

    fn deeper(&mut self, begin: usize) -> Result<(), RuleMistake> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.mistake(begin, format!("is nested more than {MAX_DEPTH} deep")));
        }
        Ok(())
    }

    fn unexpected(&mut self, expected: &str) -> RuleMistake {
        let problem = match self.next() {
            Some(letter) => format!("{letter:?} stands where {expected} is expected"),
            None => format!("the rule ends where {expected} is expected"),
        };
        self.mistake(self.at, problem)
    }

    fn mistake(&self, at: usize, problem: impl Into<String>) -> RuleMistake {
        RuleMistake { at: self.character(at), problem: problem.into() }
    }

    /// The number of the character at a byte, from 1.
    fn character(&self, at: usize) -> usize {
        self.text[..at].chars().count() + 1
    }
}

/// One member alone is itself.
fn joined(mut members: Vec<RuleNode>, join: fn(Vec<RuleNode>) -> RuleNode) -> RuleNode {
    match members.pop() {
        Some(only) if members.is_empty() => only,
        Some(last) => {
            members.push(last);
            join(members)
        }
        None => join(members),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_a_rule_or_has_a_mistake_within_it(text in "[()!&|`\"\\\\, Aé]{0,40}") {
            if let Err(mistake) = parse(&text) {
                prop_assert!((1..=text.chars().count() + 1).contains(&mistake.at), "{mistake:?}");
            }
        }
    }

    /// A rule with every parenthesis that it implies, and each argument in its quotes.
    fn shown(rule: &RuleNode) -> String {
        let list = |members: &[RuleNode], between: &str| {
            format!("({})", members.iter().map(shown).collect::<Vec<_>>().join(between))
        };
        match rule {
            RuleNode::Call(call) => format!("{}{:?}", call.name, call.arguments),
            RuleNode::All(members) => list(members, " && "),
            RuleNode::Any(members) => list(members, " || "),
            RuleNode::Not(inner, _) => format!("!{}", shown(inner)),
        }
    }

    #[test]
    fn not_binds_closest_and_and_closer_than_or() {
        for (rule, expected) in [
            ("A(`x`) || B(`x`) && C(`x`)", r#"(a["x"] || (b["x"] && c["x"]))"#),
            ("(A(`x`) || B(`x`)) && C(`x`)", r#"((a["x"] || b["x"]) && c["x"])"#),
            ("!A(`x`) && B(`x`)", r#"(!a["x"] && b["x"])"#),
            ("!(A(`x`)&&B(`x`))", r#"!(a["x"] && b["x"])"#),
            ("!!A(`x`)", r#"!!a["x"]"#),
            ("  Host ( `x` , `y` )\n", r#"host["x", "y"]"#),
        ] {
            assert_eq!(shown(&parse(rule).unwrap()), expected, "{rule}");
        }
    }

    #[test]
    fn a_text_is_as_it_is_in_backticks_and_has_two_escapes_in_quotes() {
        for (rule, expected) in [
            (r"A(`^/\d+`)", r"^/\d+"),
            (r#"A(`say "(&&)"`)"#, r#"say "(&&)""#),
            (r#"A("say \"`\" \\d")"#, r#"say "`" \d"#),
            ("A(``)", ""),
            ("A(\"é\")", "é"),
        ] {
            let RuleNode::Call(call) = parse(rule).unwrap() else { panic!("{rule}") };
            assert_eq!(call.arguments, [expected], "{rule}");
        }
    }

    #[test]
    fn a_mistake_is_found_at_its_character() {
        for (rule, at, problem) in [
            ("", 1, "the rule ends where a matcher"),
            ("Host(`a`", 5, "a ( is not closed"),
            ("(Host(`a`) && (Path(`/`)", 15, "a ( is not closed"),
            ("Host(`a`))", 10, "a ) closes nothing"),
            ("Host(`é`) Path(`/`)", 11, "'P' stands where && or ||"),
            ("(Host(`a`) Path(`/`))", 12, "'P' stands where &&, || or )"),
            ("Host(`a` `b`)", 10, "'`' stands where , or )"),
            ("Host(`a`) &&", 13, "the rule ends where a matcher"),
            ("Host(`a`) & Path(`/`)", 11, "'&' stands where && or ||"),
            ("Host", 5, "the rule ends where the ("),
            ("Host()", 6, "')' stands where a text"),
            ("Host(`a)", 6, "a ` is not closed"),
            ("Host(\"a)", 6, "a \" is not closed"),
            (r#"Host("\d")"#, 7, "only "),
            ("Host(a)", 6, "'a' stands where a text"),
        ] {
            let mistake = parse(rule).unwrap_err();
            assert_eq!(mistake.at, at, "{rule}: {mistake:?}");
            assert!(mistake.problem.starts_with(problem), "{rule}: {mistake:?}");
        }
    }

    #[test]
    fn nesting_and_alternatives_are_bounded() {
        let nested = |depth: usize| format!("{}A(`x`){}", "(".repeat(depth), ")".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(parse(&nested(MAX_DEPTH + 1)).unwrap_err().at, MAX_DEPTH + 1);
        assert_eq!(parse(&"!".repeat(100_000)).unwrap_err().at, MAX_DEPTH + 1);
        let doubled = ["(A(`x`) || B(`y`))"; 7].join(" && ");
        assert!(alternatives(&parse(&doubled).unwrap()).is_err());
        let most = ["(A(`x`) || B(`y`))"; 6].join(" && ");
        assert_eq!(alternatives(&parse(&most).unwrap()).unwrap().len(), MAX_ALTERNATIVES);
    }

    #[test]
    fn an_or_becomes_alternatives_and_a_not_is_a_mistake() {
        let rule = parse("Host(`a`, `b`) && (Path(`/x`, `/y`) || Method(`GET`))").unwrap();
        let found = alternatives(&rule).unwrap();
        let found: Vec<String> = found
            .iter()
            .map(|calls| calls.iter().map(|call| format!("{}{:?} ", call.name, call.arguments)).collect())
            .collect();
        let expected = [
            r#"host["a", "b"] path["/x"] "#,
            r#"host["a", "b"] path["/y"] "#,
            r#"host["a", "b"] method["GET"] "#,
        ];
        assert_eq!(found, expected);
        assert_eq!(alternatives(&parse("Host(`a`) && !Path(`/x`)").unwrap()).unwrap_err().at, 14);
        assert_eq!(alternatives(&parse("!!Host(`a`)").unwrap()).unwrap().len(), 1);
    }
}
