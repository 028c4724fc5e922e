//! Charts as SVG: bars and lines with axes, in the page's colors.

use maud::{Markup, html};

/// The size of a chart, and of the margins for its axes.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const BOTTOM: f64 = 34.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 12.0;
/// The size of the area in which values are drawn, and the height of its lower edge, where the values are 0.
const AREA_WIDTH: f64 = WIDTH - LEFT - RIGHT;
const AREA_HEIGHT: f64 = HEIGHT - TOP - BOTTOM;
const ZERO: f64 = HEIGHT - BOTTOM;
/// The height of the labels below the area.
const LABELS: f64 = HEIGHT - 14.0;

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
    let top = Top::of_values(groups.iter().flat_map(|(_, values)| values));
    let group_width = AREA_WIDTH / groups.len().max(1) as f64;
    // The bars take four fifths of a group, and a tenth on each side separates it from others.
    let width = group_width * 0.8 / series.len().max(1) as f64;
    html! {
        figure {
            figcaption { (title) (legend(series)) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(title) {
                (axes(top.label))
                @for (group, (name, values)) in groups.iter().enumerate() {
                    @let begin = LEFT + group_width * group as f64 + group_width * 0.1;
                    @for (place, value) in values.iter().enumerate() {
                        @let height = share(value.number, top.number) * AREA_HEIGHT;
                        rect class=(format!("s{place}")) x=(round(begin + width * place as f64)) y=(round(ZERO - height))
                            width=(round(width * 0.94)) height=(round(height)) {
                            title { (name) ": " (series.get(place).copied().unwrap_or_default()) " " (value.text) }
                        }
                    }
                    text.label x=(round(begin + group_width * 0.4)) y=(round(LABELS)) text-anchor="middle" { (name) }
                }
            }
        }
    }
}

/// Draws curves over the same period. `end` labels the end of the period.
pub(super) fn lines(title: &str, end: &str, lines: &[Line]) -> Markup {
    let points = lines.iter().flat_map(|line| &line.points);
    let top = Top::of_values(points.map(|(_, value)| value));
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    html! {
        figure {
            figcaption { (title) (legend(&names)) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(title) {
                (axes(top.label))
                @for (place, line) in lines.iter().enumerate() {
                    polyline class=(format!("l{place}")) points=(path(line, top.number)) { title { (line.name) } }
                }
                text.label x=(LEFT) y=(LABELS) { "0" }
                text.label x=(WIDTH - RIGHT) y=(LABELS) text-anchor="end" { (end) }
            }
        }
    }
}

/// The top of the vertical axis of a chart: its highest value, which is at least 0.
struct Top<'a> {
    number: f64,
    label: &'a str,
}

impl<'a> Top<'a> {
    /// Returns the number and the label of the highest value; 0 and an empty label without values.
    fn of_values(values: impl Iterator<Item = &'a Value>) -> Self {
        match values.max_by(|first, second| first.number.total_cmp(&second.number)) {
            Some(highest) => Self {
                number: highest.number.max(0.0),
                label: &highest.text,
            },
            None => Self {
                number: 0.0,
                label: "",
            },
        }
    }
}

/// Formats the points of a curve as steps. Each value is drawn up to the next point.
fn path(line: &Line, highest: f64) -> String {
    let mut text = String::new();
    let mut last_y = None;
    for (position, value) in &line.points {
        let x = LEFT + position * AREA_WIDTH;
        let y = ZERO - share(value.number, highest) * AREA_HEIGHT;
        // The corner of the step: this point's place at the last one's height.
        if let Some(last_y) = last_y {
            text.push_str(&format!("{},{} ", round(x), round(last_y)));
        }
        text.push_str(&format!("{},{} ", round(x), round(y)));
        last_y = Some(y);
    }
    text
}

/// Draws the axes, with labels for zero and the highest value.
fn axes(top: &str) -> Markup {
    html! {
        line.axis x1=(LEFT) y1=(TOP) x2=(LEFT) y2=(ZERO) {}
        line.axis x1=(LEFT) y1=(ZERO) x2=(WIDTH - RIGHT) y2=(ZERO) {}
        text.label x=(LEFT - 6.0) y=(TOP + 8.0) text-anchor="end" { (top) }
        text.label x=(LEFT - 6.0) y=(ZERO) text-anchor="end" { "0" }
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

fn share(number: f64, highest: f64) -> f64 {
    if highest > 0.0 { number / highest } else { 0.0 }
}

/// Rounds to a tenth of a pixel.
fn round(number: f64) -> String {
    format!("{:.1}", number)
}
