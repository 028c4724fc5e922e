use super::super::wrap::{LONGEST, round, shorten_handles};
use super::*;

fn page(width: u16) -> Page {
    Page {
        width: Some(width),
        ..Page::default()
    }
}

fn text(page: Page, grid: Grid) -> String {
    grid.draw(page).unwrap()
}

type Two<'a> = (&'a str, &'a str);

/// Creates a table of one row, with the columns A and B.
fn a_b(a: &str, b: &str) -> Grid {
    Grid::new(
        false,
        [(a, b)],
        vec![left("A", |(a, _): Two<'_>| a), left("B", |(_, b): Two<'_>| b)],
    )
}

const HANDLE: &str = "k8s-pod-network.1efa87f4b0d5c1a7e8f9a0b1c2d3e4f5061728394a5b6c7d8e9f00112233445566";

#[test]
fn columns_are_two_spaces_apart() {
    let rows = [("long text", 1, "x\ty"), ("s", 1000, "")];
    let columns = vec![
        left("A", |row: (&'static str, u32, &'static str)| row.0),
        right("COUNT", |row: (&'static str, u32, &'static str)| thousands(row.1)),
        left("B", |row: (&'static str, u32, &'static str)| row.2),
    ];
    let grid = Grid::fixed(rows, columns);
    let expected = "A          COUNT  B\nlong text      1  x\\ty\ns          1,000\n";
    assert_eq!(text(Page::default(), grid), expected);
}

#[test]
fn a_narrow_terminal_breaks_texts_between_words() {
    let grid = a_b("10.244.1.7", "used by default/web-0 and default/web-1 at once");
    let expected =
        "A           B\n10.244.1.7  used by default/web-0 and\n            default/web-1 at once\n";
    assert_eq!(text(page(40), grid), expected);
}

#[test]
fn handle_ids_are_shortened_only_where_there_is_no_room() {
    let shown = |page| text(page, a_b("1", &format!("{HANDLE} is a handle")));
    assert!(shown(page(80)).ends_with("1  k8s-pod-network.1efa87f4… is a handle\n"));
    for whole in [
        shown(Page::default()),
        shown(page(200)),
        shown(Page {
            wide: true,
            ..page(80)
        }),
    ] {
        assert!(whole.contains(HANDLE), "{whole}");
    }
    let key = format!("/calico/ipam/v2/handle/{HANDLE}");
    assert_eq!(
        shorten_handles(&key).unwrap(),
        "/calico/ipam/v2/handle/k8s-pod-network.1efa87f4…"
    );
    for other in [
        "0f0e1d2c3b4a59687786951423324150",
        "default.web-0",
        "10.244.1.7",
        "v3.32.1",
        ".",
    ] {
        assert_eq!(shorten_handles(other), None, "{other}");
    }
}

#[test]
fn words_of_the_last_column_are_cut_where_nothing_else_helps() {
    let shown = text(page(40), a_b("10.244.1.7", &format!("{} end", "x".repeat(50))));
    assert!(
        shown.lines().all(|line| line.chars().count() <= 40) && shown.contains("x…\n"),
        "{shown}"
    );
}

