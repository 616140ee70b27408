//! The specification and the code agree on which rules there are: code cites each rule at the place
//! that carries it out, and each citation is a rule.
//!
//! A rule is a paragraph or an item that begins with its number, as in `**R-4** …`. Its letter
//! tells the page if one page alone has that letter. Else the page's name stands before the
//! number: `flow.md R-4, R-5`. It holds to the end of a comment. The code of a function need not
//! name the function's own page.

use super::{read, sources, spec_dir};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use uts_functions::Function;

/// Crates that carry the specification out. The others may cite it, too.
const CARRYING: [&str; 8] =
    ["uts", "uts-cli", "uts-engine", "uts-files", "uts-functions", "uts-group", "uts-tunnel", "uts-wire"];

/// Elliptic curves, whose names look like rules of `packets.md`.
const CURVES: [&str; 2] = ["P-256", "P-384"];

/// A page of the specification.
struct Page {
    name: String,
    text: String,
}

/// A rule: page and number, as in `("flow", "R-4")`.
type Rule = (String, String);

/// A number of a rule, such as `R-4`, that a text has in this line.
struct Mention {
    line: usize,
    number: String,
    /// Page that was named last before it.
    page: Option<String>,
}

/// A rule's number at the begin of a text.
fn number(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(text.len());
    let (letter, digits) = text[..end].split_once('-')?;
    let is_number = letter.len() == 1 && letter.as_bytes()[0].is_ascii_uppercase();
    (is_number && digits.parse::<u32>().is_ok()).then_some(&text[..end])
}

impl Page {
    /// The rules of the page, in its order.
    fn rules(&self) -> impl Iterator<Item = &str> {
        let bold = |line: &'_ str| line.strip_prefix("* ").unwrap_or(line).strip_prefix("**").map(str::len);
        self.text.lines().filter_map(move |line| {
            let rest = &line[line.len() - bold(line)?..];
            number(rest).filter(|number| rest[number.len()..].starts_with("**"))
        })
    }

    /// Numbers that stand twice, and lines that look like rules of another form.
    fn blemishes(&self) -> Vec<String> {
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        for number in self.rules().filter(|number| !seen.insert(*number)) {
            found.push(format!("{}.md: {number} stands twice", self.name));
        }
        for (at, line) in (1..).zip(self.text.lines()) {
            let is_row = line.strip_prefix("| ").is_some_and(|cell| number(cell).is_some());
            let is_item = line.split_once(". ").is_some_and(|(first, _)| first.parse::<u32>().is_ok());
            if is_row || is_item {
                found.push(format!("{}.md:{at}: a rule is an item that begins with **X-n**", self.name));
            }
        }
        found
    }
}

struct Pages(Vec<Page>);

impl Pages {
    /// Those of `spec/` and `spec/functions/`.
    fn read() -> Self {
        let mut pages = Vec::new();
        for folder in [spec_dir(), spec_dir().join("functions")] {
            let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
            let files = entries.map(|entry| entry.expect("an entry").path());
            pages.extend(files.filter(|path| path.extension().is_some_and(|end| end == "md")).map(|path| {
                let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
                Page { name, text: read(&path) }
            }));
        }
        pages.sort_by(|a, b| a.name.cmp(&b.name));
        Pages(pages)
    }

    fn named(&self, name: &str) -> Option<&Page> {
        self.0.iter().find(|page| page.name == name)
    }

    /// Pages that have a rule with the letter of this number.
    fn with_letter_of(&self, number: &str) -> Vec<&Page> {
        let has = |page: &&Page| page.rules().any(|rule| rule[..2] == number[..2]);
        self.0.iter().filter(has).collect()
    }

    /// The rule that is meant by a number behind the name of a page.
    fn rule(&self, number: &str, page: Option<&str>) -> Option<Rule> {
        let page = match self.with_letter_of(number)[..] {
            [page] => page,
            _ => self.named(page?)?,
        };
        page.rules().any(|rule| rule == number).then(|| (page.name.clone(), number.to_owned()))
    }

    /// The numbers of rules in a text, whose own page is `home`. `goes_on` says whether a line
    /// belongs to the line before it.
    fn mentions(&self, text: &str, home: Option<&str>, goes_on: fn(&str) -> bool) -> Vec<Mention> {
        let (mut found, mut page) = (Vec::new(), home);
        for (line, words) in (1..).zip(text.lines()) {
            if !goes_on(words) {
                page = home;
            }
            let is_end = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
            for word in words.split(is_end).map(|word| word.trim_end_matches('.')) {
                if let Some(name) = word.strip_suffix(".md").filter(|name| self.named(name).is_some()) {
                    page = Some(name);
                } else if number(word) == Some(word)
                    && !CURVES.contains(&word)
                    && !self.with_letter_of(word).is_empty()
                {
                    found.push(Mention { line, number: word.to_owned(), page: page.map(str::to_owned) });
                }
            }
        }
        found
    }

    /// Rules that code cites, and citations of no rule.
    fn cited(&self, at: &str, code: &str, home: Option<&str>) -> (BTreeSet<Rule>, Vec<String>) {
        let is_comment = |line: &str| line.trim_start().starts_with("//");
        let (mut cited, mut wrong) = (BTreeSet::new(), Vec::new());
        for Mention { line, number, page } in self.mentions(code, home, is_comment) {
            match self.rule(&number, page.as_deref()) {
                Some(rule) => drop(cited.insert(rule)),
                None => {
                    let page = page.map_or_else(|| "no page".to_owned(), |name| format!("{name}.md"));
                    wrong.push(format!("{at}:{line} cites {number} of {page}, which is no rule"));
                }
            }
        }
        (cited, wrong)
    }

