//! Charts as SVG: bars and lines with axes, in the page's colors.

use maud::{Markup, html};

/// The size of a chart, and of the margins for its axes.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 12.0;

/// A number with its label.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub number: f64,
    pub text: String,
}

/// A curve. Its points are ordered from left to right, and their positions are from 0 to 1.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub name: String,
    pub points: Vec<(f64, Value)>,
}

/// Draws bars in groups. Each group has a name, and a value for each series.
pub(super) fn bars(title: &str, series: &[&str], groups: &[(String, Vec<Value>)]) -> Markup {
    let most = groups
        .iter()
        .flat_map(|(_, values)| values)
        .map(|value| value.number)
        .fold(0.0, f64::max);
    let room = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let width = room * 0.8 / series.len().max(1) as f64;
    let top = groups
        .iter()
        .flat_map(|(_, values)| values)
        .max_by(|a, b| a.number.total_cmp(&b.number));
    html! {
        figure {
            figcaption { (title) (legend(series)) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(title) {
                (axes(top.map_or("", |value| &value.text)))
                @for (group, (name, values)) in groups.iter().enumerate() {
                    @let begin = LEFT + room * group as f64 + room * 0.1;
                    @for (place, value) in values.iter().enumerate() {
                        @let height = share(value.number, most) * (HEIGHT - TOP - BOTTOM);
                        rect class=(format!("s{place}")) x=(round(begin + width * place as f64)) y=(round(HEIGHT - BOTTOM - height))
                            width=(round(width * 0.94)) height=(round(height)) {
                            title { (name) ": " (series.get(place).copied().unwrap_or_default()) " " (value.text) }
                        }
                    }
                    text.label x=(round(begin + room * 0.4)) y=(round(HEIGHT - 14.0)) text-anchor="middle" { (name) }
                }
            }
        }
    }
}

/// Draws curves over the same period. `end` labels the end of the period.
pub(super) fn lines(title: &str, end: &str, lines: &[Line]) -> Markup {
    let values = || lines.iter().flat_map(|line| &line.points).map(|(_, value)| value);
    let most = values().map(|value| value.number).fold(0.0, f64::max);
    let top = values().max_by(|a, b| a.number.total_cmp(&b.number));
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    html! {
        figure {
            figcaption { (title) (legend(&names)) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(title) {
                (axes(top.map_or("", |value| &value.text)))
                @for (place, line) in lines.iter().enumerate() {
                    polyline class=(format!("l{place}")) points=(path(line, most)) { title { (line.name) } }
                }
                text.label x=(LEFT) y=(HEIGHT - 14.0) { "0" }
                text.label x=(WIDTH - RIGHT) y=(HEIGHT - 14.0) text-anchor="end" { (end) }
            }
        }
    }
}

/// Formats the points of a curve as steps. Each value is drawn up to the next point.
fn path(line: &Line, most: f64) -> String {
    let mut text = String::new();
    let mut before = None;
    for (along, value) in &line.points {
        let x = LEFT + along * (WIDTH - LEFT - RIGHT);
        let y = HEIGHT - BOTTOM - share(value.number, most) * (HEIGHT - TOP - BOTTOM);
        if let Some(before) = before.replace(y) {
            text.push_str(&format!("{},{} ", round(x), round(before)));
        }
        text.push_str(&format!("{},{} ", round(x), round(y)));
    }
    text
}

/// Draws the axes, with labels for zero and the highest value.
fn axes(top: &str) -> Markup {
    html! {
        line.axis x1=(LEFT) y1=(TOP) x2=(LEFT) y2=(HEIGHT - BOTTOM) {}
        line.axis x1=(LEFT) y1=(HEIGHT - BOTTOM) x2=(WIDTH - RIGHT) y2=(HEIGHT - BOTTOM) {}
        text.label x=(LEFT - 6.0) y=(TOP + 8.0) text-anchor="end" { (top) }
        text.label x=(LEFT - 6.0) y=(HEIGHT - BOTTOM) text-anchor="end" { "0" }
    }
}

/// Lists the series by color, if there are several.
fn legend(names: &[&str]) -> Markup {
    html! {
        @if names.len() > 1 {
            @for (place, name) in names.iter().enumerate() {
                " " span.key { span class=(format!("swatch s{place}")) {} " " (name) }
            }
        }
    }
}

fn share(number: f64, most: f64) -> f64 {
    if most > 0.0 { number / most } else { 0.0 }
}

/// Rounds to a tenth of a pixel.
fn round(number: f64) -> String {
    format!("{:.1}", number)
}