#[test]
fn columns_are_left_out_last_and_by_name() {
    let filled = |page: Page| {
        let columns = vec![
            left("NAME", |name: &'static str| name),
            right("TOTAL", |_: &'static str| 1).hidden(2),
            right("COOLING", |_: &'static str| 2).hidden(1),
            right("FREE", |_: &'static str| 3),
        ];
        text(page, Grid::new(page.wide, ["a-pool-of-some-name"], columns))
    };
    let one = filled(page(41));
    assert_eq!(one, filled(page(200)), "{one}");
    assert_eq!(
        filled(page(36)),
        "NAME                 TOTAL  FREE\na-pool-of-some-name      1     3\n\
         (COOLING is hidden in a narrow\nterminal; `-o wide` shows it)\n"
    );
    assert!(
        filled(Page {
            wide: true,
            ..page(36)
        })
        .contains("COOLING")
    );
    assert!(filled(page(26)).contains("(COOLING and TOTAL are"));
}

#[test]
fn empty_columns_are_left_out() {
    let titles = |wide, number: u32| {
        let columns = vec![
            right("N", |number: u32| number),
            right("ANY", |number: u32| number).if_any(),
            right("WIDE", |number: u32| number).wide(),
            right("BOTH", |number: u32| number).wide().if_any(),
        ];
        let table = text(Page::default(), Grid::new(wide, [number], columns));
        table
            .lines()
            .next()
            .unwrap()
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(titles(false, 0), ["N"]);
    assert_eq!(titles(false, 1), ["N", "ANY", "BOTH"]);
    assert_eq!(titles(true, 0), ["N", "WIDE", "BOTH"]);
    assert_eq!(titles(true, 1), ["N", "ANY", "WIDE", "BOTH"]);
}

#[test]
fn many_rows_are_shown_by_kind() {
    let table = |wide, few| {
        let columns = vec![
            left("FIRST", |word: &'static str| &word[..1]).only_in_short_form(),
            left("WORD", |word: &'static str| word),
        ];
        let list = Grid::short(
            wide,
            few,
            ["b1", "a1", "b2"],
            columns,
            |word| &word[..1],
            |word| word,
        );
        text(Page::default(), list)
    };
    assert_eq!(
        table(false, 2),
        "COUNT  FIRST  FOR EXAMPLE\n    1  a      a1\n    2  b      b1\n"
    );
    for every in [table(false, 3), table(true, 2)] {
        assert_eq!(every, "WORD\nb1\na1\nb2\n");
    }
}

#[test]
fn lists_of_clusters_are_one() {
    let list = |words: &[&'static str]| {
        Grid::new(
            false,
            words.iter().copied(),
            vec![left("WORD", |word: &'static str| word)],
        )
    };
    let one = Grid::of_clusters([
        ("c-1", list(&["a", "b"])),
        ("c-2", list(&[])),
        ("c-3", list(&["d"])),
    ]);
    assert_eq!(
        text(Page::default(), one),
        "CLUSTER  WORD\nc-1      a\nc-1      b\nc-3      d\n"
    );
}

#[test]
fn numbers_of_large_pools_are_rounded_down_where_there_is_no_room() {
    let number = "1,208,925,819,614,629,174,706,176";
    assert_eq!(round(number).as_deref(), Some("1.20e24"));
    assert_eq!(
        (round("1,000,000,000,000"), round("unknown"), round("")),
        (None, None, None)
    );
    let grid = Grid::fixed([number], vec![right("N", |number: &'static str| number)]);
    assert!(text(page(200), grid).contains(number));
}

#[test]
fn very_long_texts_are_cut() {
    let grid = Grid::new(true, [()], vec![left("A", |()| "é".repeat(1_000_000))]);
    assert_eq!(
        text(Page::default(), grid)
            .lines()
            .nth(1)
            .unwrap()
            .chars()
            .count(),
        LONGEST + 1
    );
}

#[test]
fn a_terminal_that_is_far_too_narrow_breaks_lines_by_itself() {
    let (a, b) = ("x".repeat(38), "two words and more of them");
    let shown = text(
        Page {
            wide: true,
            ..page(40)
        },
        a_b(&a, b),
    );
    assert_eq!(shown.lines().nth(1), Some(format!("{a}  {b}").as_str()));
}

#[test]
fn colours_appear_only_where_they_are_wanted() {
    for color in [false, true] {
        let columns = vec![
            left("A", |(a, _): Two<'_>| a).colored(|_| Some(AnsiColor::Red)),
            left("B", |(_, b): Two<'_>| b),
        ];
        let shown = text(
            Page {
                color,
                ..Page::default()
            },
            Grid::fixed([("x", "y")], columns),
        );
        assert_eq!(shown.contains('\u{1b}'), color);
        assert_eq!(shown.contains("\u{1b}[31mx\u{1b}[0m  y\n"), color, "{shown:?}");
    }
}