    /// References of the pages to each other, and to themselves, that are no rules.
    fn dangling(&self) -> Vec<String> {
        let is_inner = |line: &str| !line.is_empty() && !line.starts_with(['#', '*', '|']);
        let mut found = Vec::new();
        for Page { name, text } in &self.0 {
            for Mention { line, number, page } in self.mentions(text, Some(name), is_inner) {
                let own = self.rule(&number, Some(name));
                if own.or_else(|| self.rule(&number, page.as_deref())).is_none() {
                    found.push(format!("{name}.md:{line}: {number} is no rule of its page"));
                }
            }
        }
        found
    }

    /// A row for each page with rules that are not among these.
    fn gaps(&self, cited: &BTreeSet<Rule>) -> Vec<String> {
        let row = |page: &Page| {
            let is_gap = |number: &&str| !cited.contains(&(page.name.clone(), (*number).to_owned()));
            let gaps: Vec<&str> = page.rules().filter(is_gap).collect();
            let (of, name) = (page.rules().count(), format!("{}.md", page.name));
            (!gaps.is_empty())
                .then(|| format!("{name:<20} {:>2} of {of} by no code: {}", gaps.len(), gaps.join(" ")))
        };
        self.0.iter().filter_map(row).collect()
    }
}

/// The function whose folder a file of this crate lies in.
fn function_of(path: &Path) -> Option<&'static str> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folder = path.strip_prefix(src).ok()?.iter().next()?.to_str()?;
    Function::ALL.iter().map(|function| function.name()).find(|name| *name == folder)
}

#[test]
fn every_rule_is_cited_and_every_citation_is_a_rule() {
    let pages = Pages::read();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates");
    let mut found: Vec<String> = pages.0.iter().flat_map(Page::blemishes).collect();
    found.extend(pages.dangling());
    let mut cited = BTreeSet::new();
    for entry in std::fs::read_dir(crates).expect("the crates") {
        let folder = entry.expect("an entry").path();
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let mut files: Vec<PathBuf> = Vec::new();
        ["src", "tests", "examples"].map(|part| folder.join(part)).iter().for_each(|part| {
            if part.is_dir() {
                sources(part, &mut files);
            }
        });
        for path in files.iter().filter(|path| !path.ends_with("tests/registry/rules.rs")) {
            let at = path.strip_prefix(crates).expect("a file of a crate").display().to_string();
            let (rules, wrong) = pages.cited(&at, &read(path), function_of(path));
            found.extend(wrong);
            if CARRYING.contains(&name.as_str()) {
                cited.extend(rules);
            }
        }
    }
    found.extend(pages.gaps(&cited));
    let rules: usize = pages.0.iter().map(|page| page.rules().count()).sum();
    assert!(rules > 450, "rules are found at all: {rules}");
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
}

/// A small specification, and what is said of code that cites it.
#[test]
fn gaps_and_wrong_citations_are_found() {
    let page = |name: &str, text: &str| Page { name: name.to_owned(), text: text.to_owned() };
    let pages = Pages(vec![
        page("flow", "* **R-1** A.\n* **R-2** B, as R-7.\n1. An old rule.\n* **R-2** C.\n"),
        page("rate", "* **R-3** Bold: **R-9** is none. See flow.md R-1.\n"),
        page("exchange", "**X-4** A. After P-256.\n\n| X-5 | old |\n"),
    ]);
    let blemishes: Vec<String> = pages.0.iter().flat_map(Page::blemishes).collect();
    assert_eq!(
        blemishes,
        [
            "flow.md: R-2 stands twice",
            "flow.md:3: a rule is an item that begins with **X-n**",
            "exchange.md:3: a rule is an item that begins with **X-n**",
        ]
    );
    assert_eq!(
        pages.dangling(),
        [
            "flow.md:2: R-7 is no rule of its page",
            "rate.md:1: R-9 is no rule of its page",
            "exchange.md:3: X-5 is no rule of its page",
        ]
    );
    let told = |code: &str, home| {
        let (cited, wrong) = pages.cited("a.rs", code, home);
        let cited: Vec<String> = cited.iter().map(|(page, number)| format!("{page} {number}")).collect();
        (cited.join(", "), wrong.join(", "))
    };
    let of = |cited: &str, wrong: &str| (cited.to_owned(), wrong.to_owned());
    assert_eq!(told("// (flow.md R-1, and\n// R-2; X-4)", None), of("exchange X-4, flow R-1, flow R-2", ""));
    assert_eq!(told("// R-3: P-384, UTF-8.", Some("rate")), of("rate R-3", ""));
    assert_eq!(told("rule: \"X-4\", // flow.md R-1.", None), of("exchange X-4, flow R-1", ""));
    assert_eq!(
        told("// flow.md R-1\nlet a;\n// R-2", None),
        of("flow R-1", "a.rs:3 cites R-2 of no page, which is no rule")
    );
    assert_eq!(told("// rate.md R-1", None), of("", "a.rs:1 cites R-1 of rate.md, which is no rule"));
    assert_eq!(told("// X-9", None), of("", "a.rs:1 cites X-9 of no page, which is no rule"));
    let cited = pages.cited("a.rs", "// flow.md R-2, X-4", None).0;
    assert_eq!(
        pages.gaps(&cited),
        ["flow.md               1 of 3 by no code: R-1", "rate.md               1 of 1 by no code: R-3"]
    );
}
