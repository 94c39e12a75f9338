//! Pictures that tests draw of what the code does: SVG, both palettes in each file, so that it reads on a light page and on a dark one.

use std::fmt::Write;
use std::path::Path;

/// Where the plot begins, and how wide it is.
pub(crate) const LEFT: f64 = 84.0;
pub(crate) const WIDTH: f64 = 650.0;
const STYLE: &str = r##"<style>
  .ground{fill:#fbfcfd;stroke:#d5dbe1} .rest{fill:#dcecf7;stroke:#1f6f9f} .yes{fill:#3f7d3c} .no{stroke:#b0473a;stroke-width:1.8;fill:none}
  .held{fill:#e9f3e6;stroke:#4d8a4a} .gone{fill:#fbe9e7;stroke:#b0473a;stroke-dasharray:4 3} .way{stroke:#3f7d3c;stroke-width:1;fill:none}
  .axis{stroke:#8a97a3;fill:none} .edge{stroke:#8a97a3;stroke-dasharray:4 4;fill:none}
  .first{stroke:#1f6f9f;fill:none;stroke-width:2} .second{stroke:#b0473a;fill:none;stroke-width:2;stroke-dasharray:7 4}
  text{fill:#17212b;font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif} .small{font-size:11px;fill:#4a5a68} .title{font-weight:600}
  @media (prefers-color-scheme: dark){ .ground{fill:#161b22;stroke:#30363d} .rest{fill:#173c52;stroke:#58a6d6} .yes{fill:#7fb77c} .no{stroke:#e08a7d}
  .held{fill:#1d3a25;stroke:#7fb77c} .gone{fill:#46221d;stroke:#e08a7d} .way{stroke:#7fb77c} text{fill:#e6edf3} .small{fill:#a9b6c2}
  .first{stroke:#58a6d6} .second{stroke:#e08a7d} .axis,.edge{stroke:#6b7885} }
</style>
"##;

/// A line of text.
pub(crate) fn text(svg: &mut String, class: &str, x: f64, y: f64, anchor: &str, said: &str) {
    writeln!(svg, r#"<text class="{class}" x="{x:.1}" y="{y}" text-anchor="{anchor}">{said}</text>"#)
        .unwrap();
}

/// The picture's ground, title and description; `fact` stands at the right of the title.
pub(crate) fn frame(height: f64, title: &str, description: &str, fact: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 {height}\" width=\"760\" height=\"{height}\" role=\"img\" \
         aria-labelledby=\"t d\">\n<title id=\"t\">{title}</title><desc id=\"d\">{description}</desc>\n{STYLE}\
         <rect class=\"ground\" x=\".5\" y=\".5\" width=\"759\" height=\"{}\" rx=\"8\"/>\n",
        height - 1.0
    );
    text(&mut svg, "title", 16.0, 25.0, "start", title);
    text(&mut svg, "small", LEFT + WIDTH, 25.0, "end", fact);
    svg
}

/// Compares a picture with the one in `docs/images`; `INSTA_UPDATE=always` writes that anew.
pub(crate) fn assert_is_kept(name: &str, drawn: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/images/{name}.svg"));
    if std::env::var_os("INSTA_UPDATE").is_some_and(|it| it == "always") {
        std::fs::write(&file, drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == drawn, "{name} shows something else: INSTA_UPDATE=always draws it anew");
}
